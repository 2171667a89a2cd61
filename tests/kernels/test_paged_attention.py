"""Paged attention of mixed batches against attention written out in float64, against its twin, and byte by byte."""

import mmap

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minillm.kernels.attention_tiles import Tiles, paged_attention_tiles
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.paged_attention import SHIPPED, paged_attention, paged_attention_bytes, paged_attention_torch

from labs.kit.conformance.attention import dense_attention

SMALL = Tiles(16, 16, 4, 1)  # several tiles in shapes that the interpreter gets through
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
MIXED = [(1, 20), (1, 1), (5, 5), (17, 40), (33, 34)]  # (queries, tokens): decodes, a prompt, later chunks


def arguments(place, query_lens, heads):
    starts = torch.tensor([0, *query_lens]).cumsum(0).int()
    q = torch.randn(sum(query_lens), heads, place.layer.shape[-2]).to(place.layer.dtype)
    return q, *place.cache, place.block_tables, starts, place.seq_lens, max(query_lens)


def check(place, query_lens, heads, tiles=SMALL, **options):
    given = arguments(place, query_lens, heads)
    q, starts = given[0], given[4]
    got = paged_attention(*given, tiles=tiles, **options)
    assert got.shape == q.shape and got.dtype == q.dtype
    tolerance = {"atol": TOLERANCE[q.dtype], "rtol": TOLERANCE[q.dtype]}
    for i, (k, v) in enumerate(zip(place.k, place.v, strict=True)):
        rows = slice(starts[i], starts[i + 1])
        want = dense_attention(q[rows], k, v, q.shape[-1] ** -0.5, options.get("sliding_window"))
        torch.testing.assert_close(got[rows].double(), want, **tolerance)
    torch.testing.assert_close(got, paged_attention_torch(*given, **options), **tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 16), (6, 2, 24), (7, 1, 8)])
def test_mixed_batches(paged, dtype, heads, kv_heads, dim):
    check(paged([n for _, n in MIXED], kv_heads, dim, dtype=dtype), [n for n, _ in MIXED], heads)


@pytest.mark.parametrize("block_size", [1, 2, 16, 32, 64, 37])
def test_any_block_size(paged, block_size):
    """Smaller than a tile, as large, larger; and 37, no power of two, as a contiguous cache has it."""
    check(paged([20, 70], block_size=block_size), [3, 18], heads=3)


@pytest.mark.parametrize("window", [1, 5, 16, 17, 100])
def test_a_sliding_window(paged, window):
    check(paged([20, 9, 60]), [1, 9, 30], heads=2, sliding_window=window)


def test_the_tiles_that_are_launched(paged):
    check(paged([9, 60], dim=64, block_size=16, dtype=torch.bfloat16), [1, 40], heads=3, tiles=None)
    check(paged([9, 60], dim=128, block_size=16, dtype=torch.bfloat16), [4, 40], heads=4, tiles=None)
    check(paged([9, 60]), [9, 40], heads=2, tiles=None)


def test_sequences_without_queries_and_without_tokens(paged):
    check(paged([20, 0, 7, 0, 5]), [0, 0, 7, 0, 1], heads=2)
    none = paged([4])
    q = torch.empty(0, 2, 16)
    assert paged_attention(q, *none.cache, none.block_tables, torch.zeros(2).int(), none.seq_lens, 0).shape == q.shape


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=4),
    block_size=st.sampled_from([1, 4, 16]),
    group=st.integers(1, 5),
)
def test_any_batch_equals_its_twin(paged, lengths, block_size, group):
    given = arguments(paged([n for _, n in lengths], block_size=block_size), [n for n, _ in lengths], group)
    torch.testing.assert_close(paged_attention(*given, tiles=SMALL), paged_attention_torch(*given), atol=1e-5, rtol=1e-5)


def test_other_layouts_by_their_strides(paged):
    """[blocks, block_size, KV, D] for both, with 32-bit tables; and q as a slice of a fused projection."""
    place = paged([20, 33], kv_heads=2, block_size=16)
    q, k, v, tables, *rest = arguments(place, [4, 33], heads=4)
    want = paged_attention(q, k, v, tables, *rest)
    k, v = k.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1), v.transpose(1, 2).contiguous().transpose(1, 2)
    fused = torch.cat([q, q], dim=1)
    assert torch.equal(paged_attention(fused[:, :4], k, v, tables.int(), *rest), want)


def test_only_the_rows_of_out_are_written(paged):
    given = arguments(paged([20, 9]), [4, 9], heads=2)
    whole = torch.full((20, 2, 16), 7.0)
    assert paged_attention(*given, out=whole[5:18]).data_ptr() == whole[5].data_ptr()
    assert (whole[:5] == 7).all() and (whole[18:] == 7).all() and torch.equal(whole[5:18], paged_attention(*given))


def test_offsets_beyond_32_bits(paged):
    """A cache whose block 2 begins 2³¹ elements after block 0: block times stride, each of 32 bits, is not. Nothing between is
    touched."""
    place = paged([20], block_size=16, dtype=torch.float16)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 2**12)), dtype=torch.float16)
    far = memory.as_strided((3, *place.layer.shape[1:]), (2**30, *place.layer.stride()[1:]))
    for block, held in zip((0, 2), place.block_tables[0], strict=True):
        far[block] = place.layer[held]
    place.layer, place.block_tables = far, torch.tensor([[0, 2]], dtype=torch.int32)
    check(place, [7], heads=2)


def test_heads_beyond_32_bits(paged):
    """The third of a group's heads begins 2³¹ elements after the first, in the queries and in the output."""
    place = paged([20], block_size=16, dtype=torch.float16)
    _, *given = arguments(place, [7], heads=3)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 2**12)), dtype=torch.float16)
    q, out = (memory[start:].as_strided((7, 3, 16), (16, 2**30, 1)) for start in (0, 512))
    q.copy_(torch.randn(q.shape))
    paged_attention(q, *given, tiles=SMALL, out=out)
    torch.testing.assert_close(out, paged_attention_torch(q.contiguous(), *given), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("window", [None, 10])
@pytest.mark.parametrize("block_size", [4, 16, 64])
def test_bytes_are_those_derived(paged, window, block_size):
    place, query_lens = paged([20, 41, 30], kv_heads=2, block_size=block_size, dtype=torch.bfloat16), [1, 20, 30]
    given = arguments(place, query_lens, heads=6)
    with trace(q=given[0], cache=place.layer, block_tables=given[3]) as counted:
        paged_attention(*given, sliding_window=window, tiles=SMALL)
    report = counted.report()
    derived = paged_attention_bytes(query_lens, [20, 41, 30], 6, 2, 16, block_size, 2, SMALL, sliding_window=window)
    assert report["cache"].load_bytes == derived["k_cache"] + derived["v_cache"]
    assert report["block_tables"].load_bytes == derived["block_tables"]
    assert report["q"].load_bytes == derived["q"] and report["q"].reuse == 1
    assert report.store_bytes == derived["out"]


def test_heads_of_a_group_share_what_is_read():
    packed = paged_attention_bytes([5], [64], 3, 1, 16, 16, 2, SMALL)
    assert packed["k_cache"] == 64 * 16 * 2, "five tokens of three heads fit one tile: every key is read once"


def test_what_is_refused(paged):
    q, k, v, tables, starts, lens, longest = arguments(paged([20, 9], kv_heads=2), [4, 9], heads=2)
    for message, changed in [
        ("3 query heads cannot share 2", {"q": torch.randn(13, 3, 16)}),
        ("q has 2 dimensions", {"q": q[:, 0]}),
        ("k_cache has 3 dimensions", {"k": k[0]}),
        ("v_cache has shape", {"v": v.transpose(2, 3)}),
        ("query_start_loc has shape", {"starts": starts[:2]}),
        ("block_tables has shape", {"tables": tables[:1]}),
        (r"pass q\.contiguous\(\)", {"q": torch.randn(13, 16, 2).transpose(1, 2)}),
        ("out is written, but", {"out": q[:1].expand(13, 2, 16)}),
        ("out has shape", {"out": q[:1]}),
        ("scale is 0", {"scale": 0.0}),
        ("sliding_window is -1", {"sliding_window": -1}),
        ("BLOCK_M 0 holds no token", {"tiles": Tiles(0, 16, 4, 1)}),
    ]:
        given = {"q": q, "k": k, "v": v, "tables": tables, "starts": starts, "lens": lens, "longest": longest} | changed
        options = {name: given.pop(name) for name in ("out", "scale", "sliding_window", "tiles") if name in given}
        with pytest.raises(ValueError, match=message):
            paged_attention(*given.values(), **options)
    with pytest.raises(TypeError, match="seq_lens is int64"):
        paged_attention(q, k, v, tables, starts, lens.long(), longest)
    with pytest.raises(TypeError, match="k_cache is float16, q float32"):
        paged_attention(q, k.half(), v, tables, starts, lens, longest)


@pytest.mark.parametrize("group", [1, 3, 4, 8, 71, 200])
@pytest.mark.parametrize("longest", [1, 4, 30, 5000])
def test_a_tile_holds_a_token_of_every_head(group, longest):
    for head_dim, itemsize, sm in [(64, 2, 80), (128, 2, 90), (128, 4, 80), (256, 2, 89), (64, 4, 0)]:
        tiles = paged_attention_tiles(head_dim, itemsize, group, longest, sm)
        assert tiles.BLOCK_M >= max(16, group) and tiles.BLOCK_M & (tiles.BLOCK_M - 1) == 0


def test_shipped_variants_are_what_is_launched():
    assert len({variant.name for variant in SHIPPED}) == len(SHIPPED)
    for variant in SHIPPED:
        c, longest = variant.constexprs, int(variant.name.removesuffix(".sm90").split(".")[-1])
        tiles = paged_attention_tiles(c["HEAD_DIM"], 2, c["GROUP"], longest, variant.min_sm)
        assert tiles == (c["BLOCK_M"], c["BLOCK_N"], variant.num_warps, variant.num_stages)
