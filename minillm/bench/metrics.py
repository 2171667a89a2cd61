"""What each number of a serving benchmark means: small pure functions on timestamps. All times are seconds on one clock.

A latency depends on the moment one starts to count. From the moment a request was *due* (its scheduled arrival) it is the
sojourn time a user would see; from the moment it was *sent* it is the service time, which leaves out whatever queued in
the client. Counting only the latter hides every stall that keeps the client from sending ("coordinated omission", G. Tene).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Latencies(NamedTuple):
    """One answer's latencies, seconds. By definition e2el = ttft + tpot * (n - 1), for n > 1 output tokens."""

    ttft: float  # time to first token
    e2el: float  # end to end
    tpot: float | None  # mean time per output token after the first; None for a single token: there is nothing after it
    itl: tuple[float, ...]  # n - 1 inter-token latencies; for n > 1 they sum to e2el - ttft


def latency_metrics(start: float, chunk_times: Sequence[float], num_tokens: int) -> Latencies:
    """Latencies of one answer, counted from `start`.

    start: when the request was due (sojourn), or when it was sent (service).
    chunk_times: when each piece of the answer arrived, ascending; at least one.
    num_tokens: tokens of the answer as the server counted them (`usage`), at least 1. A chunk may hold several tokens,
    and a token may give no chunk, so chunks are never counted as tokens.
    """
    ttft, e2el = chunk_times[0] - start, chunk_times[-1] - start
    tpot = (e2el - ttft) / (num_tokens - 1) if num_tokens > 1 else None
    return Latencies(ttft, e2el, tpot, inter_token_latencies(chunk_times, num_tokens))


def inter_token_latencies(chunk_times: Sequence[float], num_tokens: int) -> tuple[float, ...]:
    """The num_tokens - 1 gaps between tokens, from the gaps between chunks.

    One token a chunk: the gaps themselves. Otherwise the tokens are spread evenly over the chunks, and a gap that brings
    k tokens counts as k latencies of a k-th of it: the sum stays the time from first to last chunk, and the mean is TPOT.
    """
    left, gaps = num_tokens - 1, len(chunk_times) - 1
    if left == 0 or gaps == 0:
        return (0.0,) * left  # the whole answer came at once
    latencies: list[float] = []
    since = chunk_times[0]
    for i, at in enumerate(chunk_times[1:]):
        k = (i + 1) * left // gaps - i * left // gaps  # tokens that this gap brings
        if k:  # more chunks than tokens: a gap without a token belongs to the next one
            latencies += [(at - since) / k] * k
            since = at
    return tuple(latencies)


def summary(values: Iterable[float], percentiles: Iterable[float] = (99,)) -> dict[str, float | None]:
    """mean, median, std (of the population) and p<q> for each asked q; percentiles are interpolated linearly between ranks
    (numpy's default). None throughout where there is no value: 0 would read as "fast"."""
    values = np.fromiter(values, dtype=float)
    names = {f"p{q:g}": q for q in percentiles}
    if not len(values):
        return dict.fromkeys(["mean", "median", "std", *names])
    spread = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
    return {name: float(v) for name, v in (spread | {n: np.percentile(values, q) for n, q in names.items()}).items()}


def goodput(answers: Iterable[Latencies], slos: Mapping[str, float], duration: float) -> float:
    """Requests a second that kept every objective (DistServe, Zhong et al., OSDI 2024).

    slos: {"ttft" | "tpot" | "e2el": most seconds allowed}. An answer of one token has no TPOT and cannot miss one.
    duration: seconds of the whole run; failed requests are not among the answers and so count as missed.
    """
    kept = sum(all((value := getattr(a, name)) is None or value <= limit for name, limit in slos.items()) for a in answers)
    return kept / duration


def ramp_up(n: int, strategy: str, start: float, end: float) -> np.ndarray:
    """The rate [n] float64, requests a second, at which each of n requests comes: from `start` for the first to `end` for
    the last, by equal steps ("linear") or equal factors ("exponential")."""
    progress = np.arange(n) / max(n - 1, 1)
    return start + (end - start) * progress if strategy == "linear" else start * (end / start) ** progress


def poisson_arrivals(n: int, rate: float | np.ndarray, rng: np.random.Generator, burstiness: float = 1.0) -> np.ndarray:
    """n arrival times [n] float64 in seconds, ascending, at `rate` requests a second on average; rate [n]: one for the gap
    before each request.

    Gaps are Gamma-distributed with shape `burstiness` and mean 1 / rate: 1 is a Poisson process (exponential gaps), below 1
    arrivals come in bursts, above 1 they even out; a gap's coefficient of variation is 1 / sqrt(burstiness).
    As in vLLM the times are then scaled so that the last is exactly n / rate (the sum of all 1 / rate): two seeds offer the
    same load. A Poisson process stays one under it, seen given the count.
    """
    times = np.cumsum(rng.gamma(shape=burstiness, scale=1.0 / (rate * burstiness), size=n))
    return times * (np.broadcast_to(1.0 / rate, n).sum() / times[-1])


def peak_concurrency(starts: Sequence[float], ends: Sequence[float]) -> int:
    """The most requests in flight at one moment; one that ends as another starts does not overlap it."""
    events = sorted([(t, 1) for t in starts] + [(t, -1) for t in ends])  # at equal times, ends (-1) sort first
    return int(max(np.cumsum([change for _, change in events]), default=0))


def peak_rate(times: Sequence[float], start: float, window: float = 1.0) -> float:
    """The most events in one of the back-to-back windows that begin at `start`, per second."""
    if not len(times):
        return 0.0
    return float(np.bincount(((np.asarray(times) - start) / window).astype(int)).max() / window)
