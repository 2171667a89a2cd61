"""Mistakes planted in 2.9."""

from itertools import pairwise

import numpy as np

from labs.kit.wrong import patch, replace
from minillm.bench.metrics import Latencies, poisson_arrivals


def three_tokens_three_pieces(subject):
    """The test one would write first: a token a piece."""
    got = subject(0.0, [1.0, 2.0, 3.0], 3)
    assert (got.ttft, got.e2el, got.tpot, got.itl) == (1.0, 3.0, 1.0, (1.0, 1.0))


def one_good_one_late(subject):
    answers = [Latencies(0.1, 1.0, 0.1, ()), Latencies(0.9, 1.9, 0.1, ())]
    assert subject(answers, {"ttft": 0.5}, 2.0) == 0.5


def right_rate_on_average(subject):
    times = subject(1000, 10.0, np.random.default_rng(0))
    assert len(times) == 1000 and (np.diff(times) >= 0).all() and abs(times[-1] / 100 - 1) < 0.15


def chunks_as_tokens(start, chunk_times, num_tokens):
    ttft, e2el, n = chunk_times[0] - start, chunk_times[-1] - start, len(chunk_times)
    itl = tuple(b - a for a, b in pairwise(chunk_times))
    return Latencies(ttft, e2el, (e2el - ttft) / (n - 1) if n > 1 else None, itl)


def average_over_tokens(start, chunk_times, num_tokens):
    """itl is tpot, n - 1 times: sums and means are right, and every stall has vanished."""
    ttft, e2el = chunk_times[0] - start, chunk_times[-1] - start
    tpot = (e2el - ttft) / (num_tokens - 1) if num_tokens > 1 else None
    return Latencies(ttft, e2el, tpot, (tpot,) * (num_tokens - 1))


def share_of_answers(answers, slos, duration):
    answers = list(answers)
    kept = sum(all(getattr(a, k) is None or getattr(a, k) <= v for k, v in slos.items()) for a in answers)
    return kept / max(1, len(answers))


def all_or_nothing(answers, slos, duration):
    answers = list(answers)
    values = {k: [v for a in answers if (v := getattr(a, k)) is not None] for k in slos}
    return len(answers) / duration if all(np.mean(values[k] or [0]) <= slos[k] for k in slos) else 0.0


def each_objective_counts(answers, slos, duration):
    answers = list(answers)
    kept = [sum(getattr(a, k) is None or getattr(a, k) <= v for a in answers) for k, v in slos.items()]
    return min(kept, default=0) / duration


def promises_by_default(answers, slos, duration):
    limits = {"ttft": 60.0, "tpot": 1.0, "e2el": 600.0} | dict(slos)
    kept = sum(all(getattr(a, k) is None or getattr(a, k) <= v for k, v in limits.items()) for a in answers)
    return kept / duration


def reads_twice(answers, slos, duration):
    missed = set()
    for name, limit in slos.items():
        missed |= {i for i, a in enumerate(answers) if (v := getattr(a, name)) is not None and v > limit}
    return (len(list(answers)) - len(missed)) / duration


def metronome(n, rate, rng, burstiness=1.0):
    return np.cumsum(np.broadcast_to(1.0 / rate, n).astype(float))


def uniform_gaps(n, rate, rng, burstiness=1.0):
    times = np.cumsum(rng.uniform(0, 2, n) / rate)
    return times * (np.broadcast_to(1.0 / rate, n).sum() / times[-1])


def global_generator(n, rate, rng, burstiness=1.0):
    times = np.cumsum(np.random.gamma(burstiness, 1.0 / (rate * burstiness), n))
    return times * (np.broadcast_to(1.0 / rate, n).sum() / times[-1])


def mean_rate(n, rate, rng, burstiness=1.0):
    times = np.cumsum(rng.gamma(burstiness, 1.0 / burstiness, n))
    return times * (np.broadcast_to(1.0 / rate, n).sum() / times[-1])


def first_at_zero(n, rate, rng, burstiness=1.0):
    times = poisson_arrivals(n, rate, rng, burstiness)
    return times if n == 1 else (times - times[0]) * (times[-1] / (times[-1] - times[0]))


def crowd_at_the_start(n, rate, rng, burstiness=1.0):
    times = poisson_arrivals(n, rate, rng, burstiness)
    return np.cumsum(np.sort(np.diff(times, prepend=0.0))) if np.isscalar(rate) else times


def order_statistics(n, rate, rng, burstiness=1.0):
    return np.sort(rng.uniform(0, np.broadcast_to(1.0 / rate, n).sum(), n))


SHAPE = "rng.gamma(shape=burstiness, scale=1.0 / (rate * burstiness), size=n)"
TPOT = "tpot = (e2el - ttft) / (num_tokens - 1) if num_tokens > 1 else None"
RETURN = "return times * (np.broadcast_to(1.0 / rate, n).sum() / times[-1])"

WRONG = {
    "latency_metrics": {
        "chunks_as_tokens": replace(chunks_as_tokens, "each piece counts as a token, as in many a client"),
        "over_all_tokens": patch(TPOT, TPOT.replace("(num_tokens - 1)", "num_tokens"), "divides by n; the first token is TTFT's"),
        "single_token_is_free": patch(TPOT, TPOT.replace("None", "0.0"), "a TPOT of 0 for one token pulls every mean down"),
        "clock_from_zero": patch(
            "ttft, e2el = chunk_times[0] - start,", "ttft, e2el = chunk_times[0],", "start is forgotten for TTFT"
        ),
        "end_from_the_first_token": patch(
            "chunk_times[-1] - start\n", "chunk_times[-1] - chunk_times[0]\n", "E2E leaves out the wait for the first token"
        ),
        "average_over_tokens": replace(average_over_tokens, "itl repeats the mean, so its p99 is its mean"),
        "gaps_undivided": patch(
            "[(at - since) / k] * k", "[at - since] * k", "a gap of four tokens counts whole for each of them"
        ),
        "bundle_then_nothing": patch(
            "[(at - since) / k] * k", "[at - since] + [0.0] * (k - 1)", "the first of a bundle waits, the others take no time"
        ),
        "empty_gap_lost": patch(
            "            since = at\n", "        since = at\n", "a gap that brings no token is dropped and the sum comes up short"
        ),
    },
    "goodput": {
        "any_objective": patch("sum(all((value", "sum(any((value", "one objective kept is enough"),
        "strictly_below": patch("value <= limit for name", "value < limit for name", "exactly the limit counts as missed"),
        "share_of_answers": replace(share_of_answers, "a share of the answers, not requests a second"),
        "all_or_nothing": replace(all_or_nothing, "judges the run by its means, and counts all requests or none"),
        "each_objective_counts": replace(each_objective_counts, "counts objectives apart; a late and a slow one both pass once"),
        "single_token_missed": patch(
            "(value := getattr(a, name)) is None or value <= limit",
            "(value := getattr(a, name)) is not None and value <= limit",
            "an answer of one token misses a TPOT that it does not have",
        ),
        "promises_by_default": replace(promises_by_default, "objectives that nobody named"),
        "reads_twice": replace(reads_twice, "goes through the answers once an objective: a generator is empty by then"),
    },
    "poisson_arrivals": {
        "metronome": replace(metronome, "even gaps: no two requests ever meet, and no queue is ever seen"),
        "uniform_gaps": replace(uniform_gaps, "the right mean, but neither long pauses nor crowds"),
        "burstiness_upside_down": patch(
            SHAPE, "rng.gamma(shape=1 / burstiness, scale=burstiness / rate, size=n)", "bursty where it should be even"
        ),
        "burstiness_ignored": patch(SHAPE, "rng.exponential(1.0 / rate, size=n)", "always Poisson"),
        "not_rescaled": patch(RETURN, "return times", "each seed offers another load"),
        "global_generator": replace(global_generator, "draws from numpy's global generator, not from the one given"),
        "mean_rate": replace(mean_rate, "spreads a ramp evenly: the total is right, the rates are not"),
        "first_at_zero": replace(first_at_zero, "n - 1 gaps: the first request comes at 0"),
        "crowd_at_the_start": replace(crowd_at_the_start, "gaps in ascending order: all short ones come first"),
        "order_statistics": replace(order_statistics, "Poisson given the count, but the last is not at n / rate"),
    },
}

HAPPY = {
    "latency_metrics": three_tokens_three_pieces,
    "goodput": one_good_one_late,
    "poisson_arrivals": right_rate_on_average,
}
