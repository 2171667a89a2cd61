"""Decode over a paged cache, whole and cut into pieces: against attention in float64, its twin, and byte by byte."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minillm.kernels.attention_tiles import Tiles, paged_decode_tiles
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.paged_decode import (
    MAX_SPLITS,
    SHIPPED,
    SHORTEST_SPLIT,
    choose_num_splits,
    merge_splits,
    merge_splits_torch,
    paged_decode,
    paged_decode_bytes,
    paged_decode_torch,
)

from labs.kit.conformance.attention import dense_attention

SMALL = Tiles(16, 16, 4, 1)
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def arguments(place, heads):
    q = torch.randn(len(place.seq_lens), heads, place.layer.shape[-2]).to(place.layer.dtype)
    return q, *place.cache, place.block_tables, place.seq_lens, int(place.seq_lens.max())


def check(place, heads, tiles=SMALL, **options):
    given = arguments(place, heads)
    q, got = given[0], paged_decode(*given, tiles=tiles, **options)
    assert got.shape == q.shape and got.dtype == q.dtype
    tolerance = {"atol": TOLERANCE[q.dtype], "rtol": TOLERANCE[q.dtype]}
    for i, (k, v) in enumerate(zip(place.k, place.v, strict=True)):
        want = dense_attention(q[i : i + 1], k, v, q.shape[-1] ** -0.5, options.get("sliding_window")) if len(k) else [0 * q[i]]
        torch.testing.assert_close(got[i].double(), want[0].double(), **tolerance)
    torch.testing.assert_close(got, paged_decode_torch(*given, **options), **tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 16), (6, 2, 24), (17, 1, 8)])
def test_lengths_and_heads(paged, dtype, num_splits, heads, kv_heads, dim):
    check(paged([1, 20, 64], kv_heads, dim, dtype=dtype), heads, Tiles(32, 16, 4, 1), num_splits=num_splits)


@pytest.mark.parametrize("block_size", [1, 2, 16, 64, 37])
def test_any_block_size(paged, block_size):
    check(paged([20, 70], block_size=block_size), heads=3, num_splits=2)


@pytest.mark.parametrize("num_splits", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 5, 17, 33, 100])
def test_a_sliding_window(paged, window, num_splits):
    check(paged([20, 70]), heads=2, num_splits=num_splits, sliding_window=window)


def test_the_tiles_that_are_launched(paged):
    check(paged([9, 130], dim=128, block_size=16, dtype=torch.bfloat16), heads=4, tiles=None)
    check(paged([9, 130], dim=64, block_size=16, dtype=torch.bfloat16), heads=3, tiles=None, num_splits=2)
    check(paged([9, 60]), heads=2, tiles=None)


@pytest.mark.parametrize("num_splits", [1, 2])
def test_rows_that_pad_a_batch_are_zero(paged, num_splits):
    check(paged([0, 20, 0]), heads=2, num_splits=num_splits)


def test_empty_pieces(paged):
    """Two tokens in 9 pieces, alone or beside 60: most have nothing to do. What merge finds in their places is NaN."""
    check(paged([2, 60]), heads=2, num_splits=9)
    place = paged([2])
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # torch.empty is then filled with NaN
    try:
        assert torch.empty(3).isnan().all()
        check(place, heads=2, num_splits=9)
    finally:
        torch.use_deterministic_algorithms(before)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seq_lens=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    num_splits=st.integers(1, 6),
    window=st.none() | st.integers(1, 75),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_any_batch_equals_its_twin(paged, seq_lens, num_splits, window, block_size):
    given = arguments(paged(seq_lens, block_size=block_size), 2)
    got = paged_decode(*given, sliding_window=window, num_splits=num_splits, tiles=SMALL)
    torch.testing.assert_close(got, paged_decode_torch(*given, sliding_window=window), atol=1e-5, rtol=1e-5)


def test_merging_pieces_is_attention_over_all_of_them():
    scores, v = torch.randn(2, 3, 40), torch.randn(2, 3, 40, 16)
    pieces = [(scores[..., i : i + 8], v[..., i : i + 8, :]) for i in range(0, 40, 8)]
    partial = torch.stack([torch.einsum("bhs,bhsd->bhd", s.softmax(-1), x) for s, x in pieces], 2)
    lse = torch.stack([s.logsumexp(-1) for s, _ in pieces], 2)
    want = torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), v)
    torch.testing.assert_close(merge_splits(partial, lse), want)
    torch.testing.assert_close(merge_splits_torch(partial, lse), want)
    assert merge_splits(partial, lse, out=want.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("num_splits", [1, 2, 4])
def test_what_is_not_finite_shows(paged, broken, num_splits):
    """In whichever piece it lies: an engine ends the request, which it would not if that piece passed for an empty one."""
    place = paged([40, 20])
    q, *given = arguments(place, heads=2)
    place.layer[place.block_tables[0, 3], 0, 0, 0, 1], q[0, :, 0] = broken, 1.0
    got = paged_decode(q, *given, num_splits=num_splits, tiles=SMALL)
    assert got[0].isnan().all() and got[1].isfinite().all()


@pytest.mark.parametrize("merge", [merge_splits, merge_splits_torch])
def test_a_piece_that_is_not_a_number_makes_the_result_none(merge):
    partial, lse = torch.randn(1, 2, 3, 16), torch.randn(1, 2, 3)
    partial[0, 0, 1], lse[0, 0, 1] = math.nan, math.nan
    merged = merge(partial, lse)
    assert merged[0, 0].isnan().all() and merged[0, 1].isfinite().all()


@pytest.mark.parametrize("merge", [merge_splits, merge_splits_torch])
def test_an_empty_piece_weighs_nothing(merge):
    partial, lse = torch.randn(1, 2, 3, 16), torch.randn(1, 2, 3)
    partial[0, 0, 1], lse[0, 0, 1] = math.nan, -math.inf
    partial[0, 1], lse[0, 1] = math.nan, -math.inf  # no piece of the second head has a key
    merged = merge(partial, lse)
    torch.testing.assert_close(merged[:, :1], merge(partial[:, :1, [0, 2]], lse[:, :1, [0, 2]]))
    assert merged.isfinite().all() and (merged[0, 1] == 0).all()


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("window", [None, 20])
def test_bytes_are_those_derived(paged, num_splits, window):
    seq_lens = [5, 41, 64]
    place = paged(seq_lens, kv_heads=2, dtype=torch.bfloat16)
    given = arguments(place, heads=6)
    with trace(q=given[0], cache=place.layer, block_tables=given[3], seq_lens=given[4]) as counted:
        paged_decode(*given, sliding_window=window, num_splits=num_splits, tiles=SMALL)
    report = counted.report()
    derived = paged_decode_bytes(seq_lens, 6, 2, 16, 4, 2, SMALL, num_splits=num_splits, sliding_window=window)
    assert report["cache"].load_bytes == derived["k_cache"] + derived["v_cache"]
    assert report["cache"].reuse == 1, "every key and value is read once, for all heads of its group"
    assert report["block_tables"].load_bytes == derived["block_tables"] and report["q"].load_bytes == derived["q"]
    moved = report.load_bytes + report.store_bytes - report["seq_lens"].load_bytes
    assert moved == sum(derived.values())


def test_how_far_a_sequence_is_cut():
    assert choose_num_splits(8, 32_768, 132) == 33, "batch 1 of Llama-3.1-8B on an H100: two programs a multiprocessor"
    assert choose_num_splits(8 * 64, 32_768, 132) == 1, "a full batch keeps every multiprocessor busy as it is"
    assert choose_num_splits(8, SHORTEST_SPLIT, 132) == choose_num_splits(8, 1, 132) == 1, "nothing worth cutting"
    assert choose_num_splits(8, 1000, 132) == 3, "pieces of 256 tokens at least"
    assert choose_num_splits(1, 10**6, 10**4) == MAX_SPLITS
    assert choose_num_splits(1, 10**6, 1) == 2


def test_what_is_refused(paged):
    q, k, v, tables, lens, longest = arguments(paged([20, 9], kv_heads=2), heads=2)
    for message, changed, options in [
        ("q has 2 dimensions", {"q": q[:, 0]}, {}),
        ("k_cache has 3 dimensions", {"k": k[0]}, {}),
        ("seq_lens has shape", {"lens": lens[:1], "tables": tables[:1]}, {}),
        ("num_splits is 0", {}, {"num_splits": 0}),
        ("num_splits is 129", {}, {"num_splits": 129}),
        ("BLOCK_M 0 does not hold", {}, {"tiles": Tiles(0, 16, 4, 1)}),
        ("scale is -2", {}, {"scale": -2.0}),
    ]:
        given = {"q": q, "k": k, "v": v, "tables": tables, "lens": lens, "longest": longest} | changed
        with pytest.raises(ValueError, match=message):
            paged_decode(*given.values(), **options)
    for message, partial, lse in [
        ("129 pieces cannot be merged", torch.zeros(1, 1, 129, 16), torch.zeros(1, 1, 129)),
        ("lse has shape", torch.zeros(1, 1, 2, 16), torch.zeros(1, 1, 3)),
    ]:
        with pytest.raises(ValueError, match=message):
            merge_splits(partial, lse)


def test_shipped_variants_are_what_is_launched():
    assert len({variant.name for variant in SHIPPED}) == len(SHIPPED)
    for variant in (each for each in SHIPPED if "GROUP" in each.constexprs):
        c = variant.constexprs
        tiles = paged_decode_tiles(c["HEAD_DIM"], 2, c["GROUP"])
        assert tiles == (c["BLOCK_M"], c["BLOCK_N"], variant.num_warps, variant.num_stages)
