"""The alpha-beta model: known answers, the order of algorithms, and a step of tensor parallelism."""

import numpy as np
import pytest

from shared import collectives as c
from shared import models

LLAMA = models.load("llama-3.1-8b")


def test_decode_and_prefill_of_an_8b():
    assert c.tensor_parallel_all_reduces(LLAMA) == 64
    assert c.tensor_parallel_message(LLAMA, 1) == 8192
    assert c.tensor_parallel_bytes(LLAMA, 1) == 524_288
    assert c.tensor_parallel_bytes(LLAMA, 2048) == pytest.approx(1.07e9, rel=0.01)
    assert c.tensor_parallel_bytes(LLAMA, 1, 4) == 2 * 524_288
    small = models.load("smollm2-135m")
    assert (c.tensor_parallel_all_reduces(small), c.tensor_parallel_message(small, 1)) == (60, 1152)


def test_by_hand():
    assert c.message_seconds(100, 2, 0.5) == 52
    assert c.reduce_scatter_seconds(100, 4, 2, 0.5) == c.all_gather_seconds(100, 4, 2, 0.5) == 3 * (2 + 12.5)
    assert c.ring_all_reduce_seconds(100, 4, 2, 0.5) == 6 * (2 + 12.5)
    assert [c.tree_all_reduce_seconds(100, p, 2, 0.5) / 52 for p in (1, 2, 3, 4, 5, 8, 9)] == [0, 2, 4, 4, 6, 6, 8]
    assert c.direct_all_reduce_seconds(100, 4, 2, 0.5) == 2 + 150
    assert c.half_speed_bytes(3e-6, 1 / 450e9) == pytest.approx(1.35e6)


def test_one_rank_costs_nothing():
    for collective in (c.reduce_scatter_seconds, c.all_gather_seconds, c.ring_all_reduce_seconds):
        assert collective(100, 1, 2, 0.5) == 0
    assert c.tree_all_reduce_seconds(100, 1, 2, 0.5) == c.direct_all_reduce_seconds(100, 1, 2, 0.5) == 0


def test_latency_favours_direct_and_bytes_the_ring():
    link = (3e-6, 1 / 450e9)
    small, large = 8192, 16 * 2**20
    assert c.direct_all_reduce_seconds(small, 8, *link) < c.tree_all_reduce_seconds(small, 8, *link)
    assert c.tree_all_reduce_seconds(small, 8, *link) < c.ring_all_reduce_seconds(small, 8, *link)
    assert c.ring_all_reduce_seconds(large, 8, *link) < c.direct_all_reduce_seconds(large, 8, *link)
    assert c.ring_all_reduce_seconds(large, 8, *link) < c.tree_all_reduce_seconds(large, 8, *link)


@pytest.mark.parametrize("bad", [(-1, 2, 0, 0), (1, 0, 0, 0), (1, 2, -1, 0), (1, 2, 0, -1)])
def test_nonsense_is_refused(bad):
    for collective in (c.ring_all_reduce_seconds, c.tree_all_reduce_seconds, c.direct_all_reduce_seconds):
        with pytest.raises(ValueError):
            collective(*bad)
    with pytest.raises(ValueError):
        c.tensor_parallel_bytes(LLAMA, 0)
    with pytest.raises(ValueError):
        c.half_speed_bytes(1, 0)


def test_the_fit_against_numpy():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = rng.integers(1, 1e7, 9).astype(float)
        t = (1e-5 + n / 5e9) * rng.uniform(0.8, 1.25, 9)
        expected = np.linalg.lstsq(np.stack([1 / t, n / t], 1) * [1e-5, 1e-9], np.ones(9), rcond=None)[0] * [1e-5, 1e-9]
        if (expected >= 0).all():
            assert c.alpha_beta_fit(n, t) == pytest.approx(tuple(expected), rel=1e-6)
