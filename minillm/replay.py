"""The engine's state, rebuilt from its events alone.

What these classes know is what any reader of the events knows: the live page keeps the same state in page/replay.js, and
a test holds the two, and the real cache, against each other. docs/events.md describes the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minillm.errors import MinillmError


class ReplayError(MinillmError):
    """The events do not fit together."""


@dataclass
class HeldRequest:
    """A running request, as far as the events tell."""

    num_prompt_tokens: int
    num_tokens: int  # known: the prompt's and those sampled so far
    num_computed_tokens: int  # of these, keys and values are in the cache
    block_ids: list[int] = field(default_factory=list)


@dataclass
class BlockMap:
    """Who holds which block, and which blocks could be found again by their contents."""

    num_blocks: int
    tables: dict[str, list[int]] = field(default_factory=dict)  # request id -> its blocks, in order
    named: set[int] = field(default_factory=set)

    def references(self) -> list[int]:
        """For each block, how many requests hold it."""
        counts = [0] * self.num_blocks
        for table in self.tables.values():
            for block in table:
                counts[block] += 1
        return counts

    @property
    def num_free(self) -> int:
        return self.references().count(0)

    @property
    def num_shared(self) -> int:
        return sum(count > 1 for count in self.references())

    @property
    def cached(self) -> set[int]:
        """Free blocks that still hold a prefix somebody may ask for again."""
        return self.named.difference(*self.tables.values())


class EngineState:
    """Begins with a snapshot; `apply` takes each event after it."""

    def __init__(self, snapshot: dict):
        self.seq = -1
        self._restart(snapshot)

    def apply(self, event: dict) -> None:
        """Raises ReplayError if an event is missing before this one."""
        if event["type"] == "snapshot":
            self._restart(event)
            return
        if event["seq"] != self.seq + 1:
            raise ReplayError(f"event {event['seq']} follows event {self.seq}: the recording has a gap; record it again")
        self.seq, self.time, self.step = event["seq"], event["time"], event.get("step", self.step)
        self.queue = event["queue"]
        self._apply_blocks(event["kv"])
        for item in event.get("scheduled", ()):
            request = self.requests.get(item["id"])  # None: it ended in this step
            if request is not None:
                request.num_prompt_tokens = item["num_prompt_tokens"]
                request.num_tokens = item["num_tokens"] + item["num_sampled_tokens"]
                request.num_computed_tokens = item["num_computed_tokens"] + item["num_new_tokens"]

    @property
    def blocks(self) -> BlockMap:
        tables = {request_id: list(r.block_ids) for request_id, r in self.requests.items()}
        return BlockMap(self.engine["num_blocks"], tables, set(self.named))

    def snapshot(self) -> dict:
        """One event that stands for all up to here."""
        return {
            "type": "snapshot",
            "seq": self.seq,
            "step": self.step,
            "time": self.time,
            "engine": self.engine,
            "running": [{"id": request_id, **vars(r), "block_ids": list(r.block_ids)} for request_id, r in self.requests.items()],
            "queue": self.queue,
            "named": sorted(self.named),
        }

    def _restart(self, snapshot: dict) -> None:
        self.seq, self.step, self.time = snapshot["seq"], snapshot["step"], snapshot["time"]
        self.engine, self.queue = snapshot["engine"], snapshot["queue"]
        self.named: set[int] = set(snapshot["named"])
        self.requests: dict[str, HeldRequest] = {}
        for item in snapshot["running"]:
            fields = {name: value for name, value in item.items() if name != "id"}
            self.requests[item["id"]] = HeldRequest(**fields | {"block_ids": list(item["block_ids"])})

    def _apply_blocks(self, kv: dict) -> None:
        for request_id in kv["released"]:
            del self.requests[request_id]
        for request_id, change in kv["tables"].items():
            request = self.requests.setdefault(request_id, HeldRequest(0, 0, 0))
            request.block_ids[change["from"] :] = change["ids"]
        self.named.difference_update(kv["forgotten"])
        self.named.update(kv["named"])


def replay(events: Iterable[dict]) -> BlockMap:
    """The block map after `events`, the first of which is a snapshot. Raises ReplayError where they do not fit together."""
    state = None
    for event in events:
        if state is not None:
            state.apply(event)
        elif event["type"] == "snapshot":
            state = EngineState(event)
        else:
            raise ReplayError("the events do not begin with a snapshot; record from the start, or keep the first line")
    if state is None:
        raise ReplayError("there are no events to replay")
    return state.blocks
