"""2.9 Latency and goodput: what a benchmark's numbers mean, from raw moments to requests a second that kept a promise.

Write the functions below, then run `labs check 2.9` (or `pytest labs/c2/test_m09_latency_and_goodput.py`). Stuck? `labs hint 2.9`
shows one more each time. `minillm bench serve` is built on these three: its client sends requests and reads streams, they say
when to send and what it all comes to. All times are seconds on one clock.

    Latencies(ttft, e2el, tpot, itl)    a named tuple, one answer's latencies; seconds, tpot may be None
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from labs.kit import exercise
from minillm.bench.metrics import Latencies


@exercise(reference="minillm.bench.metrics:latency_metrics")
def latency_metrics(start: float, chunk_times: Sequence[float], num_tokens: int) -> Latencies:
    """Latencies of one answer, counted from `start`.

    start: when the request was due, or when it was sent; yours is not to ask which.
    chunk_times: when each piece of the answer arrived, ascending, at least one. Not changed.
    num_tokens: tokens of the answer as the server counted them, at least 1. One piece may hold several tokens (speculative
        decoding, a slow reader), and a token may give no piece of its own (half an emoji), so there may be more pieces than
        tokens, or fewer. Never count pieces as tokens.

    Returns Latencies with
    - ttft: from start to the first piece.
    - e2el: from start to the last.
    - tpot: the mean time of each token after the first, so that e2el = ttft + tpot * (num_tokens - 1). None for an answer of
      one token: nothing comes after it, and 0 would read as "infinitely fast".
    - itl: a tuple of num_tokens - 1 inter-token latencies: () for one token; else they sum to e2el - ttft, and their mean is
      tpot.

    For itl the num_tokens - 1 = T tokens after the first are spread over the G = len(chunk_times) - 1 gaps between pieces, as
    evenly as whole numbers allow: gaps 0 to i together bring (i + 1) * T // G tokens. A gap that brings k > 1 tokens counts as k
    latencies of a k-th of it. A gap that brings none is added to the next one that brings some; the last always does if T > 0.
    With G = 0 the whole answer came at once: T zeros.

    latency_metrics(10.0, [10.5, 10.75, 11.5], 3) is ttft 0.5, e2el 1.5, tpot 0.5, itl (0.25, 0.75).
    latency_metrics(0.0, [1.0, 1.5, 2.5], 5) has itl (0.25, 0.25, 0.5, 0.5).
    """
    raise NotImplementedError


@exercise(reference="minillm.bench.metrics:goodput")
def goodput(answers: Iterable[Latencies], slos: Mapping[str, float], duration: float) -> float:
    """Requests a second that kept every objective (service level objective, SLO).

    answers: one Latencies for each request that was answered. Failed requests are not among them, and so are not counted.
    slos: objective by name, "ttft", "tpot" or "e2el": the most seconds allowed. Exactly that many are still allowed. One to
        three of the names; those that are left out promise nothing.
    duration: seconds of the whole run, above zero. The rate is over this, not over the time that answers took.

    A request counts if it keeps *all* objectives itself: percentiles and means of the run do not enter. An answer of one token
    has tpot None and cannot miss that objective. No answers: 0.
    Source: DistServe, Zhong et al., OSDI 2024.
    """
    raise NotImplementedError


@exercise(reference="minillm.bench.metrics:poisson_arrivals")
def poisson_arrivals(n: int, rate: float | np.ndarray, rng: np.random.Generator, burstiness: float = 1.0) -> np.ndarray:
    """The moments at which n requests are due: arrivals [n] float64, seconds, ascending.

    n: at least 1.
    rate: requests a second, above zero. One number, or [n] float64: then rate[i] is that of the gap before request i.
    rng: the only source of randomness; equal seeds give equal times.
    burstiness: above zero. The gap before each request (the first one's gap begins at 0) is drawn independently from a Gamma
        distribution with shape `burstiness` and mean 1 / rate. 1 is a Poisson process, whose gaps are exponential: users who know
        nothing of one another. Below 1 they come in bursts, above 1 more evenly: the gaps' standard deviation is their mean
        divided by sqrt(burstiness).

    In the end all times are multiplied by one factor, so that the last is exactly n / rate, or with rates for each gap the sum
    of all 1 / rate: two seeds then offer the same load, as vLLM's benchmark does it for one rate.
    """
    raise NotImplementedError
