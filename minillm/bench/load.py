"""Sending requests on time: the open loop, the closed loop, and a check that this client was not the slow part."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from minillm.bench.metrics import Latencies, latency_metrics, summary
from minillm.bench.stream import Answer, BadAnswer

LAG_PERIOD_S = 0.01
LAG_WARN_S = 0.01
CPU_WARN = 0.9


@dataclass
class Record:
    """One request's fate. Times: seconds since the run began."""

    scheduled: float  # when it was due
    sent: float  # when it went out: later than scheduled if it had to queue in this client
    answer: Answer | None = None
    failure: str | None = None

    def sojourn(self) -> Latencies:
        """Latencies as a user feels them, from the scheduled arrival."""
        return latency_metrics(self.scheduled, self.answer.chunk_times, self.answer.output_tokens)

    def service(self) -> Latencies:
        """Latencies from the moment of sending: what the server alone took."""
        return latency_metrics(self.sent, self.answer.chunk_times, self.answer.output_tokens)

    @property
    def ended(self) -> float:
        return self.answer.chunk_times[-1]


Send = Callable[[bytes], Awaitable]  # a body to an Exchange


async def open_loop(
    send: Send,
    bodies: Sequence[bytes],
    arrivals: Sequence[float],
    max_concurrency: int | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> list[Record]:
    """Request i is due at arrivals[i] seconds whatever became of those before it.

    With max_concurrency it may have to wait in the client; it was due all the same, and its sojourn counts the wait.
    """
    slots = asyncio.Semaphore(max_concurrency or len(bodies))
    began = time.perf_counter()

    async def one(body: bytes, due: float) -> Record:
        async with slots:  # first come, first served
            exchange = await send(body)
        return _record(exchange, due, began, on_done)

    tasks = []
    async with asyncio.TaskGroup() as group:
        for body, due in zip(bodies, arrivals, strict=True):
            # also when it is overdue: a loop that never yields would send nothing while it catches up
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(group.create_task(one(body, due)))
    return [task.result() for task in tasks]


async def closed_loop(
    send: Send, bodies: Sequence[bytes], max_concurrency: int, on_done: Callable[[], None] = lambda: None
) -> list[Record]:
    """max_concurrency users, each sending its next request the moment its last one is answered.

    A request is due when its user is free, so a slow server slows its own load down: right for throughput at a given
    concurrency, blind to what a stall does to requests that would have come meanwhile.
    """
    queue, records = deque(enumerate(bodies)), {}
    began = time.perf_counter()

    async def user() -> None:
        while queue:
            i, body = queue.popleft()
            exchange = await send(body)
            records[i] = _record(exchange, exchange.sent - began, began, on_done)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(max_concurrency, len(bodies))):
            group.create_task(user())
    return [records[i] for i in range(len(bodies))]


def _record(exchange, due: float, began: float, on_done: Callable[[], None]) -> Record:
    record = Record(due, exchange.sent - began)
    try:
        record.answer = exchange.answer()
        record.answer.chunk_times = [at - began for at in record.answer.chunk_times]
    except BadAnswer as e:
        record.failure = str(e)
    on_done()
    return record


class LoopLag:
    """How late this client's event loop wakes up, and how much of a core it uses: where either is large, the times
    measured are partly the client's own.

        async with LoopLag() as lag: ...
        lag.report()
    """

    FIELDS = ("client_lag_p99_ms", "client_lag_max_ms", "client_cpu_share")

    def __init__(self):
        self._lags: list[float] = []

    async def __aenter__(self) -> LoopLag:
        self._began, self._cpu = time.perf_counter(), time.thread_time()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_) -> None:
        self._task.cancel()
        self._elapsed, self._cpu = time.perf_counter() - self._began, time.thread_time() - self._cpu

    async def _watch(self) -> None:
        while True:
            due = time.perf_counter() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._lags.append(max(0.0, time.perf_counter() - due))

    def report(self) -> dict[str, float]:
        """FIELDS: the event loop's lag, and its thread's share of one core."""
        lags = summary(self._lags or [0.0], (99, 100))
        values = (lags["p99"] * 1e3, lags["p100"] * 1e3, self._cpu / self._elapsed)
        return dict(zip(self.FIELDS, values, strict=True))


def client_warning(lag: dict[str, float]) -> str | None:
    """One line if the client may have been the bottleneck, else None."""
    if lag["client_lag_p99_ms"] < LAG_WARN_S * 1e3 and lag["client_cpu_share"] < CPU_WARN:
        return None
    return (
        f"this client was late itself (event loop {lag['client_lag_p99_ms']:.0f} ms at p99; {lag['client_cpu_share']:.0%} "
        "of a core used): part of each latency is its own. Run it on a machine with time to spare, or with a lower load"
    )
