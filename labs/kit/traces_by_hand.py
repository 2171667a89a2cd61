"""Traces for module 1.8's checks, and what each moment of one was spent on, found without cleverness."""

from __future__ import annotations

from hypothesis import strategies as st

from shared.bound import Event, Trace


def trace(seconds: float, *events: tuple, peak: float = 100.0, bandwidth: float = 10.0) -> Trace:
    """By default of a machine of 100 FLOP/s and 10 bytes/s, whose ridge is 10 FLOP/byte."""
    return Trace(seconds, peak, bandwidth, tuple(Event(*event) for event in events))


def by_moments(trace: Trace, near_: float) -> tuple[int, int, int]:
    """Seconds of each kind, a second at a time: whole numbers only. Slow, and needs no stack."""
    own, owners = {}, []
    for second in range(int(trace.seconds)):
        inside = [i for i, e in enumerate(trace.events) if e.start <= second and second + 1 <= e.start + e.duration]
        owners.append(inside[-1] if inside else None)  # events stand in order: the last that covers it is the innermost
        own[owners[-1]] = own.get(owners[-1], 0) + 1
    kinds = dict.fromkeys(("overhead", "memory", "compute"), 0)
    for owner in owners:
        kind = "overhead"
        if owner is not None:
            arithmetic, moving = trace.events[owner].flops / trace.peak_flops, trace.events[owner].bytes / trace.bandwidth
            if max(arithmetic, moving) > 0 and max(arithmetic, moving) >= near_ * own[owner]:
                kind = "compute" if arithmetic >= moving else "memory"
        kinds[kind] += 1
    return tuple(kinds.values())


@st.composite
def nested(draw, start=0, seconds=24, depth=0):
    """Events of whole seconds within [start, start + seconds], outer before inner."""
    found, at = [], start
    while depth < 4 and at < start + seconds and draw(st.booleans()):
        begin = draw(st.integers(at, start + seconds))
        length = draw(st.integers(0, start + seconds - begin))
        work = draw(st.sampled_from([(0, 0), (0, 7), (90, 3), (1000, 100), (1, 200), (2000, 1)]))
        found += [(f"call {depth}", float(begin), float(length), *work)]
        if length:
            found += draw(nested(begin, length, depth + 1))
        at = begin + length
        if not length and draw(st.booleans()):
            break
    return found
