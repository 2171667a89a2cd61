"""Traces: saved and loaded, several made into one, and what the exercise's checks do not reach."""

import random
from dataclasses import replace

import pytest

from shared.bound import Bound, Event, Trace, classify_bound, load_trace, self_seconds, undisturbed

STEP = Trace(
    10.0,
    100.0,
    10.0,
    (Event("linear", 1.0, 6.0), Event("t", 1.0, 0.5), Event("mm", 2.0, 4.0, 400, 8), Event("mul", 8.0, 1.0, 0, 10)),
)


def test_own_times_and_bound():
    assert self_seconds(STEP.events) == pytest.approx([1.5, 0.5, 4.0, 1.0])
    assert classify_bound(STEP) == Bound("overhead", pytest.approx(5.0), pytest.approx(1.0), pytest.approx(4.0))


def test_saved_and_loaded(tmp_path):
    told = replace(STEP, about="a step")
    told.save(tmp_path / "trace.json")
    assert load_trace(tmp_path / "trace.json") == told


def test_times_are_kept_to_ten_nanoseconds(tmp_path):
    Trace(1.0, 1.0, 1.0, (Event("a", 0.123456784, 0.1),)).save(tmp_path / "trace.json")
    assert load_trace(tmp_path / "trace.json").events[0].start == pytest.approx(0.12345678, abs=1e-12)


def stretched(trace, at, by):
    """The trace with a pause of `by` seconds at this moment: all that comes later moves, what runs then takes longer."""
    moved = lambda when: when + by if when > at else when  # noqa: E731
    events = tuple(e._replace(start=moved(e.start), duration=moved(e.start + e.duration) - moved(e.start)) for e in trace.events)
    return replace(trace, seconds=moved(trace.seconds), events=events)


def test_pauses_at_different_moments_are_removed():
    rng = random.Random(0)
    traces = [stretched(STEP, at, rng.uniform(0.1, 5)) for at in (0.5, 1.2, 3.0, 6.5, 8.2, 9.5)]
    whole = undisturbed(traces)
    assert whole.seconds == pytest.approx(STEP.seconds)
    for got, expected in zip(whole.events, STEP.events, strict=True):
        assert got[:1] + got[3:] == expected[:1] + expected[3:]
        assert got[1:3] == pytest.approx(expected[1:3])


def test_one_trace_stays_as_it_is():
    assert undisturbed([STEP]).seconds == pytest.approx(10.0)
    assert [e[1:3] for e in undisturbed([STEP]).events] == [pytest.approx(e[1:3]) for e in STEP.events]


def test_other_calls_are_refused():
    fewer, renamed = replace(STEP, events=STEP.events[:-1]), replace(STEP, events=(*STEP.events[:-1], Event("add", 8.0, 1.0)))
    moved_out = replace(STEP, events=(Event("linear", 1.0, 0.9), *STEP.events[1:]))
    for other in (fewer, renamed, moved_out):
        with pytest.raises(ValueError, match="the same step"):
            undisturbed([STEP, other])
    with pytest.raises(ValueError, match="at least one"):
        undisturbed([])
