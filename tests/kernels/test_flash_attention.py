"""FlashAttention against attention written out in float64, against its twin, and byte by byte."""

import math
import mmap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minillm.kernels.attention_tiles import Tiles, flash_attention_tiles, paged_attention_tiles, paged_decode_tiles
from minillm.kernels.flash_attention import (
    SHIPPED,
    flash_attention,
    flash_attention_bytes,
    flash_attention_torch,
    flash_attention_varlen,
    flash_attention_varlen_torch,
)
from minillm.kernels.instruments.traffic import trace

SMALL = Tiles(32, 16, 4, 1)  # several tiles in shapes that the interpreter gets through
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def written_out(q, k, v, causal=True, sliding_window=None):
    """q [Sq, H, D]; k, v [Sk, KV, D]. Output and log-sum-exp [H, Sq], in float64."""
    q, (k, v) = q.double(), (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    key, position = torch.arange(len(k)), torch.arange(len(q))[:, None] + len(k) - len(q)
    if causal:
        scores[:, key > position] = -math.inf
    if sliding_window:
        scores[:, key <= position - sliding_window] = -math.inf
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0), v), scores.logsumexp(-1)


def inputs(queries, keys, heads=2, kv_heads=1, dim=16, dtype=torch.float32, batch=1):
    q, k, v = (torch.randn(batch, n, h, dim).to(dtype) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads)))
    return q, k, v


def check(q, k, v, tiles=SMALL, **options):
    got, lse = flash_attention(q, k, v, tiles=tiles, **options)
    twin, twin_lse = flash_attention_torch(q, k, v, **options)
    assert got.shape == q.shape and got.dtype == q.dtype and lse.dtype == torch.float32
    want, want_lse = zip(*(written_out(*x, **options) for x in zip(q, k, v, strict=True)), strict=True)
    tolerance = TOLERANCE[q.dtype]
    torch.testing.assert_close(got.double(), torch.stack(want), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(got, twin, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), torch.stack(want_lse), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(twin_lse, lse, atol=1e-5, rtol=1e-5)
    return got, lse


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "kv_heads", "dim"),
    [
        (1, 1, 1, 1, 16),
        (33, 33, 4, 2, 16),  # one row and one column over
        (64, 64, 1, 1, 64),  # nothing over
        (7, 40, 3, 1, 24),  # a later chunk; head_dim no power of two
        (45, 20, 1, 1, 16),  # more queries than keys: the first 25 see nothing
        (20, 45, 2, 2, 8),  # head_dim below what tl.dot takes on a GPU
    ],
)
def test_causal_over_awkward_shapes(dtype, queries, keys, heads, kv_heads, dim):
    check(*inputs(queries, keys, heads, kv_heads, dim, dtype))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_every_key_is_seen_when_not_causal(dtype):
    check(*inputs(17, 39, dtype=dtype, batch=2), causal=False)


@pytest.mark.parametrize("window", [1, 5, 16, 17, 40, 200])
def test_a_sliding_window(window):
    check(*inputs(50, 70, heads=1), sliding_window=window)


def test_the_tiles_that_are_launched():
    check(*inputs(150, 150, heads=1, dim=64), tiles=None)
    check(*inputs(150, 150, heads=1, dim=128, dtype=torch.bfloat16), tiles=None)
    check(*inputs(10, 10, heads=1, dim=136, dtype=torch.bfloat16), tiles=None)


def test_rows_without_keys_are_zero_and_never_nan():
    out, lse = flash_attention(*inputs(40, 8), tiles=SMALL)
    assert (out[:, :32] == 0).all() and (lse[..., :32] == -math.inf).all() and lse[..., 32:].isfinite().all()
    out, lse = flash_attention(*inputs(3, 0), tiles=SMALL)
    assert (out == 0).all() and (lse == -math.inf).all()


def test_no_queries():
    out, lse = flash_attention(*inputs(0, 5))
    assert out.shape == (1, 0, 2, 16) and lse.shape == (1, 2, 0)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_scores_of_minus_infinity():
    """A key that is ruled out by its own numbers, a whole tile of such keys, and all of them."""
    q, k, v = inputs(40, 40, heads=1)
    q[..., 0] = 1.0
    for ruled_out in (slice(3, 4), slice(0, 16), slice(0, 40)):
        k[:, ruled_out, :, 0] = -math.inf
        check(q, k, v)


def test_large_scores_do_not_overflow():
    q, k, v = inputs(40, 40, dtype=torch.float16)
    check(q * 100, k * 100, v)
    out, lse = flash_attention(q, k, v, scale=1e30, tiles=SMALL)
    assert out.isfinite().all() and not lse.isnan().any()


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_tiles_above_the_diagonal_and_before_the_window_are_not_read():
    q, k, v = inputs(64, 64, heads=1)
    k[:, 32:], v[:, 32:] = math.nan, math.nan
    assert flash_attention(q, k, v, tiles=SMALL)[0][:, :32].isfinite().all()
    q, k, v = inputs(64, 64, heads=1)
    k[:, :16], v[:, :16] = math.nan, math.nan
    assert flash_attention(q, k, v, sliding_window=8, tiles=SMALL)[0][:, 32:].isfinite().all()


def test_views_with_strides():
    """q, k and v of one fused projection, as a decoder has them, and heads before tokens."""
    fused = torch.randn(2, 35, 4 + 2 + 2, 16)
    check(*fused.split([4, 2, 2], dim=2))
    check(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(35, 35, batch=2)))


def test_sequences_of_any_length():
    lengths_q, lengths_k = [5, 0, 33, 1, 40], [5, 3, 50, 0, 20]
    cu_q, cu_k = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (lengths_q, lengths_k))
    q, k, v = (x[0] for x in inputs(sum(lengths_q), sum(lengths_k)))
    for options in ({}, {"causal": False}, {"sliding_window": 7}):
        got, lse = flash_attention_varlen(q, k, v, cu_q, cu_k, max(lengths_q), tiles=SMALL, **options)
        for i in range(5):
            rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
            want, want_lse = written_out(q[rows], k[keys], v[keys], **options)
            torch.testing.assert_close(got[rows].double(), want, atol=2e-6, rtol=0)
            torch.testing.assert_close(lse[:, rows].double(), want_lse, atol=1e-5, rtol=1e-5)
        twin = flash_attention_varlen_torch(q, k, v, cu_q, cu_k, max(lengths_q), **options)
        torch.testing.assert_close((got, lse), twin, atol=1e-5, rtol=1e-5)


@settings(max_examples=12)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3),
    window=st.none() | st.integers(1, 45),
    seed=st.integers(0, 99),
)
def test_any_batch_equals_its_twin(lengths, window, seed):
    torch.manual_seed(seed)
    cu_q, cu_k = (torch.tensor([0, *row]).cumsum(0).int() for row in zip(*lengths, strict=True))
    q, k, v = (x[0] for x in inputs(int(cu_q[-1]), int(cu_k[-1]), heads=1))
    arguments = q, k, v, cu_q, cu_k, max(n for n, _ in lengths)
    got = flash_attention_varlen(*arguments, sliding_window=window, tiles=SMALL)
    torch.testing.assert_close(got, flash_attention_varlen_torch(*arguments, sliding_window=window), atol=1e-5, rtol=1e-5)


def test_offsets_beyond_32_bits():
    """A third sequence that begins 2³¹ elements after the first; the memory between them is never touched."""
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 2**12)), dtype=torch.float16)
    q, k, v = (memory[start:].as_strided((3, 20, 1, 16), (2**30, 16, 16, 1)) for start in (0, 320, 640))
    for x in (q, k, v):
        x.copy_(torch.randn(x.shape))
    check(q, k, v)


def test_heads_beyond_32_bits():
    """The third of three heads that lie outermost begins 2³¹ elements after the first."""
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 2**12)), dtype=torch.float16)
    q, k, v = (memory[start:].as_strided((1, 20, 3, 16), (0, 16, 2**30, 1)) for start in (0, 320, 640))
    for x in (q, k, v):
        x.copy_(torch.randn(x.shape))
    check(q, k, v)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_shows(broken):
    """Where a query sees it, and nowhere else; in the log-sum-exp too."""
    q, k, v = inputs(20, 20)
    k[0, 10, 0, 0], q[..., 0] = broken, 1.0
    out, lse = flash_attention(q, k, v, tiles=SMALL)
    assert out[:, 10:].isnan().all() and lse[..., 10:].isnan().all()
    assert out[:, :10].isfinite().all() and lse[..., :10].isfinite().all()


@pytest.mark.parametrize("options", [{}, {"causal": False}, {"sliding_window": 20}], ids=str)
def test_bytes_are_those_derived(options):
    q, k, v = inputs(70, 90, heads=2, kv_heads=2, dtype=torch.bfloat16)
    with trace(q=q, k=k, v=v) as counted:
        flash_attention(q, k, v, tiles=SMALL, **options)
    report, derived = counted.report(), flash_attention_bytes([70], [90], 2, 16, 2, SMALL, **options)
    assert {name: report[name].load_bytes for name in "qkv"} == {name: derived[name] for name in "qkv"}
    assert report.store_bytes == derived["out"] + derived["lse"]
    assert report["q"].reuse == 1


def test_bytes_of_the_docstring():
    """S = 128, D = 16, no mask: 2·S·D + 2·S·D·S / BLOCK_M elements a head; and causal saves the tiles above the diagonal."""
    moved = flash_attention_bytes([128], [128], 1, 16, 2, SMALL, causal=False)
    assert moved["q"] + moved["out"] == 2 * 2 * 128 * 16 and moved["k"] + moved["v"] == 2 * 2 * 128 * 16 * 128 // 32
    causal = flash_attention_bytes([128], [128], 1, 16, 2, SMALL)
    assert causal["k"] / moved["k"] == (32 + 64 + 96 + 128) / (4 * 128)


def test_what_is_refused():
    q, k, v = inputs(4, 4)
    for message, arguments, options in [
        ("2 query heads cannot share 3", (q, *(torch.randn(1, 4, 3, 16) for _ in "kv")), {}),
        ("scale is -1", (q, k, v), {"scale": -1.0}),
        ("sliding_window is 0", (q, k, v), {"sliding_window": 0}),
        ("needs causal=True", (q, k, v), {"causal": False, "sliding_window": 3}),
        (r"pass q\.contiguous\(\)", (torch.randn(1, 4, 16, 2).transpose(2, 3), k, v), {}),
        ("q is a lazily negated view", (torch._neg_view(q), k, v), {}),
        ("v has shape", (q, k, v[:, :3]), {}),
        ("k has shape", (q, k[..., :8], v), {}),
        ("q has 3 dimensions", (q[0], k, v), {}),
    ]:
        with pytest.raises(ValueError, match=message):
            flash_attention(*arguments, **options)
    with pytest.raises(TypeError, match="k is float16, q float32"):
        flash_attention(q, k.half(), v)
    with pytest.raises(TypeError, match="cu_seqlens_q is int64"):
        flash_attention_varlen(q[0], k[0], v[0], torch.tensor([0, 4]), torch.tensor([0, 4]), 4)


@pytest.mark.parametrize("head_dim", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("sm", [80, 89, 90, 120])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_keys_and_values_in_flight_fit_shared_memory(head_dim, sm, itemsize):
    """Beside the queries; in float32, whose products are of three TF32 halves, one more tile is held than is in flight."""
    padded, held = 1 << (head_dim - 1).bit_length(), 1 if itemsize > 2 else 0
    limit = {80: 163, 90: 227}.get(sm, 99) * 1024
    for tiles in (
        flash_attention_tiles(head_dim, itemsize, sm),
        paged_attention_tiles(head_dim, itemsize, 4, 512, sm),
        paged_decode_tiles(head_dim, itemsize, 4),
    ):
        in_flight = 2 * (tiles.num_stages - 1 + held) * tiles.BLOCK_N
        assert (in_flight + tiles.BLOCK_M) * padded * itemsize <= limit


def test_shipped_variants_are_what_is_launched():
    assert len({variant.name for variant in SHIPPED}) == len(SHIPPED)
    for variant in SHIPPED:
        tiles = flash_attention_tiles(variant.constexprs["HEAD_DIM"], 2, variant.min_sm)
        assert (tiles.BLOCK_M, tiles.BLOCK_N) == (variant.constexprs["BLOCK_M"], variant.constexprs["BLOCK_N"])
        assert tiles.num_warps == variant.num_warps and tiles.num_stages == variant.num_stages
