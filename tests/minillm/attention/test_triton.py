"""The Triton backend around its kernels: what it needs, when it waits, what it gives to which kernel."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minillm.attention import make_attention
from minillm.attention.triton import AttentionKernels, TritonAttention

DECODES, LATER, FRESH = [(0, 5, 6), (2, 0, 1)], [(1, 3, 9)], [(3, 0, 4), (4, 0, 2)]  # a later chunk, two prompts
CHUNKS = [*DECODES, *LATER, *FRESH]


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
        one, mixed, write = (self.recorder(name) for name in ("one", "mixed", "write"))
        self.backend = TritonAttention(AttentionKernels(self.fresh, mixed, one))
        self.backend.kv_write = write

    def recorder(self, name):
        return lambda *arguments, **options: self.calls.append((name, arguments, options))

    def fresh(self, q, *arguments, **options):
        self.recorder("fresh")(q, *arguments, **options)
        return q + 1, None

    def run(self, meta, num_tokens, cache):
        torch.manual_seed(0)
        q, k, v = (torch.randn(num_tokens, heads, 8) for heads in (6, 2, 2))
        return q, k, v, self.backend.plan(meta, 0.3, 5)(q, k, v, cache)

    @property
    def names(self):
        return [name for name, *_ in self.calls]


@pytest.fixture
def recorded():
    return Recorded()


def test_a_layer_only_launches(recorded, layout_kind):
    """Between a plan and the output nothing is copied to Python, so that a CUDA graph can hold it."""
    place = layout_kind("paged", 5, 14)
    attend = recorded.backend.plan(place.metadata(CHUNKS), 0.3, 5)
    q, k, v = torch.randn(14, 6, 8), torch.randn(14, 2, 8), torch.randn(14, 2, 8)
    with NoWaiting():
        attend(q, k, v, place.cache(2, 8))
    assert recorded.names == ["write", "one", "mixed", "fresh"]
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        q[0, 0, 0].item()


@pytest.mark.parametrize("behind", [True, False], ids=["prompts last", "prompts first"])
def test_each_kind_of_sequence_gets_its_own_rows(recorded, layout_kind, behind):
    place = layout_kind("paged", 5, 14)
    meta = place.metadata([*DECODES, *LATER, *FRESH] if behind else [*DECODES, *FRESH, *LATER])
    q, k, v, out = recorded.run(meta, 14, place.cache(2, 8))
    (_, one, options), (_, mixed, same), (_, fresh, score) = recorded.calls[1:]
    assert torch.equal(one[0], q[:2]) and torch.equal(one[3], meta.block_tables[:2])
    assert one[4].tolist() == [6, 1] and one[5] == 6
    old, new, table = (slice(2, 8), slice(8, 14), slice(2, 3)) if behind else (slice(8, 14), slice(2, 8), slice(4, 5))
    assert torch.equal(mixed[0], q[old]) and torch.equal(mixed[3], meta.block_tables[table])
    assert mixed[4].tolist() == [0, 6] and mixed[5].tolist() == [9] and mixed[6] == 6
    assert [torch.equal(got, x[new]) for got, x in zip(fresh, (q, k, v), strict=False)] == [True] * 3
    assert fresh[3].tolist() == fresh[4].tolist() == [0, 4, 6] and fresh[5] == 4
    assert torch.equal(out[new], q[new] + 1)
    assert score == {"scale": 0.3, "sliding_window": 5}
    assert {name: same[name] for name in score} == {name: options[name] for name in score} == score
    assert (options["out"].data_ptr(), same["out"].data_ptr()) == (out.data_ptr(), out[old].data_ptr()), "one output for all"


@pytest.mark.parametrize(
    "chunks, names",
    [
        (DECODES, ["one"]),
        (FRESH, ["fresh"]),
        (LATER, ["mixed"]),
        ([*FRESH, *LATER], ["mixed", "fresh"]),
        ([*DECODES, *FRESH], ["one", "fresh"]),
        ([FRESH[0], *LATER, FRESH[1]], ["mixed"]),  # new ones on both sides of another: no range of their own
        ([LATER[0], FRESH[0], (4, 2, 4)], ["mixed"]),
    ],
)
def test_one_launch_of_a_kind(recorded, layout_kind, chunks, names):
    place = layout_kind("paged", 5, 14)
    recorded.run(place.metadata(chunks), sum(end - start for _, start, end in chunks), place.cache(2, 8))
    assert recorded.names == ["write", *names]


def test_prompts_alone_are_not_copied(recorded, layout_kind):
    place = layout_kind("paged", 5, 14)
    attend = recorded.backend.plan(place.metadata(FRESH), 0.3)
    result = torch.zeros(6, 6, 8)
    attend.kernels = AttentionKernels(lambda *_, **__: (result, None), None, None)
    assert attend(*(torch.randn(6, heads, 8) for heads in (6, 2, 2)), place.cache(2, 8)) is result


def test_blocks_of_any_size_are_written(recorded, layout_kind):
    """A contiguous cache has one block of max_model_len slots a sequence, which the writing kernel need not take."""
    place = layout_kind("rows", 5, 14)
    cache, meta = place.cache(2, 8), place.metadata(CHUNKS)
    _, k, _, _ = recorded.run(meta, 14, cache)
    assert recorded.names == ["one", "mixed", "fresh"]
    assert torch.equal(cache[meta.slot_mapping[0] // 14, 0, :, :, meta.slot_mapping[0] % 14], k[0])


@pytest.mark.parametrize("window", [None, 1, 5], ids=lambda window: f"window {window}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "chunks", [FRESH, CHUNKS, [*DECODES, *FRESH, *LATER], [*DECODES, FRESH[0], *LATER, FRESH[1]]],
    ids=["prompts", "prompts last", "prompts first", "prompts on both sides"],
)  # fmt: skip
def test_the_same_as_sdpa(layout_kind, chunks, dtype, window):
    """Six query heads share two of keys; a prefix hit is a later chunk to this backend."""
    place, outputs = layout_kind("paged", 5, 14), []
    for name in ("sdpa", "triton"):
        torch.manual_seed(0)
        cache = place.cache(2, 8, dtype) / 1e4
        q, k, v = (torch.randn(sum(end - start for _, start, end in chunks), heads, 8).to(dtype) for heads in (6, 2, 2))
        outputs.append((make_attention(name).plan(place.metadata(chunks), 0.3, window)(q, k, v, cache), cache))
    (ours, our_cache), (theirs, their_cache) = reversed(outputs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)
    assert torch.equal(our_cache, their_cache)
