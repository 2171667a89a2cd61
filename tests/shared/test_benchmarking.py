"""What the exercise's checks do not reach: the real clock, and the words of the refusal."""

import time

import pytest

from shared.benchmarking import benchmark
from shared.timing import TooFastError


def test_a_sleep_is_not_shorter_than_asked_for():
    timing = benchmark(lambda: time.sleep(0.002), repeats=3, warmup=0)
    assert 0.002 <= timing.low <= timing.median <= timing.high
    assert timing.floor < 0.002 and len(timing.samples) == 3


def test_nothing_is_refused_with_the_way_out():
    with pytest.raises(TooFastError, match=r"raise number \(now 1\)") as caught:
        benchmark(lambda: None)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_many_calls_do_not_make_an_empty_call_measurable():
    """number spreads the clock's share over the calls; what calling takes stays."""
    with pytest.raises(TooFastError):
        benchmark(lambda: None, number=10_000, repeats=3)


def test_arguments_reach_the_call():
    seen = []
    benchmark(lambda a, b: (seen.append((a, b)), time.sleep(0.001)), [(1, 2), (3, 4)], warmup=1, repeats=2)
    assert seen == [(1, 2), (3, 4), (1, 2)]
