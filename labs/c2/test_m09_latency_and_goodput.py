"""Checks of latency and goodput: known answers, what must hold for any stream, and the shape of arrivals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal
from minillm.bench.metrics import Latencies

# name: start, chunk times, tokens -> ttft, e2el, tpot, itl; all exact in binary
KNOWN = {
    "a token a piece": ((10.0, [10.5, 10.75, 11.5], 3), (0.5, 1.5, 0.5, (0.25, 0.75))),
    "due before the clock's zero": ((-2.0, [1.0, 2.0], 2), (3.0, 4.0, 1.0, (1.0,))),
    "two tokens a piece": ((0.0, [1.0, 1.5, 2.5], 5), (1.0, 2.5, 0.375, (0.25, 0.25, 0.5, 0.5))),
    "four tokens in two pieces": ((0.0, [0.5, 2.0], 4), (0.5, 2.0, 0.5, (0.5, 0.5, 0.5))),
    "three gaps for five tokens": ((0.0, [1.0, 1.5, 2.5, 4.5], 6), (1.0, 4.5, 0.7, (0.5, 0.5, 0.5, 1.0, 1.0))),
    "more pieces than tokens": ((0.0, [1.0, 1.25, 2.0, 2.5, 4.0], 3), (1.0, 4.0, 1.5, (1.0, 2.0))),
    "all of it at once": ((1.0, [3.0], 4), (2.0, 2.0, 0.0, (0.0, 0.0, 0.0))),
    "pieces read at one moment": ((0.0, [2.0, 2.0, 2.0], 3), (2.0, 2.0, 0.0, (0.0, 0.0))),
}


def shown(start, times, tokens):
    return f"start={start:g}, chunk_times={[round(t, 3) for t in times]}, num_tokens={tokens}"


def fields(got):
    """The four, whatever kind of tuple they came in; a message instead of a crash where they did not."""
    four = isinstance(got, tuple) and len(got) == 4
    assert_equal(four, True, "a Latencies of four fields", inputs=f"got {got!r}", hint="return Latencies(ttft, e2el, tpot, itl)")
    ttft, e2el, tpot, itl = got
    assert_equal(isinstance(itl, tuple), True, "itl is a tuple", inputs=f"got {type(itl).__name__}")
    return ttft, e2el, tpot, itl


@checks("latency_metrics")
@pytest.mark.parametrize("name", KNOWN)
def test_known_answers(lab, name):
    args, (ttft, e2el, tpot, itl) = KNOWN[name]
    got = fields(lab.latency_metrics(*args))
    said = f"{shown(*args)} ({name})"
    assert_close(got[0], ttft, "ttft", atol=1e-12, rtol=0, inputs=said, hint="first piece minus start")
    assert_close(got[1], e2el, "e2el", atol=1e-12, rtol=0, inputs=said, hint="last piece minus start")
    hint = "over the num_tokens - 1 tokens after the first; pieces are not tokens"
    assert_close(got[2], tpot, "tpot", atol=1e-12, rtol=0, inputs=said, hint=hint)
    assert_equal(len(got[3]), len(itl), "number of inter-token latencies", inputs=said, hint="num_tokens - 1")
    hint = "a gap that brings k tokens is k latencies of a k-th; one that brings none is added to the next"
    assert_close(got[3], itl, "itl", atol=1e-12, rtol=0, inputs=said, hint=hint)


@checks("latency_metrics")
@pytest.mark.parametrize("times", [[1.5], [1.5, 4.0], [1.5, 2.0, 4.0]], ids=len)
def test_one_token_has_no_time_per_further_token(lab, times):
    ttft, e2el, tpot, itl = fields(lab.latency_metrics(1.0, times, 1))
    said = shown(1.0, times, 1)
    assert_equal(tpot, None, "tpot", inputs=said, hint="None: 0 would count as infinitely fast in every mean")
    assert_equal(itl, (), "itl", inputs=said)
    assert_close((ttft, e2el), (0.5, times[-1] - 1.0), "ttft and e2el", atol=1e-12, rtol=0, inputs=said)


@checks("latency_metrics")
def test_by_hand(lab):
    """80 ms to the first of 200 tokens, 15 ms for each of 199 more."""
    times = [0.080 + 0.015 * i for i in range(200)]
    ttft, e2el, tpot, _ = fields(lab.latency_metrics(0.0, times, 200))
    said = "first piece at 0.080 s, one each 0.015 s, 200 tokens"
    assert_close(e2el, 3.065, "e2el", atol=1e-9, rtol=0, inputs=said, hint="0.080 + 0.015 * 199")
    assert_close((ttft, tpot), (0.080, 0.015), "ttft and tpot", atol=1e-9, rtol=0, inputs=said, hint="199 gaps, not 200")
    bundled = fields(lab.latency_metrics(0.0, times[::4] + times[-1:], 200))
    assert_close(bundled[2], 0.015, "tpot", atol=1e-9, rtol=0, inputs="the same, four tokens a piece", hint="tokens, not pieces")


@checks("latency_metrics")
@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(1, 60), st.floats(-100, 100))
def test_what_holds_for_any_stream(lab, gaps, tokens, start):
    times = (start + np.cumsum(gaps)).tolist()
    kept = list(times)
    ttft, e2el, tpot, itl = fields(lab.latency_metrics(start, times, tokens))
    said = shown(start, times, tokens)
    assert_equal(times, kept, "chunk_times afterwards", inputs=said, hint="they are the caller's")
    assert_equal(len(itl), tokens - 1, "number of inter-token latencies", inputs=said)
    assert_equal(all(gap >= 0 for gap in itl), True, "no latency below 0", inputs=said)
    if tokens > 1:
        assert_close(sum(itl), times[-1] - times[0], "sum of itl", atol=1e-9, rtol=1e-9, inputs=said, hint="no gap may get lost")
        hint = "e2el = ttft + tpot * (num_tokens - 1), by definition"
        assert_close(ttft + tpot * (tokens - 1), e2el, "ttft + tpot * (n - 1)", atol=1e-9, rtol=1e-9, inputs=said, hint=hint)


FOUR = [
    Latencies(0.1, 1.0, 0.05, ()),
    Latencies(0.6, 1.0, 0.05, ()),  # late
    Latencies(0.1, 9.0, 0.20, ()),  # slow
    Latencies(0.1, 0.1, None, ()),  # one token
]


@checks("goodput")
@pytest.mark.parametrize(
    "slos, kept",
    [
        ({"ttft": 0.5, "tpot": 0.1}, 2),
        ({"ttft": 0.5}, 3),
        ({"tpot": 0.1}, 3),
        ({"e2el": 2.0}, 3),
        ({"e2el": 0.5}, 1),
        ({"ttft": 0.5, "tpot": 0.1, "e2el": 0.5}, 1),
        ({"ttft": 0.05}, 0),
    ],
    ids=str,
)
def test_four_answers(lab, slos, kept):
    said = f"(ttft, e2el, tpot): {[tuple(a[:3]) for a in FOUR]}; slos={slos}, duration=2"
    hint = "all objectives, by each answer itself; tpot None cannot be missed; per second of the run"
    assert_close(lab.goodput(FOUR, slos, 2.0), kept / 2.0, "goodput", atol=1e-12, rtol=0, inputs=said, hint=hint)


@checks("goodput")
@pytest.mark.parametrize("name", ["ttft", "tpot", "e2el"])
def test_exactly_the_limit_is_kept(lab, name):
    answers = [Latencies(0.5, 0.5, 0.5, ()), Latencies(0.5000001, 0.5000001, 0.5000001, ())]
    said = f"{name} of 0.5 and of 0.5000001, limit 0.5"
    got = lab.goodput(answers, {name: 0.5}, 1.0)
    assert_close(got, 1.0, "goodput", atol=1e-12, rtol=0, inputs=said, hint="at most the limit: <=")


@checks("goodput")
def test_a_slow_minority_does_not_spoil_the_rest(lab):
    """98 answers of 0.1 s and two of 50 s: mean and p99 both miss 1 s, 98 requests do not."""
    answers = [Latencies(0.1, 0.1, 0.01, ())] * 98 + [Latencies(50.0, 50.0, 0.01, ())] * 2
    got = lab.goodput(answers, {"ttft": 1.0}, 49.0)
    hint = "count the requests that keep it; no mean and no percentile enters"
    assert_close(got, 2.0, "goodput", atol=1e-12, rtol=0, inputs="ttft: 98 × 0.1 s, 2 × 50 s; limit 1 s; 49 s", hint=hint)
    answers = [Latencies(0.1, 0.1, 0.01, ())] * 98 + [Latencies(2.0, 2.0, 0.01, ())] * 2
    got = lab.goodput(answers, {"ttft": 1.0}, 49.0)
    assert_close(got, 2.0, "goodput", atol=1e-12, rtol=0, inputs="ttft: 98 × 0.1 s, 2 × 2 s; limit 1 s; 49 s", hint=hint)


@checks("goodput")
def test_what_is_not_named_promises_nothing(lab):
    answers = [Latencies(3600.0, 7200.0, 9.0, ()), Latencies(0.1, 7200.0, 900.0, ())]
    for slos, kept in (({"ttft": 0.5}, 1), ({"tpot": 10.0}, 1), ({"e2el": 7200.0}, 2)):
        said = f"(ttft, e2el, tpot): {[tuple(a[:3]) for a in answers]}; slos={slos}, duration=1"
        hint = "only the objectives in slos count, and there is none by default"
        assert_close(lab.goodput(answers, slos, 1.0), kept, "goodput", atol=1e-12, rtol=0, inputs=said, hint=hint)


@checks("goodput")
def test_no_answers_and_answers_that_can_be_read_only_once(lab):
    assert_close(lab.goodput([], {"ttft": 1.0}, 3.0), 0.0, "goodput", atol=0, rtol=0, inputs="no answers")
    got = lab.goodput((a for a in FOUR), {"ttft": 0.5, "tpot": 0.1, "e2el": 2.0}, 2.0)
    hint = "answers is any iterable: go through it once"
    assert_close(got, 1.0, "goodput", atol=1e-12, rtol=0, inputs="four answers from a generator", hint=hint)


@checks("goodput")
@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.none() | st.floats(0, 2)), max_size=20),
    st.dictionaries(st.sampled_from(["ttft", "e2el", "tpot"]), st.floats(0, 2), min_size=1),
    st.floats(0.1, 100),
)
def test_one_objective_more_never_raises_it(lab, triples, slos, duration):
    answers = [Latencies(*triple, ()) for triple in triples]
    alone = [lab.goodput(answers, {name: limit}, duration) for name, limit in slos.items()]
    together = lab.goodput(answers, slos, duration)
    said = f"{len(answers)} answers, slos={slos}, duration={duration:g}; each objective alone: {alone}"
    ok = together <= min(alone) + 1e-9 and together <= len(answers) / duration + 1e-9
    assert_equal(ok, True, "at most the least of each alone, and at most all answers a second", inputs=said)
    expected = sum(
        all(a is None or a <= slos.get(k, 9) for k, a in zip(("ttft", "e2el", "tpot"), t, strict=True)) for t in triples
    )
    assert_close(together * duration, expected, "goodput * duration", atol=1e-6, rtol=0, inputs=said)


def arrivals(lab, n, rate, seed=0, burstiness=None):
    more = {} if burstiness is None else {"burstiness": burstiness}
    times = lab.poisson_arrivals(n, rate, np.random.default_rng(seed), **more)
    assert_equal(isinstance(times, np.ndarray) and times.dtype, np.dtype(np.float64), "kind of result", inputs=f"n={n}")
    assert_equal(times.shape, (n,), "shape", inputs=f"n={n}")
    return times


@checks("poisson_arrivals")
@given(st.integers(1, 200), st.floats(0.1, 100), st.floats(0.2, 10), st.integers(0, 2**32))
def test_they_ascend_and_end_on_time(lab, n, rate, burstiness, seed):
    times = arrivals(lab, n, rate, seed, burstiness)
    said = f"n={n}, rate={rate:g}, burstiness={burstiness:g}, seed {seed}"
    hint = "gaps are added up: cumsum"
    assert_equal(bool((np.diff(times) >= 0).all() and times[0] >= 0), True, "ascending, none below 0", inputs=said, hint=hint)
    hint = "times * (n / rate / times[-1])"
    assert_close(times[-1], n / rate, "the last arrival", atol=1e-9, rtol=1e-9, inputs=said, hint=hint)


@checks("poisson_arrivals")
def test_gaps_are_exponential(lab):
    gaps = np.diff(arrivals(lab, 20_000, 10.0))
    p = stats.kstest(gaps, "expon", args=(0, 0.1)).pvalue
    said = f"20,000 at 10 a second; gaps: mean {gaps.mean():.4f} s, deviation {gaps.std():.4f} s; Kolmogorov-Smirnov p = {p:.1e}"
    assert_equal(
        bool(p > 1e-4), True, "gaps are exponential with mean 0.1 s", inputs=said, hint="rng.gamma(1, 0.1), or rng.exponential"
    )
    r = float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])
    hint = "draw them one after the other and leave them in that order"
    said = f"20,000 at 10 a second; correlation of a gap with the next one: {r:.3f}"
    assert_equal(abs(r) < 0.04, True, "gaps are independent of one another", inputs=said, hint=hint)


@checks("poisson_arrivals")
def test_the_first_request_has_a_gap_before_it(lab):
    first = np.array([arrivals(lab, 2, 1.0, seed)[0] for seed in range(400)])
    said = (
        f"n=2, rate 1, 400 seeds: first arrivals from {first.min():.3f} to {first.max():.3f} s, {first.mean():.2f} s on average"
    )
    hint = "the clock starts before the first gap: n gaps for n requests, and nobody comes at 0"
    assert_equal(
        bool((first > 0).all() and 0.9 < first.mean() < 1.1), True, "spread over the two seconds", inputs=said, hint=hint
    )


@checks("poisson_arrivals")
@pytest.mark.parametrize("burstiness", [0.25, 4.0, 16.0])
def test_burstiness_is_the_shape_of_the_gaps(lab, burstiness):
    gaps = np.diff(arrivals(lab, 20_000, 5.0, burstiness=burstiness))
    p = stats.kstest(gaps, "gamma", args=(burstiness, 0, 0.2 / burstiness)).pvalue
    said = f"rate 5, burstiness {burstiness:g}: standard deviation / mean = {gaps.std() / gaps.mean():.3f}, p = {p:.1e}"
    hint = f"shape {burstiness:g} and scale 1 / (rate * burstiness): deviation / mean is {burstiness**-0.5:g}"
    assert_equal(bool(p > 1e-4), True, "gaps are Gamma-distributed", inputs=said, hint=hint)


@checks("poisson_arrivals")
@pytest.mark.parametrize("burstiness", [0.5, 1.0, 9.0])
def test_a_rate_for_each_gap(lab, burstiness):
    rates = np.repeat([2.0, 50.0], 10_000)
    kept = rates.copy()
    times = arrivals(lab, 20_000, rates, seed=3, burstiness=burstiness)
    said = f"10,000 gaps at rate 2, then 10,000 at rate 50; burstiness {burstiness:g}"
    assert_close(times[-1], 5200.0, "the last arrival", atol=1e-6, rtol=0, inputs=said, hint="the sum of 1 / rate over all gaps")
    gaps = np.diff(times, prepend=0.0)
    for part, mean in (gaps[:10_000], 0.5), (gaps[10_000:], 0.02):
        assert_close(part.mean(), mean, "mean gap", atol=0, rtol=0.06, inputs=said, hint="rate[i] belongs to the gap before i")
        spread = part.std() / part.mean() * burstiness**0.5
        assert_close(spread, 1.0, "deviation / mean, times sqrt(burstiness)", atol=0.06, rtol=0, inputs=said)
    assert_equal(bool((rates == kept).all()), True, "rate afterwards is unchanged", inputs=said)


@checks("poisson_arrivals")
def test_randomness_comes_from_the_generator_given(lab):
    first, again, other = (arrivals(lab, 50, 3.0, seed) for seed in (1, 1, 2))
    hint = "draw from rng, not from numpy's global generator"
    assert_equal(first.tolist() == again.tolist(), True, "equal seeds give equal times", inputs="n=50, rate 3, seed 1", hint=hint)
    hint = "the seed must matter"
    assert_equal(first.tolist() == other.tolist(), False, "seeds 1 and 2 give equal times", inputs="n=50, rate 3", hint=hint)


@checks("poisson_arrivals")
def test_one_request(lab):
    assert_close(
        arrivals(lab, 1, 4.0), [0.25], "arrivals", atol=1e-12, rtol=0, inputs="n=1, rate 4", hint="the last is at n / rate"
    )
    times = lab.poisson_arrivals(1, np.array([4.0]), np.random.default_rng(0), burstiness=3.0)
    assert_close(times, [0.25], "arrivals", atol=1e-12, rtol=0, inputs="n=1, rate [4], burstiness 3")
