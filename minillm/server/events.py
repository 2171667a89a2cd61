"""GET /engine/events: the engine's step events (docs/events.md) as a stream of server-sent events, for the live page."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import StreamingResponse

from minillm.events import EventRecorder
from minillm.server.errors import ApiError
from minillm.server.serving import Serving, get_serving
from minillm.server.sse import event as encode

router = APIRouter()

MAX_LISTENERS = 16  # each costs the engine's thread a little in every step
MAX_BEHIND = 256  # events kept for a listener that is slow; beyond that it gets a snapshot instead
LOOK_EVERY_S = 1.0  # how soon a listener sees that the server stops
SILENCE_S = 10.0  # a comment is sent after so long without an event: it finds out whether anybody is still there
COMMENT = ": still here\n\n"


class Listener:
    """One reader's events, with a bound on how many may wait for it.

    A reader that falls behind loses them all and goes on from a snapshot, so the engine never waits and nothing grows.
    """

    def __init__(self, recorder: EventRecorder):
        self._recorder, self._loop = recorder, asyncio.get_running_loop()
        self._events: deque[dict] = deque()
        self._is_behind = False
        self._ready = asyncio.Event()

    def open(self) -> None:
        self._recorder.subscribe(self._put)

    def close(self) -> None:
        self._recorder.unsubscribe(self._put)

    async def take(self, timeout_s: float) -> list[dict]:
        """Everything there is, waiting for something at most timeout_s."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except TimeoutError:
            return []
        self._ready.clear()
        with self._recorder.lock:
            if self._is_behind:
                self._events.clear()
                self._is_behind = False
                return [self._recorder.snapshot()]
            events = list(self._events)
            self._events.clear()
            return events

    def _put(self, event: dict) -> None:
        """The recorder calls this, holding its lock."""
        if len(self._events) >= MAX_BEHIND:
            self._is_behind = True
        if self._is_behind:
            self._events.clear()
        else:
            self._events.append(event)
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the event loop is closed: the server has stopped
            pass


class _Events(StreamingResponse):
    """Unsubscribes however the stream ends, a vanished client included."""

    def __init__(self, listener: Listener, serving: Serving):
        self._listener = listener
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(_lines(listener, serving), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope, receive, send) -> None:
        try:
            self._listener.open()
            await super().__call__(scope, receive, send)
        finally:
            self._listener.close()


async def _lines(listener: Listener, serving: Serving) -> AsyncIterator[str]:
    yield COMMENT  # the answer begins at once, even if the engine is in the middle of a long step
    silent_s = 0.0
    while not _is_ending(serving):
        events = await listener.take(LOOK_EVERY_S)
        silent_s = 0.0 if events else silent_s + LOOK_EVERY_S
        if events:
            yield "".join(map(encode, events))
        elif silent_s >= SILENCE_S:
            silent_s = 0.0
            yield COMMENT


def _is_ending(serving: Serving) -> bool:
    """A page that is left open must not keep the server from stopping."""
    return serving.engine.is_draining or serving.engine.error is not None


@router.get("/engine/events")
async def engine_events(serving: Annotated[Serving, Depends(get_serving)]):
    recorder = serving.engine.engine.events
    if recorder.num_sinks >= MAX_LISTENERS:
        raise ApiError(503, f"{recorder.num_sinks} pages watch this engine already, as many as may; close one of them")
    return _Events(Listener(recorder), serving)
