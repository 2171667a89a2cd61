"""The logic of timing, with a timer that answers what it is told: no GPU, no clock."""

import pytest
import torch
from minillm.kernels.instruments import bench as module
from minillm.kernels.instruments.bench import MeasuredCeilings, NoGPUError, Timing, bench, input_sets, measure_ceilings

CEILINGS = MeasuredCeilings("a card", bandwidth=1e12, flops=100e12, dtype="bfloat16")


class FakeTimer:
    """Each pass takes the next of `times`, the last one for ever."""

    def __init__(self, *times):
        self.times = list(times)
        self.passes = 0
        self.made_ready = 0

    def ready(self, calls):
        self.made_ready += 1
        return calls

    def seconds(self, calls):
        calls()
        self.passes += 1
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def test_a_call_is_a_share_of_a_pass():
    timer = FakeTimer(0.02)
    timing = bench(lambda x: None, [(1,), (2,), (3,), (4,)], timer=timer, moved_bytes=10**9, flops=1e11)
    assert timing.seconds == pytest.approx(0.005)
    assert (timing.bandwidth, timing.flops_rate) == (pytest.approx(2e11), pytest.approx(2e13))
    assert (timing.bandwidth_share(CEILINGS), timing.flops_share(CEILINGS)) == (pytest.approx(0.2), pytest.approx(0.2))
    assert timing.spread == 0


def test_every_pass_runs_every_set_in_turn():
    seen = []
    bench(lambda *x: seen.append(x), [(1, "a"), (2, "b"), (3, "c")], timer=FakeTimer(1.0), warmup_s=0, measure_s=0)
    assert seen[:6] == [(1, "a"), (2, "b"), (3, "c")] * 2
    assert len(seen) == 3 * (1 + module.FEWEST_PASSES)


def test_warm_up_is_not_counted():
    timer = FakeTimer(9.0, 0.5, 0.1)  # the first pass compiles
    timing = bench(lambda: None, [(), ()], timer=timer, warmup_s=9.55, measure_s=2)
    assert timing.samples == (0.05,) * 20
    assert timer.passes == 3 + 20
    assert timer.made_ready == 1


@pytest.mark.parametrize(
    "took, passes", [(10.0, module.FEWEST_PASSES), (0.01, 50), (1e-6, module.MOST_PASSES), (0.0, module.MOST_PASSES)]
)
def test_there_are_neither_too_few_nor_too_many_passes(took, passes):
    assert len(bench(lambda: None, [(), ()], timer=FakeTimer(took), warmup_s=0, measure_s=0.5).samples) == passes


def test_one_outlier_changes_neither_median_nor_spread():
    timing = Timing((1.0,) * 20 + (50.0,))
    assert (timing.seconds, timing.spread) == (1.0, 0.0)
    assert Timing(tuple(float(i) for i in range(90, 111))).spread == pytest.approx(16 / 100)


def test_what_was_not_given_is_not_stated():
    timing = Timing((0.001,))
    assert timing.bandwidth is timing.flops_rate is timing.bandwidth_share(CEILINGS) is timing.flops_share(CEILINGS) is None
    assert timing.summary(CEILINGS) == "1 ms ±0.0 %"


def test_the_summary():
    timing = Timing((0.002, 0.002), moved_bytes=10**9, flops=1e11)
    assert timing.summary(CEILINGS) == "2 ms ±0.0 %, 500 GB/s (50% of a copy), 50 TFLOP/s (50% of a big GEMM)"
    assert timing.summary() == "2 ms ±0.0 %, 500 GB/s, 50 TFLOP/s"


def test_one_set_of_inputs_is_refused():
    with pytest.raises(ValueError, match="two sets of inputs"):
        bench(lambda x: x, [(1,)], timer=FakeTimer(1.0))


@pytest.mark.parametrize("set_bytes, count", [(10, 40), (40, 10), (1000, 2), (1, module.MOST_SETS), (39, 11)])
def test_sets_outgrow_the_cache(set_bytes, count):
    made = []
    sets = input_sets(lambda: made.append(1) or (len(made),), set_bytes, cache_bytes=100)
    assert sets == [(i + 1,) for i in range(count)]


def test_a_set_of_no_bytes_is_refused():
    with pytest.raises(ValueError, match="0 bytes"):
        input_sets(tuple, 0, cache_bytes=100)


@pytest.mark.parametrize(
    "timed", [lambda: bench(lambda: None, [(), ()]), measure_ceilings, lambda: input_sets(tuple, 1), lambda: module.CudaTimer()]
)
def test_without_a_gpu_it_says_so(monkeypatch, timed):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NoGPUError, match="torch finds none here; inspect and traffic need none"):
        timed()
