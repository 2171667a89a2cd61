"""What did a step wait for? Each moment of a trace goes to overhead, memory or compute; the largest sum is the bound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from shared.units import positive


class Event(NamedTuple):
    """A call within a trace. start, duration: seconds. flops, bytes: of the work it does itself, not of calls within it."""

    name: str
    start: float
    duration: float
    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Trace:
    """One step on one thread (or one GPU stream), and the ceilings of the machine it ran on.

    seconds: length of the step, which begins at 0. peak_flops: FLOP/s; bandwidth: bytes/s.
    events: by their start, an outer call before those within it. They nest as calls do: of two that overlap, one contains the
        other. All lie within the step.
    """

    seconds: float
    peak_flops: float
    bandwidth: float
    events: tuple[Event, ...]
    about: str = ""

    def save(self, path: Path) -> None:
        """Write JSON: names once, times in units of 10 ns."""
        names = sorted({e.name for e in self.events})
        rows = [[names.index(e.name), round(e.start * 1e8), round(e.duration * 1e8), e.flops, e.bytes] for e in self.events]
        head = {"about": self.about, "seconds": self.seconds, "peak_flops": self.peak_flops, "bandwidth": self.bandwidth}
        columns = [",".join(f"{value:.0f}" for value in column) for column in zip(*rows, strict=True)]
        path.write_text(json.dumps(head | {"names": names, "events": columns}, indent=1) + "\n", "utf-8")


class Bound(NamedTuple):
    """bound: "overhead", "memory" or "compute", whichever has most of the step; and the seconds of each."""

    bound: str
    overhead: float
    memory: float
    compute: float


def load_trace(path: Path) -> Trace:
    """What Trace.save wrote."""
    raw = json.loads(path.read_text("utf-8"))
    columns = [[float(value) for value in column.split(",")] for column in raw["events"]]
    events = tuple(Event(raw["names"][int(n)], a / 1e8, d / 1e8, f, b) for n, a, d, f, b in zip(*columns, strict=True))
    return Trace(raw["seconds"], raw["peak_flops"], raw["bandwidth"], events, raw["about"])


def self_seconds(events: Sequence[Event]) -> list[float]:
    """Of each event, its duration without the calls within it. events: nested, outer before inner, as in a Trace."""
    own = [event.duration for event in events]
    running: list[int] = []  # events that have begun and not ended, outermost first
    for i, event in enumerate(events):
        while running and not _within(event, events[running[-1]]):
            running.pop()
        if running:
            own[running[-1]] -= event.duration
        running.append(i)
    return own


def _within(inner: Event, outer: Event) -> bool:
    # The middle and not the end: clocks round, and a call may seem to end a hair after its caller.
    return inner.start + inner.duration / 2 < outer.start + outer.duration


def classify_bound(trace: Trace, near: float = 0.1) -> Bound:
    """Whether a step waited for memory, for arithmetic, or for neither, moment by moment.

    A moment belongs to the innermost event that runs then. So an event has its duration, less that of the events directly
    within it: its own time. What it can take at best is its roof: the longer of flops / peak_flops and bytes / bandwidth.

    - An event whose roof is below near * its own time is not held up by either: its own time is overhead. So is that of an event
      whose roof is 0. (The call costs more than the work, or it has no work of its own: a view, or a function that only calls
      others.)
    - Otherwise its own time goes to compute, if the arithmetic takes at least as long as the bytes do, or else to memory.
    - What no event covers is overhead: the interpreter between two calls; on a GPU's stream, waiting for the host.

    Returns Bound(bound, overhead, memory, compute): seconds that add up to trace.seconds, and which of them is largest; if two
    are, the one that comes first here. A step without events is overhead.
    Raises ValueError if the trace's seconds, peak_flops or bandwidth is not above zero, or near is not above 0 and at most 1.
    Source: roofs as Williams, Waterman, Patterson 2009; overhead as a third regime as He, "Making Deep Learning Go Brrrr", 2022.
    """
    positive(seconds=trace.seconds, peak_flops=trace.peak_flops, bandwidth=trace.bandwidth)
    if not 0 < near <= 1:
        raise ValueError(f"near is a share of an event's own time, above 0 and at most 1; got {near}")
    spent = {"overhead": 0.0, "memory": 0.0, "compute": 0.0}
    own = self_seconds(trace.events)
    for event, seconds in zip(trace.events, own, strict=True):
        computing, moving = event.flops / trace.peak_flops, event.bytes / trace.bandwidth
        roof = max(computing, moving)
        kind = "overhead" if roof < near * seconds or roof == 0 else "compute" if computing >= moving else "memory"
        spent[kind] += seconds
    spent["overhead"] += trace.seconds - sum(own)
    return Bound(max(spent, key=spent.__getitem__), **spent)


def undisturbed(traces: Sequence[Trace]) -> Trace:
    """Several traces of one step as if nothing else had run: between any two moments where a call begins or ends, the least time.

    Other processes stretch a wall-clock trace, each time somewhere else. The result is shorter than any of the traces.
    Raises ValueError if there is none, or if they do not consist of the same calls, nested in the same way.
    """
    if not traces:
        raise ValueError("undisturbed needs at least one trace")
    walks = [_walk(trace) for trace in traces]
    if any(order != walks[0][0] for order, _ in walks) or len({tuple(e.name for e in t.events) for t in traces}) > 1:
        raise ValueError("the traces differ in their calls: record the same step, after a warm-up")
    first, now = traces[0], 0.0
    times: dict[int, list[float]] = {}
    for place, gaps in zip(walks[0][0], zip(*(gaps for _, gaps in walks), strict=True), strict=True):
        now += min(gaps)
        times.setdefault(place, []).append(now)
    events = tuple(e._replace(start=times[i][0], duration=times[i][1] - times[i][0]) for i, e in enumerate(first.events))
    return replace(first, seconds=now, events=events)


def _walk(trace: Trace) -> tuple[list[int], list[float]]:
    """The events' begins and ends in order (each as its event's index, -1: the step's end), and the time since the one before."""
    order: list[int] = []
    at: list[float] = [0.0]
    running: list[int] = []

    def close() -> None:
        index = running.pop()
        order.append(index)
        at.append(max(at[-1], trace.events[index].start + trace.events[index].duration))

    for i, event in enumerate(trace.events):
        while running and not _within(event, trace.events[running[-1]]):
            close()
        order.append(i)
        at.append(max(at[-1], event.start))
        running.append(i)
    while running:
        close()
    order.append(-1)
    at.append(max(at[-1], trace.seconds))
    return order, [after - before for before, after in pairwise(at)]
