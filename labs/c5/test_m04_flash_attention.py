"""Checks of 5.4, in the order in which one writes the kernel: values against torch's float64, bytes moved, the compiler."""

from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.attention_tiles import Tiles
from minillm.kernels.instruments.traffic import trace

from labs.kit.dots import assert_dots
from labs.kit.far_apart import far_apart
from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, counted, random
from labs.kit.launches import launches

pytestmark = checks("flash_attention_varlen")
SMALL = Tiles(16, 16, 4, 2)  # many tiles from few tokens: the interpreter takes its time for each
TOLERANCE = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def starts(lengths):
    return torch.tensor([0, *lengths], device=DEVICE).cumsum(0).to(torch.int32)


def inputs(lengths, heads=1, kv_heads=1, dim=16, dtype=torch.float32):
    """q, k, v of sequences of `lengths`, pairs of (queries, keys)."""
    queries, keys = (sum(each) for each in zip(*lengths, strict=True))
    return random(queries, heads, dim, dtype=dtype), *(random(keys, kv_heads, dim, dtype=dtype) for _ in range(2))


def call(function, q, k, v, lengths, tiles=SMALL, **options):
    queries, keys = zip(*lengths, strict=True)
    return function(q, k, v, starts(queries), starts(keys), max(queries), tiles=tiles, **options)


def one(q, k, v, causal=True, scale=None, sliding_window=None):
    """Attention of one sequence by torch's operators, in float64: o [Sq, H, D], lse [H, Sq]."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(k), 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) * (scale or q.shape[-1] ** -0.5)
    key = torch.arange(k.shape[1], device=DEVICE)
    position = torch.arange(q.shape[1], device=DEVICE)[:, None] + k.shape[1] - q.shape[1]
    if causal:
        scores = scores.masked_fill(key > position, -torch.inf)
    if sliding_window:
        scores = scores.masked_fill(key <= position - sliding_window, -torch.inf)
    return (scores.softmax(-1).nan_to_num(0) @ v).transpose(0, 1), scores.logsumexp(-1)


def expected(q, k, v, lengths, **options):
    edges = (pairwise([0, *torch.tensor(each).cumsum(0).tolist()]) for each in zip(*lengths, strict=True))
    found = [one(q[a:b], k[c:d], v[c:d], **options) for (a, b), (c, d) in zip(*edges, strict=True)]
    return torch.cat([o for o, _ in found]), torch.cat([s for _, s in found], 1)


def assert_attends(function, tensors, lengths, said, hint, fence=fenced, **options):
    with fence():
        o, lse = call(function, *tensors, lengths, **options)
    options.pop("tiles", None)
    want, want_lse = expected(*tensors, lengths, **options)
    dtype = tensors[0].dtype
    said = f"{said}; (queries, keys) = {lengths}, q {list(tensors[0].shape)}, k {list(tensors[1].shape)}, {dtype}, {options}"
    assert_equal((o.dtype, lse.dtype), (dtype, torch.float32), "the dtypes of o and lse", inputs=said)
    size = TOLERANCE[dtype]
    scale = max(1.0, float(want.abs().max())) if want.numel() else 1.0
    assert_close(o.double(), want, "o", atol=size * scale, rtol=size, inputs=said, hint=hint)
    lse_hint = f"{hint}. If all of lse is 1.4427 times too large, it is in base 2: multiply by ln 2"
    assert_close(lse.double(), want_lse, "lse", atol=1e-4, rtol=1e-4, inputs=said, hint=lse_hint)


# ----------------------------------------------------------------------------------------------------------------- tiles of keys


def test_a_single_tile(lab):
    lengths = [(16, 16)]
    hint = "scores = q · kᵀ * scale, once; m their maximum in each row; o = exp(scores - m) · v / its sum; lse = m + ln(sum)"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "one tile of keys, no mask", hint, causal=False)


@pytest.mark.parametrize("growing", [True, False], ids=["the largest score last", "the largest score first"])
def test_several_tiles_of_keys(lab, growing):
    lengths = [(16, 64)]
    q, k, v = inputs(lengths)
    along = torch.linspace(0, 8, 64, device=DEVICE)
    k = k + (along if growing else along.flip(0))[:, None, None] * q.mean(0).sign()
    q = q.abs() * q.mean(0).sign()
    hint = "when a tile raises the maximum from m to m', what was summed so far, sum AND output, is multiplied by exp(m - m')"
    assert_attends(lab.flash_attention_varlen, (q, k, v), lengths, "four tiles of keys", hint, causal=False)


def test_keys_that_do_not_fill_their_tile(lab):
    lengths = [(5, 21)]
    q, k, v = inputs(lengths)
    q, k = q.abs() + 1, -k.abs() - 1  # all scores far below zero
    hint = "rows past the last key are loaded as 0, which is a score of 0 and not -inf: mask scores, too, where key >= num_keys"
    assert_attends(lab.flash_attention_varlen, (q, k, v), lengths, "scores all below 0", hint, causal=False)


# ------------------------------------------------------------------------------------------------------------------------ causal


@pytest.mark.parametrize("size", [1, 16, 40])
def test_causal(lab, size):
    lengths = [(size, size)]
    hint = "query i sees the keys 0 … i, itself included; the tile on the diagonal is needed, some of its scores are not"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "causal, as many keys as queries", hint)


@pytest.mark.parametrize("tiles", [Tiles(16, 32, 4, 2), Tiles(32, 16, 4, 2)], ids=["16 x 32", "32 x 16"])
def test_tiles_that_are_not_square(lab, tiles):
    lengths = [(50, 50)]
    hint = "where a tile of queries ends and where a tile of keys ends have nothing to do with each other"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, f"{tiles}", hint, tiles=tiles)


def test_more_keys_than_queries(lab):
    lengths = [(3, 40)]
    hint = (
        "causal is aligned at the end: query i of Sq sees keys up to i + Sk - Sq, or a token would not see what the cache holds"
    )
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "three new tokens after 37 of cache", hint)


def test_queries_that_see_no_key(lab):
    lengths = [(40, 9)]
    hint = (
        "-inf - (-inf) is NaN: where a row's maximum still is -inf subtract 0; where its sum is 0 divide by 1; o = 0, lse = -inf"
    )
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "31 queries before the first key", hint)


# ------------------------------------------------------------------------------------------------------- sequences, heads, window


def test_sequences_of_all_lengths(lab):
    lengths = [(5, 5), (0, 7), (33, 40), (1, 20), (4, 0), (17, 17)]
    hint = "each sequence has its own start and length in cu_seqlens_q and in cu_seqlens_k; programs without a query return"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "six sequences", hint)


def test_neighbours_are_not_read(lab):
    lengths = [(5, 20), (3, 3)]
    q, k, v = inputs(lengths)
    k[20:], v[20:] = torch.nan, torch.nan
    with fenced():
        o, lse = call(lab.flash_attention_varlen, q, k, v, lengths)
    want, want_lse = one(q[:5], k[:20], v[:20])
    hint = "a weight of 0 times NaN is NaN: rows of v past the sequence's end must be masked when they are loaded, not afterwards"
    said = "two sequences, of which the second holds NaN only"
    assert_close(o[:5].double(), want, "o of the first", atol=5e-6, rtol=5e-6, inputs=said, hint=hint)
    assert_close(lse[:, :5].double(), want_lse, "lse of the first", atol=1e-5, rtol=1e-5, inputs=said, hint=hint)


@pytest.mark.parametrize("heads", [(6, 2), (3, 1), (2, 2)], ids=str)
def test_grouped_heads(lab, heads):
    lengths = [(9, 20), (3, 3)]
    hint = "query head h reads key-value head h // GROUP: neighbours share one. h % KV would deal them out in turn"
    assert_attends(lab.flash_attention_varlen, inputs(lengths, *heads), lengths, f"H, KV = {heads}", hint)


@pytest.mark.parametrize("window", [1, 7, 16, 100])
def test_sliding_window(lab, window):
    lengths = [(37, 45)]
    hint = "a window of W: the query's own key and the W - 1 before it, so key > position - W"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "window", hint, sliding_window=window)


# --------------------------------------------------------------------------------------------------------------- numbers, memory


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("dim", [24, 80], ids=lambda d: f"D={d}")
def test_strides_of_their_own(lab, dim, dtype):
    lengths = [(20, 20), (6, 6)]
    q = random(26, 8, dim, dtype=dtype)[:, 2:6]
    k = random(2, 26, dim, dtype=dtype).transpose(0, 1)
    v = random(26, 2, dim + 8, dtype=dtype)[..., :dim]
    hint = (
        "each of q, k, v and o has its own stride from token to token and from head to head, neither of which need be D; "
        "and D need not be BLOCK_D: both are in the mask of rows_at"
    )
    said = "q a slice of [26, 8, D], k with heads outermost, v in rows of D + 8"
    assert_attends(lab.flash_attention_varlen, (q, k, v), lengths, said, hint)


@counted
def test_heads_far_apart(lab):
    """Three heads, 2³⁰ elements from one to the next: the third begins past what an int32 holds. What wraps finds zeros; a fence
    would keep a list of all that lies between."""
    lengths, dim = [(9, 9)], 16
    tensors = [far_apart(3, 9 * dim, 2**30).copy_(random(3, 9 * dim)).view(3, 9, dim).transpose(0, 1) for _ in range(3)]
    hint = (
        "head · stride passes 2³¹, and the product of two int32 wraps: tl.program_id(1).to(tl.int64), and head // GROUP of that"
    )
    assert_attends(lab.flash_attention_varlen, tensors, lengths, "heads 2³⁰ elements apart", hint, fence=nullcontext)


@counted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products(lab, dtype):
    lengths, tiles = [(20, 70)], Tiles(16, 32, 4, 2)
    tensors = inputs(lengths, dtype=dtype)
    said = f"(queries, keys) = {lengths}, {dtype}, {tiles}"
    assert_dots(lambda: call(lab.flash_attention_varlen, *tensors, lengths, tiles), dtype, 16, 32, said)


@pytest.mark.parametrize("scale", [0.01, 1.7])
def test_a_scale_of_ones_own(lab, scale):
    lengths = [(9, 20)]
    hint = "`scale` arrives in the kernel, D ** -0.5 already in it if none was given: multiply by it once, and by nothing else"
    assert_attends(lab.flash_attention_varlen, inputs(lengths), lengths, "scale given", hint, scale=scale)


def test_scores_in_the_thousands(lab):
    lengths = [(20, 40)]
    q, k, v = inputs(lengths)
    hint = "exp(90) is past float32: subtract the maximum before exp, never after"
    assert_attends(lab.flash_attention_varlen, (q * 60, k * 60, v), lengths, "scores up to some thousands", hint)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sums_are_kept_in_float32(lab, dtype):
    q, k, v = torch.zeros(1, 1, 16), torch.zeros(600, 1, 16), torch.full((600, 1, 16), 4e4)
    v[::2] = 3e4
    tensors = tuple(x.to(dtype).to(DEVICE) for x in (q, k, v))
    hint = "600 times 40,000 overflows float16, and a bfloat16 of 256 plus 1 is 256: sum and output are float32 until the end"
    said = "600 equal scores"
    assert_attends(lab.flash_attention_varlen, tensors, [(1, 600)], said, hint, tiles=Tiles(16, 64, 4, 2))


def test_nothing_to_do(lab):
    q, k, v = inputs([(0, 4)])
    o, lse = call(lab.flash_attention_varlen, q, k, v, [(0, 4)])
    assert_equal((list(o.shape), list(lse.shape)), ([0, 1, 16], [1, 0]), "the shapes of o and lse", inputs="no query at all")


# ------------------------------------------------------------------------------------------------------------------------- bytes


def keys_needed(lengths, tiles, causal=True, sliding_window=None):
    """Keys loaded for one head, if each tile of queries loads what it sees, in whole tiles from a multiple of BLOCK_N."""
    total = 0
    for queries, keys in lengths:
        for first in range(0, queries, tiles.BLOCK_M):
            low = first + keys - queries
            high = min(first + tiles.BLOCK_M, queries) + keys - queries
            end = min(max(high, 0), keys) if causal else keys
            start = max(low - sliding_window + 1, 0) // tiles.BLOCK_N * tiles.BLOCK_N if sliding_window else 0
            total += max(0, min(-(-end // tiles.BLOCK_N) * tiles.BLOCK_N, keys) - start)
    return total


@counted
@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ([(40, 40)], {"causal": False}),
        ([(64, 64)], {}),
        ([(5, 5), (33, 50), (16, 16), (20, 3)], {}),
        ([(48, 70)], {"sliding_window": 20}),
    ],
    ids=["no mask", "causal", "causal, many lengths", "window of 20"],
)
def test_bytes(lab, lengths, options):
    heads, kv_heads, dim = 2, 1, 32
    q, k, v = inputs(lengths, heads, kv_heads, dim, torch.bfloat16)
    with trace(q=q, k=k, v=v) as counting:
        o, lse = call(lab.flash_attention_varlen, q, k, v, lengths, **options)
    report = counting.report()
    said = f"(queries, keys) = {lengths}, {heads} heads on {kv_heads}, D = {dim}, bfloat16, {SMALL}, {options or 'causal'}"
    assert report.total.bytes, f"{said}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    allowed = keys_needed(lengths, SMALL, **options) * heads * dim * 2
    whole = keys_needed(lengths, SMALL, causal=False) * heads * dim * 2
    for name in "kv":
        got = report[name].load_bytes
        why = "each tile of keys is loaded once by each tile of queries: no second pass for the maximum or the sum"
        if allowed < got <= whole:
            why = (
                "tiles that no query of the program sees are loaded all the same, above the diagonal or before the window: right "
                "values, needless bytes. Let the loop end where the last query's sight ends, and begin where the first one's "
                f"begins; all tiles would be {whole:,}"
            )
        assert got <= allowed, f"bytes loaded of {name}: {got:,}, where {allowed:,} suffice\n  {said}\n  likely   {why}\n{report}"
    rows = o.numel() * 2
    assert_equal(report["q"].load_bytes, rows, "bytes loaded of q", inputs=said, hint=f"once, before the loop:\n{report}")
    stored = report.total.store_bytes
    assert_equal(
        stored, rows + lse.numel() * 4, "bytes stored, o and lse", inputs=said, hint=f"once each, after the loop:\n{report}"
    )
    others = report.total.load_bytes - sum(report[name].load_bytes for name in "qkv")
    programs = -(-max(n for n, _ in lengths) // SMALL.BLOCK_M) * heads * len(lengths)
    assert others <= 16 * programs, (
        f"{said}: {others:,} bytes are loaded of other tensors than q, k, v; cu_seqlens needs four numbers a program, "
        f"{16 * programs} in all; is something stored and read back?\n{report}"
    )


# ---------------------------------------------------------------------------------------------------------------------- compiler


@pytest.mark.parametrize(("dim", "group"), [(128, 4), (64, 3)], ids=["Llama-3.1-8B", "SmolLM2-135M"])
def test_compiles_without_spills(lab, dim, group):
    lengths = [(16, 16)]
    q, k, v = inputs(lengths, group, 1, dim, torch.bfloat16)
    with launches() as launched:
        call(lab.flash_attention_varlen, q, k, v, lengths, tiles=None)
    assert_equal(len(launched), 1, "launches", inputs=f"D = {dim}", hint="one kernel for all of it: scores never reach memory")
    found = launched[0].inspect("sm_89")
    assert found.spill_bytes == 0, (
        f"D = {dim}, RTX 4090: {found.spill_bytes} bytes a thread do not fit its {found.registers} registers and go to memory\n"
        f"  likely   more blocks alive in the loop than scores, weights, q and the output\n{found}"
    )
    assert found.tensor_core_instructions, (
        f"D = {dim}, RTX 4090: no tensor-core instruction\n  likely   operands were converted to float32 before tl.dot, or the "
        f"product is a sum over a broadcast; tl.dot takes q, k, v as they were loaded\n{found}"
    )
