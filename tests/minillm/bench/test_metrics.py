"""The definitions, by property and by known answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm.bench.load import Record
from minillm.bench.metrics import (
    Latencies,
    goodput,
    inter_token_latencies,
    latency_metrics,
    peak_concurrency,
    peak_rate,
    poisson_arrivals,
    ramp_up,
    summary,
)
from minillm.bench.report import results
from minillm.bench.stream import Answer

gaps = st.lists(st.floats(1e-4, 10), min_size=1, max_size=30)


@given(gaps, st.integers(1, 60), st.floats(0, 100))
def test_e2e_is_ttft_and_tpot_per_further_token(gaps, num_tokens, start):
    times = (start + np.cumsum(gaps)).tolist()
    ttft, e2el, tpot, itl = latency_metrics(start, times, num_tokens)
    assert ttft == times[0] - start and e2el == times[-1] - start
    assert (tpot is None) == (num_tokens == 1)
    assert len(itl) == num_tokens - 1
    if num_tokens > 1:
        assert e2el == pytest.approx(ttft + tpot * (num_tokens - 1))
        assert sum(itl) == pytest.approx(e2el - ttft)
        assert np.mean(itl) == pytest.approx(tpot)


def test_one_token_a_chunk_gives_the_gaps_themselves():
    assert inter_token_latencies([1.0, 1.5, 3.5], 3) == (0.5, 2.0)


def test_chunks_of_several_tokens_do_not_lengthen_the_latency_between_tokens():
    assert inter_token_latencies([1.0, 1.4, 1.8], 5) == pytest.approx((0.2, 0.2, 0.2, 0.2))


def test_chunks_without_a_token_of_their_own_are_no_extra_latencies():
    assert inter_token_latencies([0.0, 0.25, 0.5, 0.75, 1.0], 3) == pytest.approx((0.5, 0.5))
    assert inter_token_latencies([1.0], 4) == (0.0, 0.0, 0.0)


def test_summary_interpolates_between_ranks():
    values = summary([1, 2, 3, 4], (50, 90, 99.9))
    assert values["mean"] == values["median"] == values["p50"] == 2.5
    assert values["p90"] == pytest.approx(3.7) and values["p99.9"] == pytest.approx(3.997)
    assert values["std"] == pytest.approx(np.sqrt(1.25))


def test_a_summary_of_nothing_is_not_zero():
    assert summary([], (99,)) == {"mean": None, "median": None, "std": None, "p99": None}


def test_goodput_counts_answers_that_keep_every_objective():
    answers = [
        Latencies(0.1, 1.0, 0.05, ()),
        Latencies(0.6, 1.0, 0.05, ()),  # late
        Latencies(0.1, 9.0, 0.20, ()),  # slow
        Latencies(0.1, 0.1, None, ()),  # one token: no TPOT to miss
    ]
    assert goodput(answers, {"ttft": 0.5, "tpot": 0.1}, duration=2.0) == 1.0
    assert goodput(answers, {"ttft": 0.5}, duration=2.0) == 1.5
    assert goodput(answers, {"e2el": 0.1}, duration=2.0) == 0.5


@given(st.integers(1, 200), st.floats(0.1, 100), st.floats(0.2, 10), st.integers(0, 2**32))
def test_arrivals_ascend_at_the_asked_rate(n, rate, burstiness, seed):
    times = poisson_arrivals(n, rate, np.random.default_rng(seed), burstiness)
    assert len(times) == n
    assert times[0] > 0 or burstiness < 1  # a burst's gap can underflow to 0
    assert (np.diff(times) >= 0).all()
    assert times[-1] == pytest.approx(n / rate)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_sets_the_spread_of_the_gaps(burstiness):
    gaps = np.diff(poisson_arrivals(50_000, 10.0, np.random.default_rng(0), burstiness))
    assert gaps.std() / gaps.mean() == pytest.approx(1 / np.sqrt(burstiness), rel=0.03)


@pytest.mark.parametrize("strategy, rates", [("linear", [1, 3, 5, 7, 9]), ("exponential", [1, 9**0.25, 3, 3 * 9**0.25, 9])])
def test_a_ramp_goes_from_start_to_end(strategy, rates):
    assert ramp_up(5, strategy, 1.0, 9.0) == pytest.approx(rates)
    assert ramp_up(1, strategy, 1.0, 9.0) == pytest.approx([1.0])
    assert ramp_up(3, strategy, 4.0, 4.0) == pytest.approx([4.0] * 3)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 16.0])
def test_arrivals_of_a_ramp(burstiness):
    """Early and late gaps have their own rate's mean, the same spread by it, and in sum what the rates promise."""
    rates = ramp_up(40_000, "linear", 5.0, 50.0)
    times = poisson_arrivals(len(rates), rates, np.random.default_rng(3), burstiness)
    assert times[-1] == pytest.approx((1 / rates).sum())
    in_means = np.diff(times) * rates[1:]
    for part in (in_means[:10_000], in_means[-10_000:]):
        assert part.mean() == pytest.approx(1.0, rel=0.07)
        assert part.std() == pytest.approx(burstiness**-0.5, rel=0.07)


def test_poisson_counts_have_equal_mean_and_variance():
    times = poisson_arrivals(100_000, 20.0, np.random.default_rng(1))
    counts = np.bincount(times.astype(int))[:-1]
    assert counts.mean() == pytest.approx(20, rel=0.01)
    assert counts.var() == pytest.approx(20, rel=0.05)


def test_peaks():
    assert peak_concurrency([0, 1, 2, 3], [2, 3, 4, 5]) == 2
    assert peak_concurrency([0, 0, 0], [1, 1, 1]) == 3
    assert peak_concurrency([], []) == 0
    assert peak_rate([0.1, 0.2, 1.5, 2.1, 2.2, 2.9], 0.0) == 3
    assert peak_rate([], 0.0) == 0


def test_a_stall_shows_in_the_open_loop_only():
    """One 10 s stall in 20,000 requests of 10 ms: a closed loop's p99 is 10 ms, at 50 requests a second it is 8.0 s
    (the backlog melts by 10 ms a request, and a hundredth of 20,000 is 200 requests)."""
    service = np.full(20_000, 0.010)
    service[5_000] = 10.0

    def record(due, sent, seconds):
        return Record(due, sent, Answer("x", [sent + seconds], 1, 1))

    starts = np.cumsum(service) - service
    closed = results([record(s, s, d) for s, d in zip(starts, service, strict=True)], 210.0)
    assert closed["p99_e2el_ms"] == pytest.approx(10)
    assert closed["mean_e2el_ms"] == pytest.approx(10.5, abs=0.01)

    free, opened = 0.0, []
    for due, seconds in zip(np.arange(20_000) / 50, service, strict=True):
        sent = max(due, free)  # one server, first come, first served; the queue is in the client
        free = sent + seconds
        opened.append(record(due, sent, seconds))
    result = results(opened, 400.0)
    assert result["p99_e2el_ms"] == pytest.approx(8000, abs=11)
    assert result["mean_e2el_ms"] == pytest.approx(260, abs=3)
    assert result["p99_service_e2el_ms"] == pytest.approx(10)
    assert result["p99_client_queue_ms"] == pytest.approx(7990, abs=11)
