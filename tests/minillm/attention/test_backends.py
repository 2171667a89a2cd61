"""Both backends against attention written out query by query in float64, over every layout of the cache."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minillm.attention import BACKENDS, make_attention
from minillm.errors import ConfigError
from minillm.kv.storage import write_kv

HEADS, KV_HEADS, DIM, SCALE = 6, 2, 8, 0.3
MAX_LEN = 24
MIXED = [(2, 9, 10), (0, 0, 1), (3, 16, 17), (1, 0, 11), (5, 4, 5), (4, 6, 13)]  # decodes, a prompt, two later chunks


@pytest.fixture(params=list(BACKENDS))
def backend(request):
    return make_attention(request.param)


def written_out(q, k, v, window):
    """q [T, H, D] are the last T of the S tokens in k, v [S, KV, D]."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for t in range(len(q)):
        position = len(k) - len(q) + t
        first = 0 if window is None else max(0, position - window + 1)
        for head in range(q.shape[1]):
            keys, values = (x[first : position + 1, head // (HEADS // KV_HEADS)].double() for x in (k, v))
            out[t, head] = torch.softmax(keys @ q[t, head].double() * SCALE, 0) @ values
    return out


def check(backend, place, chunks, window=None, num_decodes=None, dtype=torch.float32, atol=1e-5):
    torch.manual_seed(0)
    k_all, v_all = torch.randn(2, place.tables.shape[0], MAX_LEN, KV_HEADS, DIM).to(dtype)
    q = torch.randn(sum(end - start for _, start, end in chunks), HEADS, DIM).to(dtype)
    cache = place.cache(KV_HEADS, DIM, dtype)
    for seq, start, _ in chunks:
        write_kv(k_all[seq, :start], v_all[seq, :start], cache, place.slots(seq, 0, start))
    k, v = (torch.cat([x[seq, start:end] for seq, start, end in chunks]) for x in (k_all, v_all))
    before, meta = cache.clone(), place.metadata(chunks, num_decodes)

    got = backend.plan(meta, SCALE, window)(q, k, v, cache)

    assert got.dtype == dtype and got.shape == q.shape
    for i, (seq, _, end) in enumerate(chunks):
        rows = slice(meta.query_start_loc[i], meta.query_start_loc[i + 1])
        want = written_out(q[rows], k_all[seq, :end], v_all[seq, :end], window)
        torch.testing.assert_close(got[rows].double(), want, atol=atol, rtol=0, msg=lambda m, i=i: f"chunk {chunks[i]}: {m}")
    write_kv(k, v, before, meta.slot_mapping)
    assert torch.equal(cache, before), "wrote other values than k and v, or outside this step's slots"


@pytest.mark.parametrize("window", [None, 1, 5, 100])
def test_mixed_batch(backend, layout, window):
    check(backend, layout(6, MAX_LEN), MIXED, window)


@pytest.mark.parametrize("window", [None, 3])
def test_one_token_chunks_may_be_prefills_too(backend, layout, window):
    check(backend, layout(6, MAX_LEN), MIXED, window, num_decodes=1)


@pytest.mark.parametrize("window", [None, 9, 10, 11])
def test_decodes_of_equal_length(backend, layout, window):
    check(backend, layout(4, MAX_LEN), [(seq, 10, 11) for seq in range(4)], window)


def test_a_full_context(backend, layout):
    check(backend, layout(3, MAX_LEN), [(0, MAX_LEN - 1, MAX_LEN), (1, 3, MAX_LEN), (2, 0, MAX_LEN)])


def test_small_blocks_that_happen_to_be_consecutive(backend, layout_kind):
    """Consecutive blocks of one sequence are not consecutive sequences of one block."""
    place = layout_kind("paged", 3, MAX_LEN)
    place.tables = place.tables.flatten().sort().values.view_as(place.tables)
    check(backend, place, [(1, 8, 9), (0, 0, 11)])
    check(backend, place, [(1, 2, 3), (2, 2, 3), (0, 0, 3)])


@pytest.mark.parametrize(("dtype", "atol"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_half_precision(backend, layout, dtype, atol):
    check(backend, layout(6, MAX_LEN), MIXED, window=7, dtype=dtype, atol=atol)


@st.composite
def batches(draw):
    spans = st.tuples(st.integers(0, MAX_LEN - 1), st.integers(1, MAX_LEN)).map(lambda s: (s[0], min(s[0] + s[1], MAX_LEN)))
    decodes = draw(st.lists(st.integers(0, MAX_LEN - 1), max_size=4))
    chunks = [(start, start + 1) for start in decodes] + draw(st.lists(spans, min_size=not decodes, max_size=3))
    seqs = draw(st.permutations(range(len(chunks))))
    return [(seq, *span) for seq, span in zip(seqs, chunks, strict=True)]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=batches(), window=st.none() | st.integers(1, MAX_LEN + 1), kind=st.sampled_from(["rows", "scattered", "paged"]))
@pytest.mark.parametrize("name", list(BACKENDS))
def test_any_batch(layout_kind, name, chunks, window, kind):
    check(make_attention(name), layout_kind(kind, len(chunks), MAX_LEN), chunks, window)


def test_one_plan_serves_every_layer(backend, layout):
    place = layout(2, MAX_LEN)
    attend = backend.plan(place.metadata([(0, 0, 1), (1, 0, 5)]), SCALE)
    torch.manual_seed(0)
    inputs = [[torch.randn(6, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)] for _ in range(2)]
    both = [attend(*x, place.cache(KV_HEADS, DIM)) for x in inputs]
    alone = [backend.plan(place.metadata([(0, 0, 1), (1, 0, 5)]), SCALE)(*x, place.cache(KV_HEADS, DIM)) for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(both, alone, strict=True))
    assert not torch.equal(both[0], both[1])


def test_sdpa_reads_consecutive_rows_in_place(layout_kind):
    for kind, in_place in [("rows", True), ("scattered", False)]:
        place = layout_kind(kind, 3, MAX_LEN)
        cache = place.cache(KV_HEADS, DIM)
        plan = make_attention("sdpa").plan(place.metadata([(seq, 6, 7) for seq in range(3)]), SCALE)
        k, _ = plan.decode_context.read(cache)
        assert k.shape == (3, KV_HEADS, 7, DIM)
        assert (k.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr()) is in_place


def test_unknown_backend():
    with pytest.raises(ConfigError, match="--attention flash3: choose one of torch, sdpa"):
        make_attention("flash3")
