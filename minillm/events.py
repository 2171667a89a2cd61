"""What the engine does, as one JSON-ready event a step. The live page, recordings and replays know the engine only from these.

Three types. `snapshot`: everything, for a reader who joins. `step`: what one step computed, and what changed in the cache
since the event before. `end`: a request ended between two steps, because its stop string appeared or its client left.
Fields, units and an example: docs/events.md. State from events: minillm.replay. Events to a file: minillm.recording.

While nobody listens, the engine calls nothing here and the block pool notes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from minillm.event_items import finished_item, queue_head, scheduled_items
from minillm.replay import EngineState
from minillm.request import Request, StepOutput
from minillm.scheduler import SchedulePlan

if TYPE_CHECKING:
    from minillm.engine import Engine

Sink = Callable[[dict], None]


class EventRecorder:
    """One an engine: `engine.events`. Sinks are called on the engine's thread and must neither wait nor raise.

    `subscribe`, `unsubscribe` and `snapshot` may be called from any thread.
    """

    def __init__(self, engine: Engine):
        self._engine = engine
        self._started = time.monotonic()
        self.lock = threading.Lock()  # guards the sinks and the state; held while sinks are called
        self._sinks: tuple[Sink, ...] = ()
        self._forget_state()

    # --- listening ---------------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether anybody listens."""
        return bool(self._sinks)

    @property
    def num_sinks(self) -> int:
        return len(self._sinks)

    def subscribe(self, sink: Sink) -> None:
        """Call sink with a snapshot, at once if the engine is idle and else after its current step, then with each event."""
        with self.lock:
            if not self._sinks:
                self._watch()
            self._sinks += (sink,)
            if self._state is not None:
                sink(self._state.snapshot())

    def unsubscribe(self, sink: Sink) -> None:
        """Idempotent."""
        with self.lock:
            self._sinks = tuple(s for s in self._sinks if s != sink)  # not `is`: a bound method is made anew each time
            if not self._sinks:
                self._unwatch()

    def snapshot(self) -> dict | None:
        """For a listener that has lost events, under `lock`. None: the first snapshot is still to come."""
        return self._state.snapshot() if self._state is not None else None

    def _watch(self) -> None:
        pool = self._pool
        if pool is not None:
            pool.renamed = set()
        if not self._engine.has_unfinished:  # an idle engine calls nobody, so look from here; checked after the first step
            self._state, self._is_checked = EngineState(self._look()), False

    def _unwatch(self) -> None:
        if self._pool is not None:
            self._pool.renamed = None
        self._forget_state()

    def _forget_state(self) -> None:
        self._state: EngineState | None = None  # what the sinks have been told
        self._is_checked = True
        self._preemptions: dict[str, int] = {}  # running request -> its num_preemptions when its table was told last
        self._told_finished: set[str] = set()
        self._seq = -1

    # --- the engine's thread -----------------------------------------------------------------------------------------------

    def after_step(self, plan: SchedulePlan, outputs: list[StepOutput], seconds: float) -> None:
        """A step is booked. seconds: from before it was scheduled until now."""
        with self.lock:
            if not self._sinks:
                return  # the last one left during this step
            finished = [o.request for o in outputs if o.finish_reason is not None]
            self._told_finished = {r.request_id for r in finished}
            step = {
                "step": (self._state.step if self._state is not None else 0) + 1,
                "seconds": round(seconds, 6),
                "budget": self._engine.config.max_num_batched_tokens,
                "scheduled": scheduled_items(plan, outputs, self._preemptions),
                "preempted": [r.request_id for r in plan.preempted],
            }
            self._publish("step", step, finished)

    def after_end(self, request: Request) -> None:
        """The engine has forgotten a request, however it ended."""
        with self.lock:
            if self._sinks and request.request_id not in self._told_finished:
                self._publish("end", {}, [request])

    def _publish(self, kind: str, fields: dict, finished: list[Request]) -> None:
        if self._state is None:  # the first look at a busy engine
            self._restart()
            return
        self._seq += 1
        event = {
            "type": kind,
            "seq": self._seq,
            "time": self._now(),
            **fields,
            "finished": [finished_item(r) for r in finished],
            "queue": queue_head(self._engine.scheduler.waiting),
            "kv": self._kv_changes(),
        }
        self._state.apply(event)
        self._send(event)
        if not self._is_checked:
            self._is_checked = True
            if self._state.snapshot() != self._look():  # a request began while another thread looked at the idle engine
                self._restart()

    def _restart(self) -> None:
        self._seq += 1
        self._state = EngineState(self._look())
        self._preemptions = {r.request_id: r.num_preemptions for r in self._engine.scheduler.running}
        self._renamed()
        self._send(self._state.snapshot())

    def _send(self, event: dict) -> None:
        for sink in self._sinks:
            sink(event)

    # --- what an event says ------------------------------------------------------------------------------------------------

    def _kv_changes(self) -> dict:
        scheduler = self._engine.scheduler
        running = {r.request_id: r for r in scheduler.running}
        tables = {}
        for request_id, request in running.items():
            is_known = self._preemptions.get(request_id) == request.num_preemptions
            start = len(self._state.requests[request_id].block_ids) if is_known else 0
            if not is_known or len(request.block_ids) > start:
                tables[request_id] = {"from": start, "ids": request.block_ids[start:]}
        released = [request_id for request_id in self._state.requests if request_id not in running]
        self._preemptions = {request_id: r.num_preemptions for request_id, r in running.items()}
        named, forgotten = self._renamed()
        return {
            "num_blocks": scheduler.kv.num_blocks,
            "num_free": scheduler.kv.num_free,
            "usage": round(scheduler.kv.usage, 4),
            "tables": tables,
            "released": released,
            "named": named,
            "forgotten": forgotten,
        }

    def _renamed(self) -> tuple[list[int], list[int]]:
        """Blocks that can be found now and could not at the last event, and the other way round."""
        if self._pool is None:
            return [], []
        changed, self._pool.renamed = sorted(self._pool.renamed), set()
        now = [block for block in changed if self._pool.is_named(block)]
        return now, [block for block in changed if not self._pool.is_named(block)]

    def _look(self) -> dict:
        """A snapshot taken from the engine itself."""
        engine, pool = self._engine, self._pool
        kv, config = engine.scheduler.kv, engine.config
        return {
            "type": "snapshot",
            "seq": self._seq,
            "step": self._state.step if self._state is not None else 0,
            "time": self._state.time if self._state is not None else self._now(),
            "engine": {
                "model": engine.model_name,
                "num_blocks": kv.num_blocks,
                "block_size": kv.block_size,
                "max_model_len": engine.max_model_len,
                "max_num_seqs": config.max_num_seqs,
                "max_num_batched_tokens": config.max_num_batched_tokens,
            },
            "running": [
                {
                    "id": r.request_id,
                    "num_prompt_tokens": r.num_prompt_tokens,
                    "num_tokens": r.num_tokens,
                    "num_computed_tokens": r.num_computed_tokens,
                    "block_ids": list(r.block_ids),
                }
                for r in list(engine.scheduler.running)
            ],
            "queue": self._state.queue if self._state is not None else queue_head(self._engine.scheduler.waiting),
            "named": [block for block in range(kv.num_blocks) if pool.is_named(block)] if pool is not None else [],
        }

    @property
    def _pool(self):
        """The block pool, for caches that have one: only there can a free block be found again."""
        return getattr(self._engine.scheduler.kv, "pool", None)

    def _now(self) -> float:
        return round(time.monotonic() - self._started, 6)
