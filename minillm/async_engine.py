"""The engine behind an event loop: one thread steps it, one queue leads in, one stream leads out of each request.

Only the engine thread ever touches the engine. The event loop talks to it by messages, taken in between two steps, so an
abort can never tear a batch apart; and a reader that is slow only lets its own queue grow, never the step wait.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from minillm.engine import Engine
from minillm.errors import EngineDeadError, MinillmError, RequestError
from minillm.request import Request, RequestOutput, SamplingParams
from minillm.server.limits import MAX_QUEUE_SIZE

log = logging.getLogger("minillm")


class QueueFullError(MinillmError):
    """As many requests wait as may wait; try again later (HTTP 429)."""


class ShuttingDownError(MinillmError):
    """Accepted requests are still being finished, but no new one is taken (HTTP 503)."""


class Observer(Protocol):
    """Told what happens to requests, by the engine's thread and between two steps: be quick, and raise nothing."""

    def on_admit(self, requests: list[Request]) -> None:
        """The n samples of one prompt have entered the engine's queue."""
        ...

    def on_step(self, outputs: list[tuple[Request, RequestOutput]]) -> None:
        """A step has ended: the requests that got tokens in it, finished ones with all their times set."""
        ...

    def on_abort(self, request: Request) -> None:
        """Its client went away before it had finished."""
        ...


class Stream:
    """The outputs of one submitted prompt, deltas of its n samples interleaved (`output.index` says which).

    `async for output in stream` ends after every sample has finished. `aclose()`, or leaving an `async with` block, frees
    what is still running.
    """

    def __init__(self, requests: list[Request], send: Callable[[Stream | Abort], None]):
        self.requests = requests
        self.loop = asyncio.get_running_loop()
        self._send = send
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

    def put(self, item: RequestOutput | BaseException) -> None:
        self._queue.put_nowait(item)


@dataclass(frozen=True)
class Abort:
    """A message to the engine thread: nobody reads these requests of this stream any more."""

    stream: Stream
    request_ids: list[str]


class AsyncEngine:
    """max_queue_size: requests that may wait beside the max_num_seqs that may run; above that `submit` refuses.

    A waiting request costs little, but its client waits too: a full queue says "come back later" while later is near.
    """

    def __init__(self, engine: Engine, max_queue_size: int = MAX_QUEUE_SIZE):
        self.engine = engine
        self.error: BaseException | None = None  # why the engine's thread died
        self.observers: list[Observer] = []  # complete before start()
        self._max_unfinished = engine.config.max_num_seqs + max_queue_size
        self._inbox: queue.SimpleQueue[Stream | Abort | None] = queue.SimpleQueue()
        self._streams: dict[str, Stream] = {}  # engine thread only
        self._lock = threading.Lock()  # guards the three below: both threads change them
        self._num_unfinished = 0  # requests accepted and not yet ended, those in the inbox included
        self._draining = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="minillm-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Stream:
        """Queue a prompt and return its stream at once. Call from a running event loop.

        Raises RequestError for what can never be served, QueueFullError and ShuttingDownError for what cannot be now, and
        EngineDeadError after the engine has stopped."""
        return self._enqueue([self.engine.make_requests(prompt_token_ids, params, request_id, priority, cache_salt)])[0]

    def submit_all(
        self, prompts: list[list[int]], params: SamplingParams, priority: int = 0, cache_salt: str | None = None
    ) -> list[Stream]:
        """Queue several prompts, all or none of them; otherwise as `submit`."""
        return self._enqueue([self.engine.make_requests(p, params, None, priority, cache_salt) for p in prompts])

    def _enqueue(self, groups: list[list[Request]]) -> list[Stream]:
        streams = [Stream(requests, self._inbox.put) for requests in groups]
        count = sum(map(len, groups))
        if count > self._max_unfinished:
            raise RequestError(
                f"{count} answers in one request are more than this server takes at once ({self._max_unfinished}); "
                "ask for fewer, or raise --max-queue-size",
                param="n",
            )
        with self._lock:
            if self._closed:
                raise self._dead()
            if self._draining:
                raise ShuttingDownError("the server is shutting down and takes no new requests; try another or try again later")
            if self._num_unfinished + count > self._max_unfinished:
                raise QueueFullError(f"the queue is full ({self._num_unfinished} requests run or wait); try again later")
            self._num_unfinished += count
            for stream in streams:
                self._inbox.put(stream)
        return streams

    @property
    def num_unfinished(self) -> int:
        """Requests accepted and not yet ended."""
        return self._num_unfinished

    @property
    def is_draining(self) -> bool:
        return self._draining

    def stats(self) -> dict[str, float]:
        """A look from outside at the engine's load; may be a step old."""
        running = len(self.engine.scheduler.running)
        return {
            "running": running,
            "waiting": max(0, self._num_unfinished - running),
            "kv_cache_usage_perc": self.engine.scheduler.kv.usage,
        }

    def drain(self) -> None:
        """Take no new request from now on; go on with those accepted."""
        with self._lock:
            self._draining = True

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
                self._hand_out(self.engine.step_text())
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
        except RequestError as e:  # an id that is already being served, or more tokens than the cache can ever hold
            mine = [r.request_id for r in stream.requests if self._streams.get(r.request_id) is stream]
            self._forget(mine)
            self._end(len(stream.requests) - len(mine))
            _deliver(stream.loop, [(stream, e)])
        else:
            for observer in self.observers:
                observer.on_admit(stream.requests)

    def _hand_out(self, outputs: list[RequestOutput]) -> None:
        by_loop: defaultdict[asyncio.AbstractEventLoop, list] = defaultdict(list)
        seen, ended = [], 0
        for output in outputs:
            stream = self._streams[output.request_id]
            by_loop[stream.loop].append((stream, output))
            seen.append((stream.requests[output.index], output))
            if output.finished:
                del self._streams[output.request_id]
                ended += 1
        for observer in self.observers:
            observer.on_step(seen)
        if ended:
            self._end(ended)
        for loop, items in by_loop.items():
            _deliver(loop, items)

    def _drop(self, stream: Stream, request_ids: list[str]) -> None:
        """Abort those of the ids that still belong to this stream: it may have finished, or been refused as taken."""
        mine = [request_id for request_id in request_ids if self._streams.get(request_id) is stream]
        self._forget(mine)
        for request in stream.requests:
            if request.request_id in mine:
                for observer in self.observers:
                    observer.on_abort(request)

    def _forget(self, request_ids: list[str]) -> None:
        self.engine.abort(request_ids)
        for request_id in request_ids:
            del self._streams[request_id]
        self._end(len(request_ids))

    def _end(self, count: int) -> None:
        with self._lock:
            self._num_unfinished -= count

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._num_unfinished = 0
        left = set(self._streams.values())
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Stream):
                left.add(message)
        for stream in left:
            _deliver(stream.loop, [(stream, self._dead())])

    def _dead(self) -> EngineDeadError:
        cause = f": {type(self.error).__name__}: {self.error}" if self.error else ""
        return EngineDeadError(f"the engine has stopped{cause}; restart the server")


def _deliver(loop: asyncio.AbstractEventLoop, items: list[tuple[Stream, RequestOutput | BaseException]]) -> None:
    """Hand items to their streams' readers. One wake-up of the loop a step, not one a request."""

    def put_all() -> None:
        for stream, item in items:
            stream.put(item)

    try:
        loop.call_soon_threadsafe(put_all)
    except RuntimeError:  # the event loop is closed: nobody is left to read
        pass
