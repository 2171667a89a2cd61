"""Answers to labs/c2/m09_latency_and_goodput.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from labs.kit import exercise
from minillm.bench.metrics import Latencies


@exercise(reference="minillm.bench.metrics:latency_metrics")
def latency_metrics(start: float, chunk_times: Sequence[float], num_tokens: int) -> Latencies:
    ttft, e2el, later = chunk_times[0] - start, chunk_times[-1] - start, num_tokens - 1
    if not later:
        return Latencies(ttft, e2el, None, ())
    tpot = (e2el - ttft) / later
    gaps = [after - before for before, after in pairwise(chunk_times)]
    if not gaps:
        return Latencies(ttft, e2el, tpot, (0.0,) * later)
    itl, waited = [], 0.0
    for i, gap in enumerate(gaps):
        waited += gap
        count = (i + 1) * later // len(gaps) - i * later // len(gaps)
        if count:
            itl += [waited / count] * count
            waited = 0.0
    return Latencies(ttft, e2el, tpot, tuple(itl))


@exercise(reference="minillm.bench.metrics:goodput")
def goodput(answers: Iterable[Latencies], slos: Mapping[str, float], duration: float) -> float:
    def keeps(answer: Latencies) -> bool:
        taken = {name: getattr(answer, name) for name in slos}
        return all(seconds is None or seconds <= slos[name] for name, seconds in taken.items())

    return sum(map(keeps, answers)) / duration


@exercise(reference="minillm.bench.metrics:poisson_arrivals")
def poisson_arrivals(n: int, rate: float | np.ndarray, rng: np.random.Generator, burstiness: float = 1.0) -> np.ndarray:
    gaps = rng.gamma(burstiness, 1 / burstiness, n) / rate
    times = np.cumsum(gaps)
    total = np.sum(1 / rate) if isinstance(rate, np.ndarray) else n / rate
    times *= total / times[-1]
    times[-1] = total
    return times
