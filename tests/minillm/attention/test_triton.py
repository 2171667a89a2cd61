"""The Triton backend around its kernels: what it needs, when it waits, what it gives to which kernel."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minillm.attention import make_attention
from minillm.attention.triton import TritonAttention, _Kernels

CHUNKS = [(0, 5, 6), (2, 0, 1), (1, 3, 9), (3, 0, 4)]  # two decodes, a later chunk, a prompt


def run(code):
    """In a new Python. Returns what it printed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_triton_is_imported_by_whoever_makes_one():
    assert run("import sys, minillm.attention, minillm.parts; print('triton' in sys.modules)") == "False"


def test_without_triton_the_error_says_what_to_do():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from minillm.attention import make_attention\nfrom minillm.errors import ConfigError\n"
        "try: make_attention('triton')\nexcept ConfigError as e: print(e)"
    )
    said = run(code)
    assert said.startswith("--attention triton needs Triton") and "pip install triton, or choose --attention sdpa" in said


class NoWaiting(TorchDispatchMode):
    """Fails where a number is fetched from a tensor, for which a GPU would be waited for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "waits for the GPU"
        return func(*args, **(kwargs or {}))


class Recorded:
    """Stands for the kernels and keeps what they are called with."""

    def __init__(self):
        self.calls = []
        self.kernels = _Kernels(*map(self.recorder, ("write", "mixed", "one")))

    def recorder(self, name):
        return lambda *arguments, **options: self.calls.append((name, arguments, options))


@pytest.fixture
def recorded(monkeypatch):
    seen = Recorded()
    monkeypatch.setattr(TritonAttention, "__init__", lambda self: setattr(self, "_kernels", seen.kernels))
    return seen


def test_a_layer_only_launches(recorded, layout_kind):
    """Between a plan and the output nothing is copied to Python, so that a CUDA graph can hold it."""
    place = layout_kind("paged", 4, 12)
    attend = make_attention("triton").plan(place.metadata(CHUNKS), 0.3, 5)
    q, k, v = torch.randn(12, 6, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    with NoWaiting():
        attend(q, k, v, place.cache(2, 8))
    assert [name for name, *_ in recorded.calls] == ["write", "one", "mixed"]
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        q[0, 0, 0].item()


def test_decodes_and_chunks_get_their_own_rows(recorded, layout_kind):
    place = layout_kind("paged", 4, 12)
    meta = place.metadata(CHUNKS)
    q, k, v = torch.randn(12, 6, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    make_attention("triton").plan(meta, 0.3, 5)(q, k, v, place.cache(2, 8))
    (_, one, options), (_, mixed, same) = recorded.calls[1:]
    assert torch.equal(one[0], q[:2]) and torch.equal(one[3], meta.block_tables[:2])
    assert one[4].tolist() == [6, 1] and one[5] == 6
    assert torch.equal(mixed[0], q[2:]) and torch.equal(mixed[3], meta.block_tables[2:])
    assert mixed[4].tolist() == [0, 6, 10] and mixed[5].tolist() == [9, 4] and mixed[6] == 6
    assert options["scale"] == same["scale"] == 0.3 and options["sliding_window"] == same["sliding_window"] == 5
    assert options["out"].data_ptr() + 2 * 6 * 8 * 4 == same["out"].data_ptr(), "one output, which both write"


def test_blocks_of_any_size_are_written(recorded, layout_kind):
    """A contiguous cache has one block of max_model_len slots a sequence, which the writing kernel need not take."""
    place = layout_kind("rows", 4, 12)
    cache, meta = place.cache(2, 8), place.metadata(CHUNKS)
    q, k, v = torch.randn(12, 6, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    make_attention("triton").plan(meta, 0.3)(q, k, v, cache)
    assert [name for name, *_ in recorded.calls] == ["one", "mixed"]
    assert torch.equal(cache[meta.slot_mapping[0] // 12, 0, :, :, meta.slot_mapping[0] % 12], k[0])
