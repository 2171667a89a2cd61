"""1.8 Profiling: a stopwatch that refuses to lie, and a reader of traces that says what a step waited for.

Write the two functions below, then run `labs check 1.8` (or `pytest labs/c1/test_m08_profiling.py`). Stuck? `labs hint 1.8`
shows one more each time. Plain Python: no model, no GPU, no torch. The checks bring a clock of their own, so they take no time.

Yours to use, named tuples, all times in seconds:

    Timing(median, low, high, floor, samples)
    Event(name, start, duration, flops, bytes)      flops and bytes: of the work the call does itself, not of calls within it
    Bound(bound, overhead, memory, compute)

and Trace, one step on one thread or one GPU stream:

    trace.seconds                           length of the step, which begins at 0
    trace.peak_flops, trace.bandwidth       ceilings of the machine, FLOP/s and bytes/s
    trace.events                            Events by their start, an outer call before those within it

Events nest as calls do: of two that overlap, one contains the other. An event may begin or end with the one that contains it,
have exactly its times, or have a duration of 0. All lie within the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from labs.kit import exercise
from shared.bound import Bound, Event, Trace  # noqa: F401  yours to use
from shared.timing import Timing, TooFastError, nothing_to_wait_for  # noqa: F401  yours to use


@exercise(reference="shared.benchmarking:benchmark")
def benchmark(
    fn: Callable[..., Any],
    inputs: Sequence[tuple] = ((),),
    *,
    warmup: int = 3,
    repeats: int = 15,
    number: int = 1,
    synchronize: Callable[[], Any] = nothing_to_wait_for,
    clock: Callable[[], float] = time.perf_counter,
    resolution: float = 0.0,
    times_floor: float = 10.0,
) -> Timing:
    """Seconds that one call of fn takes, on arguments that change from call to call.

    inputs: tuples of positional arguments, taken in turn and from the front again, warm-up included: with two of them and one
        warm-up call, the first timed call gets the second. More of them than a cache holds, or they are found in it.
    warmup: calls before anything is timed. repeats: samples. number: calls of fn in a sample, which is divided by it.
    synchronize: returns when all work that was started is done. It is called before each sample's first look at the clock, and
        before its second one; not between the calls of a sample.
    clock: seconds, as a float. resolution: the smallest step it makes, where that is longer than reading it takes.
    times_floor: a median of no more than so many floors is refused.

    The floor is what the measuring takes: the median of as many samples of a function that does nothing, taken in the same way,
    with the same arguments and as many calls; and at least `resolution` a sample. It is, like the samples, seconds a call, and
    is taken before fn runs for the first time.

    Returns Timing(median, low, high, floor, samples): the median of the samples, the smallest, the largest, the floor, and all
    samples as a tuple in the order in which they were taken.
    Raises TooFastError if the median is not above times_floor * floor; ValueError for no inputs, a negative warmup or resolution,
    or a repeats, number or times_floor that is not above zero.
    """
    raise NotImplementedError


@exercise(reference="shared.bound:classify_bound")
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
    raise NotImplementedError
