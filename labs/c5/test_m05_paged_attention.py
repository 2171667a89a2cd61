"""Checks of 5.5: paged = dense on random block tables, exact merging, bytes moved, what a compiler makes of it."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.attention_tiles import Tiles
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.runtime import INTERPRETED

from labs.kit.dots import assert_dots
from labs.kit.far_apart import far_apart
from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, GUARD, assert_no_spills, assert_rounded, counted, random
from labs.kit.launches import launches
from labs.kit.paged_by_hand import Cache, dense, in_pieces, nan_where_nobody_wrote, sdpa, shares, whole

TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}


# ----------------------------------------------------------------------------------------------------------- choose_num_splits


def largest(num_groups, context, sms):
    """By trying all."""
    groups = max(1, num_groups)
    return max([1, *(n for n in range(1, 129) if groups * n <= 2 * sms and context // n >= 256)])


@checks("choose_num_splits")
@pytest.mark.parametrize(
    ("num_groups", "context", "sms", "pieces", "why"),
    [
        (8, 32768, 128, 32, "Llama-3.1-8B, one user, RTX 4090: 8 × 32 = 256 programs, two for each SM"),
        (8, 32768, 132, 33, "the same on an H100 SXM: 8 × 33 = 264"),
        (8, 2048, 128, 8, "2,048 tokens give 8 pieces of 256, however many multiprocessors there are"),
        (8, 2047, 128, 7, "eight pieces of 2,047 tokens would be shorter than 256"),
        (8 * 64, 32768, 128, 1, "64 users are 512 programs already: nothing to cut"),
        (24, 32768, 128, 10, "24 × 10 = 240; 24 × 11 = 264 would be 8 programs in a second round"),
        (1, 10**6, 128, 128, "one head: 256 programs would fit, but 128 pieces are the most that a merge takes"),
        (3, 100, 128, 1, "shorter than one piece may be"),
        (8, 0, 128, 1, "nothing in the cache yet"),
        (0, 32768, 30, 60, "no sequence at all, as when a launch is only recorded: as for one group"),
    ],
)
def test_known_cases(lab, num_groups, context, sms, pieces, why):
    got = lab.choose_num_splits(num_groups, context, sms)
    assert_equal(got, pieces, f"choose_num_splits({num_groups}, {context}, {sms})", hint=why)
    assert_equal(type(got), int, "the type", hint="whole pieces: // and not /")


@checks("choose_num_splits")
@given(st.integers(0, 600), st.integers(0, 140_000), st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_largest_that_satisfies_the_three_conditions(lab, num_groups, context, sms):
    got, expected = lab.choose_num_splits(num_groups, context, sms), largest(num_groups, context, sms)
    hint = "programs <= 2 sms, context // pieces >= 256, pieces <= 128: round each limit down, take the smallest, at least 1"
    assert_equal(got, expected, f"choose_num_splits({num_groups}, {context}, {sms})", hint=hint)


# ---------------------------------------------------------------------------------------------------------------- merge_splits


@checks("merge_splits")
@pytest.mark.parametrize(
    ("shape", "cuts"),
    [((2, 3, 37, 40), (5, 20)), ((1, 2, 50, 64), ()), ((1, 1, 40, 1), (1, 2, 3, 30)), ((1, 1, 200, 16), tuple(range(1, 128)))],
    ids=["three", "one", "unequal", "128"],
)
def test_pieces_make_the_whole(lab, shape, cuts):
    batch, heads, keys, head_dim = shape
    scores, v = 3 * torch.randn(batch, heads, keys), torch.randn(batch, heads, keys, head_dim)
    with fenced():
        got = lab.merge_splits(*in_pieces(scores, v, cuts, DEVICE))
    hint = "a piece weighs exp(lse - L): neither the same for all pieces, nor the same for all heads; lse is natural, not base 2"
    said = f"B, H = {batch}, {heads}, D = {head_dim}, {len(cuts) + 1} pieces of {keys} keys"
    assert_close(got, whole(scores, v, DEVICE), "the merged output", atol=1e-5, rtol=1e-5, inputs=said, hint=hint)


@checks("merge_splits")
@pytest.mark.parametrize("size", [1000.0, -1000.0])
def test_scores_of_any_size(lab, size):
    scores, v = size + torch.randn(1, 2, 30), torch.randn(1, 2, 30, 16)
    hint = "exp(1000) is inf and exp(-1000) is 0: subtract the largest lse before exp, and divide by the sum of weights"
    with fenced():
        got = lab.merge_splits(*in_pieces(scores, v, (10, 20), DEVICE))
    assert_close(
        got, whole(scores, v, DEVICE), "the merged output", atol=1e-4, rtol=1e-4, inputs=f"scores around {size:g}", hint=hint
    )


@checks("merge_splits")
@pytest.mark.parametrize("cuts", [(30, 30), (0, 12), (0, 0, 30)], ids=str)
def test_empty_pieces_weigh_nothing(lab, cuts):
    scores, v = torch.randn(1, 2, 30), torch.randn(1, 2, 30, 16)
    partial, lse = in_pieces(scores, v, cuts, DEVICE)
    hint = "0 * NaN is NaN: mask the load of a piece that weighs nothing (or tl.where it away), besides giving it weight 0"
    with fenced():
        got = lab.merge_splits(partial, lse)
    said = f"lse {[round(x, 2) for x in lse[0, 0].tolist()]}; where it is -inf, partial holds NaN, as unwritten memory may"
    assert_close(got, whole(scores, v, DEVICE), "the merged output", atol=1e-5, rtol=1e-5, inputs=said, hint=hint)


@checks("merge_splits")
def test_all_pieces_empty(lab):
    partial, lse = random(2, 2, 3, 16), random(2, 2, 3)
    lse[1] = -torch.inf
    partial[1] = torch.nan
    with fenced():
        got = lab.merge_splits(partial, lse)
    hint = "-inf - (-inf) is NaN, and so is 0 / 0: where the peak is -inf subtract 0, where the sum is 0 divide by 1"
    assert_close(got[1], torch.zeros(2, 16, device=DEVICE), "a sequence without any keys", atol=0, rtol=0, hint=hint)
    assert_equal(bool(got[0].isfinite().all()), True, "whether its neighbour is finite")


@checks("merge_splits")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_into_a_slice_of_another_dtype(lab, dtype):
    scores, v = torch.randn(2, 3, 40), torch.randn(2, 3, 40, 88)
    wide = torch.full((3, 5, 104), GUARD, dtype=dtype, device=DEVICE)
    out = wide[:2, 1:4, 8:96]
    partial, lse = in_pieces(scores, v, (9,), DEVICE)
    with fenced():
        got = lab.merge_splits(partial, lse, out=out)
    said = f"out is {dtype}, and a slice: its strides are its own"
    hint = "weights, products and their sum are float32: the result is rounded once, when it is stored"
    assert_equal(got is out, True, "whether `out` is returned")
    assert_rounded(out, whole(scores, v, DEVICE).to(dtype), "out", said, hint)
    around = wide.clone()
    around[:2, 1:4, 8:96] = GUARD
    changed = int((around != GUARD).sum())
    assert_equal(changed, 0, "elements around out that were overwritten", hint="D is 88, lanes 128: mask the store")


@checks("merge_splits")
def test_nothing_to_merge(lab):
    assert_equal(list(lab.merge_splits(random(0, 2, 3, 16), random(0, 2, 3)).shape), [0, 2, 16], "the shape", inputs="B = 0")


@counted
@checks("merge_splits")
def test_merge_moves_each_piece_once(lab):
    partial, lse, out = random(2, 4, 6, 40), random(2, 4, 6), torch.empty(2, 4, 40)
    lse[1, :, 2:] = -torch.inf
    with trace(partial=partial, lse=lse, out=out) as traffic, fenced():
        lab.merge_splits(partial, lse, out=out)
    report, rows = traffic.report(), 4 * 6 + 4 * 2
    assert report.total.bytes, "no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    what = "B, H, S, D = 2, 4, 6, 40; of the second sequence four pieces are empty"
    hint = f"each piece that is not empty once: rows [BLOCK_S, BLOCK_D], masked by weight, piece and dimension\n{report}"
    assert_equal(report["partial"].load_bytes, rows * 40 * 4, "bytes loaded of partial", inputs=what, hint=hint)
    assert_equal(report["lse"].load_bytes, lse.numel() * 4, "bytes loaded of lse", inputs=what, hint=f"once each\n{report}")
    assert_equal(report["out"].store_bytes, out.numel() * 4, "bytes stored to out", inputs=what, hint=f"once each\n{report}")


@checks("merge_splits")
def test_merge_compiles_without_spills(lab):
    with launches() as launched, fenced():
        lab.merge_splits(random(1, 1, 32, 128), random(1, 1, 32), out=random(1, 1, 128, dtype=torch.bfloat16))
    assert_equal(len(launched), 1, "launches of merge_splits")
    assert_no_spills(launched[0], "merge_splits of 32 pieces, D = 128, into bfloat16, RTX 4090")


# ---------------------------------------------------------------------------------------------------------------- paged_decode


@checks("paged_decode")
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("splits", [1, 2], ids=["whole", "cut"])
def test_paged_is_dense(lab, dtype, splits):
    """Blocks in random order, a partial last block, nonsense past the end."""
    cache = Cache([37, 100], kv_heads=2, head_dim=40, block_size=16, dtype=dtype, device=DEVICE)
    q = random(2, 6, 40, dtype=dtype)
    with fenced():
        got = lab.paged_decode(q, *cache.arguments(), num_splits=splits)
    said = f"seq_lens [37, 100], 6 query heads on 2 key-value heads, D = 40, blocks of 16, {splits} piece(s), {dtype}"
    hint = (
        "does a token past the end count, in a block that is not full? Is query head h on key-value head h // GROUP? "
        "Is the block block_tables[n // 16] and the slot n % 16?"
    )
    tolerance = TOLERANCE[dtype]
    assert_close(got, dense(q, cache), "the attention", atol=tolerance, rtol=tolerance, inputs=said, hint=hint)


@checks("paged_decode")
@given(st.data())
@settings(max_examples=6, deadline=None)
def test_paged_is_dense_for_any_lengths(lab, data):
    block_size = data.draw(st.sampled_from([4, 16, 32]), "block_size")
    lengths = data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=2), "seq_lens")
    splits = data.draw(st.integers(1, 4), "num_splits")
    window = data.draw(st.sampled_from([None, 1, 16, 70]), "sliding_window")
    group = data.draw(st.sampled_from([1, 3]), "group")
    cache = Cache(lengths, kv_heads=1, head_dim=16, block_size=block_size, device=DEVICE)
    q = random(len(lengths), group, 16)
    with fenced():
        got = lab.paged_decode(q, *cache.arguments(), num_splits=splits, sliding_window=window)
    said = f"seq_lens {lengths}, blocks of {block_size}, group {group}, {splits} piece(s), window {window}"
    assert_close(got, dense(q, cache, window=window), "the attention", atol=2e-5, rtol=2e-5, inputs=said, hint=WINDOW_HINT)


WINDOW_HINT = "with a window W, token n counts if n > seq_len - 1 - W: W tokens, the newest among them"


@checks("paged_decode")
@pytest.mark.parametrize(("length", "window", "splits"), [(150, 70, 1), (150, 70, 3), (129, 64, 2), (40, 1, 2), (64, 64, 1)])
def test_a_window_has_exactly_its_tokens(lab, length, window, splits):
    cache = Cache([length], kv_heads=1, head_dim=16, block_size=16, device=DEVICE)
    q = random(1, 2, 16)
    with fenced():
        got = lab.paged_decode(q, *cache.arguments(), sliding_window=window, num_splits=splits)
    said = f"seq_len {length}, window {window}, {splits} piece(s)"
    assert_close(got, dense(q, cache, window=window), "the attention", atol=2e-5, rtol=2e-5, inputs=said, hint=WINDOW_HINT)


@checks("paged_decode")
@pytest.mark.parametrize("splits", [1, 4], ids=["whole", "cut"])
def test_short_beside_long(lab, splits):
    """A batch is cut as its longest sequence wants it: of a short one some pieces are empty."""
    cache = Cache([300, 3, 0], kv_heads=1, head_dim=16, block_size=16, device=DEVICE)
    q = random(3, 2, 16)
    with fenced(), nan_where_nobody_wrote():
        got = lab.paged_decode(q, *cache.arguments(), num_splits=splits)
    said, hint = f"seq_lens [300, 3, 0], {splits} piece(s)", "an empty piece must leave lse = -inf, or it is what memory held"
    assert_close(got[:2], dense(q, cache)[:2], "the attention", atol=2e-5, rtol=2e-5, inputs=said, hint=hint)
    zero = "0 / 0: finish returns 0 for a row that saw no key, if total starts at 0"
    assert_close(got[2], torch.zeros_like(got[2]), "a row that only pads the batch", atol=0, rtol=0, inputs=said, hint=zero)


@checks("paged_decode")
@pytest.mark.parametrize("splits", [1, 3])
def test_pieces_are_weighed(lab, splits):
    """One early token takes it all, at a score of 300: a mean over pieces is not it, nor exp without the peak subtracted."""
    cache = Cache([190], kv_heads=1, head_dim=16, block_size=16, device=DEVICE)
    k, _ = cache.dense(0)
    q = (k[5] / k[5].square().sum() * 1200.0).expand(1, 2, 16).contiguous()
    with fenced():
        got = lab.paged_decode(q, *cache.arguments(), num_splits=splits)
    hint = "lse must be the piece's natural log-sum-exp, lse[sequence, head, piece]; finish returns it"
    said = f"a query on which token 5 scores 300, {splits} piece(s)"
    assert_close(got, dense(q, cache), "the attention", atol=1e-4, rtol=1e-4, inputs=said, hint=hint)


@checks("paged_decode")
@pytest.mark.parametrize("window", [None, 70])
def test_each_piece_has_its_share(lab, window):
    """What pieces are for: an even cut. The values alone would not notice if one of them did everything."""
    cache, pieces, tile = Cache([150, 40], kv_heads=1, head_dim=16, block_size=16, device=DEVICE), 3, 16
    q, options = random(2, 2, 16), {"sliding_window": window, "num_splits": 3, "tiles": Tiles(16, tile, 4, 2)}
    with launches() as launched, fenced():
        lab.paged_decode(q, *cache.arguments(), **options)
    assert launched, "no kernel was launched; the work must be done by your Triton kernel, not by torch"
    lse = launched[0].arguments["lse_ptr"]
    for i, length in enumerate(cache.seq_lens):
        said = f"seq_len {length}, window {window}, tiles of {tile}, {pieces} pieces"
        for p, (tiles, expected) in enumerate(shares(q[i], cache, i, pieces=pieces, tile=tile, window=window)):
            hint = f"piece {p} has tiles {tiles.start} to {tiles.stop - 1}, those that exist; the others must have work, too"
            assert_close(lse[i, :, p].double(), expected, f"lse of piece {p}", atol=1e-4, rtol=1e-4, inputs=said, hint=hint)


@checks("paged_decode")
@pytest.mark.parametrize(("block_size", "group"), [(64, 20), (24, 3)], ids=["blocks of 64, 20 heads", "blocks of 24"])
def test_long_blocks_and_many_heads(lab, block_size, group):
    cache = Cache([70, 100], kv_heads=1, head_dim=16, block_size=block_size, device=DEVICE)
    q = random(2, group, 16)
    with fenced():
        got = lab.paged_decode(q, *cache.arguments(), num_splits=2)
    said = f"blocks of {block_size}, {group} heads on one key-value head"
    hint = (
        "a block may be longer than a tile, and end within one: each token has its own n // BLOCK_SIZE; a tile has BLOCK_M rows"
    )
    assert_close(got, dense(q, cache), "the attention", atol=2e-5, rtol=2e-5, inputs=said, hint=hint)


@counted
@checks("paged_decode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products(lab, dtype):
    cache = Cache([70], kv_heads=1, head_dim=16, block_size=16, dtype=dtype, device=DEVICE)
    q, tiles = random(1, 2, 16, dtype=dtype), Tiles(16, 32, 4, 2)
    said = f"seq_len 70, {dtype}, {tiles}"
    assert_dots(lambda: lab.paged_decode(q, *cache.arguments(), num_splits=1, tiles=tiles), dtype, 16, 32, said)


@checks("paged_decode")
@pytest.mark.parametrize("splits", [1, 2], ids=["whole", "cut"])
def test_other_layouts_tables_and_scales(lab, splits):
    """Keys beside something else, values with their heads innermost, tables of int32 cut from wider ones, q and out slices."""
    cache = Cache([50, 70], kv_heads=2, head_dim=32, block_size=8, device=DEVICE)
    k, v, tables, lengths, longest = cache.arguments()
    k = torch.stack([k.transpose(2, 3), torch.full_like(v, torch.nan)], 2)[:, :, 0].transpose(2, 3)
    v = v.transpose(1, 2).contiguous().transpose(1, 2)
    tables = F.pad(tables, (0, 3), value=2**30).int()[:, : tables.shape[1]]
    fused, wide = random(2, 8, 40), torch.full((2, 12, 48), GUARD, device=DEVICE)
    q, out = fused[:, 2:6, :32], wide[:, 3:7, :32]
    with fenced():
        got = lab.paged_decode(q, k, v, tables, lengths, longest, scale=0.5, num_splits=splits, out=out)
    said = f"q, out and block_tables are slices, table int32, scale 0.5, {splits} piece(s)"
    hint = "each tensor has strides of its own, block_tables' rows included; scale_log2 is the scale given, for update"
    assert_equal(got is out, True, "whether `out` is returned", inputs=said)
    assert_close(out, dense(q, cache, scale=0.5), "the attention", atol=2e-5, rtol=2e-5, inputs=said, hint=hint)
    out.fill_(GUARD)
    changed = int((wide != GUARD).sum())
    assert_equal(changed, 0, "elements around out that were overwritten", hint="rows past GROUP must not be stored")


@checks("paged_decode")
def test_a_cache_beyond_32_bits(lab):
    """Block 2²³ of 256 numbers begins 2³¹ after the first: of nearly all of this memory nothing is touched."""
    last, head_dim, block_size = 2**23, 16, 16
    size, half = (last + 1) * 256, {"dtype": torch.float16, "device": DEVICE}
    memory = far_apart(1, size, 512)[0] if INTERPRETED else torch.empty(size, **half)
    k_cache, v_cache = memory.view(-1, 1, head_dim, block_size), memory.view(-1, 1, block_size, head_dim)
    for block in (1, last):
        memory[block * 256 : (block + 1) * 256] = torch.randn(256).half()
    tables = torch.tensor([[1, last]], dtype=torch.int32, device=DEVICE)
    q, lengths = random(1, 2, head_dim, dtype=torch.float16), torch.tensor([29], dtype=torch.int32, device=DEVICE)
    k = k_cache[[1, last], 0].transpose(1, 2).flatten(0, 1)[:29, None]
    v = v_cache[[1, last], 0].flatten(0, 1)[:29, None]
    try:
        with fenced():
            got = lab.paged_decode(q, k_cache, v_cache, tables, lengths, 29)
        assert_close(got[0], sdpa(q[0], k, v), "the attention", atol=3e-3, rtol=3e-3)
    except AssertionError as e:
        cause = "block · stride passes 2³¹, and the product of two int32 wraps: convert the block's number .to(tl.int64) first"
        raise AssertionError(f"blocks 1 and 2²³ of a cache of {memory.numel():,} numbers, table int32: {cause}\n  {e}") from None


@checks("paged_decode")
def test_no_sequences(lab):
    cache = Cache([5], kv_heads=1, head_dim=16, block_size=16, device=DEVICE)
    k, v, tables, lengths, _ = cache.arguments()
    assert_equal(list(lab.paged_decode(random(0, 2, 16), k, v, tables[:0], lengths[:0], 0).shape), [0, 2, 16], "the shape")


@counted
@checks("paged_decode")
@pytest.mark.parametrize(("splits", "window"), [(1, None), (2, None), (2, 50)], ids=["whole", "cut", "window of 50"])
def test_keys_and_values_are_read_once(lab, splits, window):
    cache = Cache([200, 70], kv_heads=2, head_dim=32, block_size=16, dtype=torch.bfloat16, device=DEVICE)
    k, v, tables, lengths, longest = cache.arguments()
    q, out = random(2, 8, 32, dtype=torch.bfloat16), torch.empty(2, 8, 32, dtype=torch.bfloat16)
    options = {"sliding_window": window, "num_splits": splits, "tiles": Tiles(16, 64, 4, 3)}
    with trace(q=q, k=k, v=v, block_tables=tables, seq_lens=lengths, out=out) as traffic, fenced():
        lab.paged_decode(q, k, v, tables, lengths, longest, out=out, **options)
    report = traffic.report()
    assert report.total.bytes, "no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    what = f"seq_lens [200, 70], 8 heads on 2, D = 32, bfloat16, tiles of 64, {splits} piece(s), window {window}"
    tokens = 208 + 80 if window is None else 208 - 128 + 80  # the windows begin at 150 and 20, their tiles at 128 and 0
    least, most = 2 * 32 * 2 * (270 if window is None else 2 * window), 2 * 32 * 2 * tokens
    for name in ("k", "v"):
        moved = report[name].load_bytes
        times = "tokens are missing"
        if moved > most:
            times = f"{moved / most:.1f} times. The 4 query heads of a group share one read: they are rows of one tile"
        if window and moved > most:
            times = (
                f"{moved / most:.1f} times: tiles before the window are read, and masked away. Begin with the first that counts"
            )
        said = f"{what}: {moved:,} bytes loaded of {name}; once each are {least:,}, in whole blocks and tiles {most:,}"
        assert least <= moved <= most, f"{said}\n  likely   {times}\n{report}"
    moved = report["block_tables"].load_bytes
    said = f"{what}: {moved:,} bytes loaded of block_tables; a number of 8 bytes for each token and head is {2 * tokens * 8:,}"
    assert moved <= 2 * tokens * 8, f"{said}: look a block up for each token, not for each element of the tile\n{report}"
    assert report["q"].load_bytes <= splits * q.numel() * 2, f"{what}: q is read once for each piece\n{report}"
    assert_equal(report["out"].store_bytes, out.numel() * 2, "bytes stored to out", inputs=what, hint=f"once each\n{report}")
    named = ("q", "k", "v", "block_tables", "seq_lens", "out")
    rest = report.total.bytes - sum(report[name].bytes for name in named)
    allowed = 2 * 2 * 8 * splits * 33 * 4 if splits > 1 else 0
    said = f"{what}: {rest:,} bytes moved of other tensors; a head's piece is 33 float32 written and read: {allowed:,}"
    assert rest <= allowed, f"{said}\n{report}"


@checks("paged_decode")
def test_paged_decode_compiles_with_wide_loads(lab):
    cache = Cache([16], kv_heads=1, head_dim=128, block_size=16, dtype=torch.bfloat16, device=DEVICE)
    with launches() as launched, fenced():
        lab.paged_decode(random(1, 4, 128, dtype=torch.bfloat16), *cache.arguments(), num_splits=2)
    assert launched, "no kernel was launched"
    found = assert_no_spills(launched[0], "paged_decode of 4 heads of 128 bfloat16, cut, RTX 4090")
    assert found.tensor_core_instructions, f"no tensor cores: both products are tl.dot's\n{found}"
    narrow = {bits: count for bits, count in found.loads.items() if bits < 32}
    cause = "a mask that changes from slot to slot cuts the load of a key's dimension into single elements: mask by block"
    assert not narrow, f"loads of 16 bits: {narrow}; {cause}\n{found}"
