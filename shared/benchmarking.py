"""How long does a call take? Timing that warms up, waits for the work, and refuses to report what the clock cannot see."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from typing import Any

from shared.timing import Timing, TooFastError, nothing_to_wait_for
from shared.units import not_negative, positive


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

    Returns Timing(median, low, high, floor, samples): samples in the order in which they were taken.
    Raises TooFastError if the median is not above times_floor * floor; ValueError for no inputs, a negative warmup or resolution,
    or a repeats, number or times_floor that is not above zero.
    """
    positive(inputs=len(inputs), repeats=repeats, number=number, times_floor=times_floor)
    not_negative(warmup=warmup, resolution=resolution)

    def samples_of(call: Callable[..., Any], arguments: Any) -> tuple[float, ...]:
        found = []
        for _ in range(repeats):
            synchronize()
            begin = clock()
            for _ in range(number):
                call(*next(arguments))
            synchronize()
            found.append((clock() - begin) / number)
        return tuple(found)

    floor = max(median(samples_of(_nothing, cycle(inputs))), resolution / number)
    arguments = cycle(inputs)
    for _ in range(warmup):
        fn(*next(arguments))
    samples = samples_of(fn, arguments)
    middle = median(samples)
    if middle <= times_floor * floor:
        raise TooFastError(
            f"a call takes {middle:.2g} s and measuring nothing {floor:.2g} s: "
            f"raise number (now {number}), or give the call more to do"
        )
    return Timing(middle, min(samples), max(samples), floor, samples)


def _nothing(*_: Any) -> None:
    pass
