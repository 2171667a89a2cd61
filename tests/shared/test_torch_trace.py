"""A real profile of a few calls whose FLOPs and bytes are known by hand."""

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from labs.kit.tiny_model import recompute
from shared.bound import self_seconds
from shared.torch_trace import from_chrome


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    table, ids = torch.ones(50, 8), torch.tensor([3, 4, 5])
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler, torch.inference_mode():
        torch.ones(7, 7) @ torch.ones(7, 7)  # outside of the step
        with record_function("step"):
            x = torch.nn.functional.embedding(ids, table)
            y = torch.nn.functional.linear(x, torch.ones(5, 8))
            z = y.view(5, 3) * 2.0
            torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 6))
            torch.ones(1, 6).expand(4, 6) + torch.ones(4, 6)
            del z
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    profiler.export_chrome_trace(str(path))
    return json.loads(path.read_text())


@pytest.fixture
def trace(raw):
    return from_chrome(raw, peak_flops=1e9, bandwidth=1e9)


def work(trace, name):
    return [(e.flops, e.bytes) for e in trace.events if e.name == name and e.flops + e.bytes]


def test_flops_and_bytes_by_hand(trace):
    assert work(trace, "mm") == [(2 * 3 * 8 * 5, 4 * (3 * 8 + 8 * 5 + 3 * 5))]
    assert work(trace, "bmm") == [(2 * 2 * 3 * 4 * 6, 4 * 2 * (3 * 4 + 4 * 6 + 3 * 6))]
    assert work(trace, "index_select") == [(0, 2 * 3 * 8 * 4)]
    assert work(trace, "mul") == [(0, 4 * 2 * 15)]
    assert work(trace, "add") == [(0, 4 * (6 + 24 + 24))]


def test_views_and_callers_have_no_work(trace):
    for name in ("linear", "view", "t", "transpose", "as_strided", "expand", "embedding"):
        assert any(e.name == name for e in trace.events) and not work(trace, name), name


def test_calls_nest_within_the_step(trace):
    own = self_seconds(trace.events)
    assert min(own) > -1e-7
    assert all(e.start >= 0 and e.start + e.duration <= trace.seconds * 1.000001 for e in trace.events)
    assert sum(own) < trace.seconds


def test_the_same_flops_as_torch_counts(tmp_path):
    with FlopCounterMode(display=False) as counter:
        recompute([1, 2, 3, 4, 5])
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler, record_function("step"):
        recompute([1, 2, 3, 4, 5])
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = from_chrome(json.loads((tmp_path / "trace.json").read_text()), peak_flops=1e9, bandwidth=1e9)
    assert sum(e.flops for e in found.events) == counter.get_total_flops() > 0


def test_one_span_is_asked_for(raw):
    with pytest.raises(ValueError, match="0 spans are called 'prefill'"):
        from_chrome(raw, peak_flops=1, bandwidth=1, step="prefill")
    [span] = [e for e in raw["traceEvents"] if e.get("cat") == "user_annotation"]
    with pytest.raises(ValueError, match="2 spans"):
        from_chrome({"traceEvents": [*raw["traceEvents"], span]}, peak_flops=1, bandwidth=1)


def test_a_gpu_is_refused(raw):
    with pytest.raises(ValueError, match="trace of a GPU"):
        from_chrome({"traceEvents": [*raw["traceEvents"], {"cat": "kernel", "name": "gemv"}]}, peak_flops=1, bandwidth=1)
