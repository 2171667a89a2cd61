"""The engine behind an event loop: one thread steps it, one queue leads in, one stream leads out of each request.

Only the engine thread ever touches the engine. The event loop talks to it by messages, taken in between two steps, so an
abort can never tear a batch apart; and a reader that is slow only lets its own queue grow, never the step wait.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from minillm.engine import Engine
from minillm.errors import EngineDeadError, RequestError
from minillm.request import Request, RequestOutput, SamplingParams

log = logging.getLogger("minillm")


class Stream:
    """The outputs of one submitted prompt, deltas of its n samples interleaved (`output.index` says which).

    `async for output in stream` ends after every sample has finished. `aclose()`, or leaving an `async with` block, frees
    what is still running.
    """

    def __init__(self, requests: list[Request], send: Callable[[Stream | Abort], None]):
        self.requests = requests
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[RequestOutput | BaseException] = asyncio.Queue()
        self._open = {r.request_id for r in requests}

    @property
    def num_prompt_tokens(self) -> int:
        return self.requests[0].num_prompt_tokens

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> RequestOutput:
        if not self._open:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, BaseException):
            self._open.clear()
            raise item
        if item.finished:
            self._open.discard(item.request_id)
        return item

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._open:
            self._send(Abort(self, list(self._open)))
            self._open.clear()

    def deliver(self, item: RequestOutput | BaseException) -> None:
        """Called by the engine thread."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the event loop is closed: nobody is left to read
            pass


@dataclass(frozen=True)
class Abort:
    """A message to the engine thread: nobody reads these requests of this stream any more."""

    stream: Stream
    request_ids: list[str]


class AsyncEngine:
    def __init__(self, engine: Engine):
        self.engine = engine
        self.error: BaseException | None = None  # why the engine's thread died
        self._inbox: queue.SimpleQueue[Stream | Abort | None] = queue.SimpleQueue()
        self._streams: dict[str, Stream] = {}  # engine thread only
        self._lock = threading.Lock()  # guards "dead or stopped" against a submit at the same moment
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="minillm-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, prompt_token_ids: list[int], params: SamplingParams, request_id: str | None = None) -> Stream:
        """Queue a prompt and return its stream at once. Call from a running event loop.

        Raises RequestError for what can never be served, EngineDeadError after the engine has stopped."""
        stream = Stream(self.engine.make_requests(prompt_token_ids, params, request_id), self._inbox.put)
        with self._lock:
            if self._closed:
                raise self._dead()
            self._inbox.put(stream)
        return stream

    def stats(self) -> dict[str, float]:
        """A look from outside at the engine's queues; may be a step old."""
        scheduler = self.engine.scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "kv_cache_usage_perc": self.engine.runner.kv.usage,
        }

    def shutdown(self, timeout_s: float = 10.0) -> None:
        """Stop the thread after its current step. Streams still open end with EngineDeadError."""
        if self._thread.is_alive():
            self._inbox.put(None)
            self._thread.join(timeout_s)

    async def stop(self) -> None:
        await asyncio.to_thread(self.shutdown)

    def _run(self) -> None:
        try:
            while self._take_messages():
                for output in self.engine.step_text():
                    self._streams[output.request_id].deliver(output)
                    if output.finished:
                        del self._streams[output.request_id]
        except BaseException as e:
            self.error = e
            log.exception("the engine has stopped after an internal error")
        finally:
            self._close()

    def _take_messages(self) -> bool:
        """Take in what has been asked; wait for something if there is nothing to compute. False: stop."""
        while True:
            try:
                message = self._inbox.get(block=not self.engine.has_unfinished)
            except queue.Empty:
                return True
            if message is None:
                return False
            if isinstance(message, Stream):
                self._admit(message)
            else:
                self._drop(message.stream, message.request_ids)

    def _admit(self, stream: Stream) -> None:
        try:
            for request in stream.requests:
                self.engine.add(request)
                self._streams[request.request_id] = stream
        except RequestError as e:  # an id that is already being served
            self._drop(stream, [r.request_id for r in stream.requests])
            stream.deliver(e)

    def _drop(self, stream: Stream, request_ids: list[str]) -> None:
        """Abort those of the ids that belong to this stream: an id refused as taken is somebody else's request."""
        mine = [request_id for request_id in request_ids if self._streams.get(request_id) is stream]
        self.engine.abort(mine)
        for request_id in mine:
            del self._streams[request_id]

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        left = set(self._streams.values())
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Stream):
                left.add(message)
        for stream in left:
            stream.deliver(self._dead())

    def _dead(self) -> EngineDeadError:
        cause = f": {type(self.error).__name__}: {self.error}" if self.error else ""
        return EngineDeadError(f"the engine has stopped{cause}; restart the server")
