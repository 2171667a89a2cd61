"""Little's law: known answers, and that its forms agree with one another."""

import pytest

from shared import hardware
from shared.concurrency import bytes_in_flight, requests_in_flight, sustained_bandwidth, warps_needed
from shared.occupancy import MULTIPROCESSORS

GPU = hardware.load("rtx-4090")


def test_the_4090():
    assert bytes_in_flight(GPU.bandwidth, 500e-9) == pytest.approx(504_000)
    assert requests_in_flight(GPU.bandwidth, 500e-9, 128) == 3938
    assert warps_needed(GPU.bandwidth, 500e-9, int(GPU.value("multiprocessors"))) == 31 <= MULTIPROCESSORS["8.9"].max_warps


@pytest.mark.parametrize("requests", [1, 2, 3, 1000, 123_457])
def test_requests_are_whole(requests):
    assert requests_in_flight(requests * 64e9, 1e-9, 64) == requests
    assert requests_in_flight(requests * 64e9 + 64, 1e-9, 64) == requests, "a billionth more is float rounding"
    assert requests_in_flight(requests * 64e9 * 1.001, 1e-9, 64) == max(requests + 1, -(-requests * 1001 // 1000))


def test_float_rounding_is_no_request():
    assert 400 * 1e-9 * 8e9 > 3200
    assert requests_in_flight(8e9, 400 * 1e-9, 64) == 50


def test_what_is_needed_is_enough():
    for latency in (100e-9, 500e-9, 800e-9):
        enough = bytes_in_flight(GPU.bandwidth, latency)
        assert sustained_bandwidth(enough, latency, GPU.bandwidth) == pytest.approx(GPU.bandwidth)
        assert sustained_bandwidth(enough / 4, latency, GPU.bandwidth) == pytest.approx(GPU.bandwidth / 4)
        assert sustained_bandwidth(enough * 4, latency, GPU.bandwidth) == GPU.bandwidth


@pytest.mark.parametrize("call", [
    lambda: bytes_in_flight(0, 1), lambda: requests_in_flight(1, 1, 0), lambda: warps_needed(1, 1, 0),
    lambda: warps_needed(1, 1, 1, loads_per_lane=0), lambda: sustained_bandwidth(0, 1, 1),
])  # fmt: skip
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must be above zero"):
        call()
