"""Checks of 5.7: tokens against a float64 sort and an independent Philox, bytes moved, what a compiler makes of it."""

import math

import pytest
import torch

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels import argmax as blocks
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.runtime import INTERPRETED

from labs.kit.draws_by_hand import expected_token, keys, settings, uniforms
from labs.kit.far_apart import far_apart
from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, DTYPES, assert_compiles, counted
from labs.kit.torch_bytes import without_torch

BORDER = 1e-6  # closer to a border between two tokens than this, the last bits of exp and of sums decide


@pytest.fixture
def small_blocks(monkeypatch):
    """64 float32 logits at a time, so that a short row has several blocks, the last of them not full."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 256)


def rows_far_apart(values):
    """values [3, V], as float16, 2**30 elements apart: the last row begins past what 32 bits can say."""
    if INTERPRETED:
        logits = far_apart(*values.shape, stride=2**30)
    else:
        logits = torch.empty(2**31 + 64, dtype=torch.float16, device=DEVICE).as_strided(values.shape, (2**30, 1))
    return logits.copy_(values)


def assert_tokens(got, expected, what, inputs, hint):
    assert_close(got.cpu(), torch.as_tensor(expected), what, atol=0, rtol=0, inputs=inputs, hint=hint)


# ---------------------------------------------------------------------------------------------------------------------- argmax


@checks("argmax")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 7, 100, 9000])
def test_argmax(lab, length, dtype):
    logits = torch.randn(3, length, device=DEVICE).to(dtype)
    said = f"logits [3, {length}], {dtype}"
    with fenced():
        got = lab.argmax(logits)
    assert_tokens(got, logits.cpu().argmax(-1), "argmax", said, "the index in the row, start + lane, not the lane")


@checks("argmax")
def test_all_logits_far_below_zero(lab):
    logits = torch.randn(2, 100, device=DEVICE) - 50
    with fenced():
        got = lab.argmax(logits)
    hint = "lanes past the row's end must not win: other=-inf, not 0, and they may not be chosen even then"
    assert_tokens(got, logits.cpu().argmax(-1), "argmax", "logits of about -50, 100 a row: 28 lanes are padding", hint)


@counted
@checks("argmax")
def test_argmax_reads_once(lab):
    logits = torch.randn(3, 9000)
    what = "3 rows of 9,000 float32"
    with without_torch(logits, what), trace(logits=logits) as traffic:
        lab.argmax(logits)
    report = traffic.report()
    assert report.total.bytes, f"{what}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    hint = f"keep the best and its place in each lane while the row goes by: then nothing is read twice\n{report}"
    assert_equal(report["logits"].load_bytes, 3 * 9000 * 4, "bytes loaded of the logits", inputs=what, hint=hint)
    assert_equal(report.store_bytes, 3 * 8, "bytes stored", inputs=what, hint=f"one int64 a row\n{report}")


TIES = {  # of 9,000 float32, in blocks of 4,096
    "the same maximum in two blocks, one lane": ({100: 1.0, 4196: 1.0}, 0.0, 100),
    "the same maximum in two lanes of a block": ({130: 1.0, 131: 1.0, 8190: 1.0}, 0.0, 130),
    "the later lane first": ({5000: 1.0, 8202: 1.0}, 0.0, 5000),
    "nothing but -inf": ({}, -math.inf, 0),
    "-0 before 0": ({50: -0.0, 90: 0.0}, -1.0, 50),
    "NaN behind +inf": ({60: math.nan, 10: math.inf, 8500: math.nan}, 0.0, 60),
    "negative NaN": ({77: -math.nan, 5: 9.0}, 0.0, 77),
    "the last of all": ({8999: 2.0}, 0.0, 8999),
}


@checks("argmax")
@pytest.mark.parametrize("name", TIES)
def test_ties_and_numbers_that_are_none(lab, name):
    values, background, expected = TIES[name]
    logits = torch.full((1, 9000), background, device=DEVICE)
    for place, value in values.items():
        logits[0, place] = value
    hint = (
        "the first of equals wins: an equal one does not replace the best of its lane, of equal lanes the lowest *index* wins; "
        "`order` makes NaN the largest and -0 equal to 0"
    )
    with fenced():
        got = lab.argmax(logits)
    assert_tokens(got, [expected], "argmax", f"{name}: 9,000 logits, {values} and {background} elsewhere", hint)


@checks("argmax")
def test_argmax_of_no_rows_and_of_slices(lab):
    assert_equal(list(lab.argmax(torch.zeros(0, 9, device=DEVICE)).shape), [0], "the shape", inputs="logits [0, 9]")
    wide = torch.randn(3, 200, device=DEVICE)
    with fenced():
        got = lab.argmax(wide[:, 50:150])
    hint = "rows lie `stride` elements apart, which is more than their length"
    assert_tokens(got, wide[:, 50:150].cpu().argmax(-1), "argmax", "columns 50 to 149 of [3, 200]", hint)


@checks("argmax")
def test_rows_beyond_two_to_the_31(lab):
    logits = rows_far_apart(torch.arange(48).reshape(3, 16))
    logits[2, 5] = 60
    got = lab.argmax(logits)
    hint = "2 * 2**30 does not fit 32 bits: row = tl.program_id(0).to(tl.int64)"
    assert_tokens(got, [15, 15, 5], "argmax", "three rows, 2**30 elements apart", hint)


@checks("argmax")
def test_argmax_compiles_without_spills(lab):
    logits = torch.randn(1, 128256, device=DEVICE).bfloat16()
    found = assert_compiles(lambda: lab.argmax(logits), "argmax of 128,256 bfloat16, RTX 4090")
    said = f"argmax: loads of {found.widest_load} bits a thread; neighbouring lanes must load neighbouring elements\n{found}"
    assert found.widest_load == 128, said


# ---------------------------------------------------------------------------------------------------------------------- sample


def on(values):
    return {name: value.to(DEVICE) for name, value in values.items()}


def assert_draws(lab, logits, params, key, hint, ties=False):
    """Tokens of all rows whose draw is not within BORDER of another outcome (ties: the case is exact, all count)."""
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(params), **on(key)).cpu()
    u = uniforms(**key)
    rows = range(len(logits))
    wanted = [
        expected_token(logits[r], u[r], *(params[n][r].item() for n in ("temperature", "top_k", "top_p", "min_p"))) for r in rows
    ]
    kept = [r for r in rows if ties or wanted[r][1] > BORDER]
    assert len(kept) >= 0.8 * len(logits)
    first = {name: value[0].item() for name, value in params.items()}
    said = f"logits {list(logits.shape)}, {logits.dtype}; the first row's {first}"
    assert_equal(
        {r: int(got[r]) for r in kept}, {r: wanted[r][0] for r in kept}, "row -> token", inputs=said, hint=hint
    )  # fmt: skip


KEY = "u of a row is uniform(seed, position, index) of that row, each loaded at pointer + row; all 64 bits of seed and position"


@checks("sample")
def test_draws_without_filters(lab):
    """Sixteen keys, one distribution."""
    logits = (3 * torch.randn(1, 1000)).expand(16, -1).contiguous()
    assert_draws(lab, logits, settings(16), keys(16), f"the first index whose cumulative weight exceeds u · total. {KEY}")


@checks("sample")
def test_defaults_no_rows_and_a_slice(lab):
    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    got = lab.sample(torch.zeros(0, 9, device=DEVICE), torch.zeros(0, device=DEVICE), none, none)
    assert_equal(list(got.shape), [0], "the shape", inputs="logits [0, 9]")
    wide, key = torch.randn(4, 300), keys(4)
    key["index"] = torch.zeros(4, dtype=torch.int64)
    with fenced():
        got = lab.sample(
            wide.to(DEVICE)[:, 100:200], torch.ones(4, device=DEVICE), key["seed"].to(DEVICE), key["position"].to(DEVICE)
        )
    wanted = [expected_token(wide[r, 100:200], u, 1.0, 0, 1.0, 0.0)[0] for r, u in enumerate(uniforms(**key))]
    said = "columns 100 to 199 of [4, 300], no index, no filters"
    assert_tokens(got, wanted, "tokens", said, "rows lie `stride` elements apart, which is more than their length")


@checks("sample")
def test_a_block_with_a_long_tail(lab):
    """A weight of 1, then 4,000 of 1e-6 in the same block, each an eighth part of what a float32 next to 1 can resolve."""
    logits = torch.full((1, 4001), math.log(1e-6))
    logits[0, 0] = 0
    key = {"seed": torch.tensor([11]), "position": torch.tensor([5871]), "index": torch.tensor([0])}
    expected, _ = expected_token(logits[0], uniforms(**key)[0], 1.0, 0, 1.0, 0.0)
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(settings(1)), **on(key))
    hint = "cumulative weights inside of the last block in float64: tl.cumsum(weights.to(tl.float64), axis=0)"
    said = "a logit of 0, then 4,000 of log 1e-6, float32; u = 0.998, half of the tail"
    assert_close(got.cpu().double(), torch.tensor([expected]).double(), "token", atol=3, rtol=0, inputs=said, hint=hint)


@checks("sample")
def test_parameters_at_the_end_of_their_range(lab):
    logits, key, given = torch.randn(3, 100), keys(3), settings(3)
    given["temperature"][:2] = torch.tensor([1e-40, 1.0])
    given["min_p"][1], given["top_k"][2] = 2.0, 10**6
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(given), **on(key)).cpu()
    wanted = [*logits[:2].argmax(-1).tolist(), expected_token(logits[2], uniforms(**key)[2], 1.0, 0, 1.0, 0.0)[0]]
    said = "temperature 1e-40 (1 / it is inf in float32); min_p 2; top_k 1,000,000 of 100"
    hint = "temperature is kept within 1e-30 and 1e30, min_p at most 1; a top_k of the whole row or more keeps all"
    assert_tokens(got, wanted, "tokens", said, hint)


@checks("sample")
def test_drawn_rows_beyond_two_to_the_31(lab):
    logits = rows_far_apart(torch.arange(48).reshape(3, 16) % 7)
    hint = "2 * 2**30 does not fit 32 bits: row = tl.program_id(0).to(tl.int64)"
    key, given = keys(3), settings(3)
    got = lab.sample(logits, **on(given), **on(key))
    wanted = [expected_token(row.float().cpu(), u, 1.0, 0, 1.0, 0.0)[0] for row, u in zip(logits, uniforms(**key), strict=True)]
    assert_tokens(got, wanted, "tokens", "three rows, 2**30 elements apart", hint)


@counted
@checks("sample")
@pytest.mark.usefixtures("small_blocks")
def test_a_draw_without_filters_reads_two_to_three_times(lab):
    length = 300
    logits, key, params = torch.randn(4, length), keys(4), settings(4)
    what = "4 rows of 300 float32, 64 a block, no filters"
    with without_torch(logits, what), trace(logits=logits) as traffic:
        tokens = lab.sample(logits, **params, **key)
    report = traffic.report()
    assert report.total.bytes, f"{what}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    allowed = 0
    for token in tokens.tolist():
        first = token // 64 * 64
        end = min(first + 64, length)
        allowed += (2 * length + end + end - first) * 4
    loaded = report["logits"].load_bytes
    assert loaded <= allowed, (
        f"{what}: {loaded:,} bytes loaded; maximum, total, up to the drawn block and that block again are {allowed:,}"
        f"\n  likely   the walk must end where u falls, and what the filters leave alone needs no pass of theirs\n{report}"
    )
    rest = report.total.bytes - loaded - 4 * 8
    assert rest <= 4 * 48, f"{what}: {rest:,} bytes of other tensors; the parameters are 48 a row, the token 8\n{report}"


@counted
@checks("sample")
@pytest.mark.parametrize("params, spread, most", [({"top_p": 0.9}, 2, 22), ({"top_p": 0.9}, 5, 12), ({"top_k": 100}, 2, 20)])
def test_a_bisection_is_short(lab, params, spread, most):
    logits, key, given = spread * torch.randn(1, 3000), keys(1), settings(1, **params)
    what = f"a row of 3,000 float32, normal, deviation {spread}, {params}"
    with without_torch(logits, what), trace(logits=logits) as traffic:
        lab.sample(logits, **given, **key)
    report = traffic.report()
    passes = report["logits"].load_bytes / (4 * 3000)
    assert passes >= 3, f"{what}: no kernel walked over the logits; the work must be done by your Triton kernel, not by torch"
    assert passes <= most, (
        f"{what}: {passes:.0f} passes over the row, {report['logits'].load_bytes:,} bytes; {most} are enough\n"
        "  likely   low and high must jump to weights that occur (what mass_from returns beside the mass), not to the middle; "
        f"the search begins at the floor, 0.99 · (1 − top_p) · mass / length, not at 0\n{report}"
    )


@counted
@checks("sample")
def test_a_greedy_row_has_no_weights(lab):
    logits, key, given = torch.randn(2, 3000), keys(2), settings(2, temperature=0.0, top_k=5, top_p=0.5)
    what = "2 rows of 3,000 float32, temperature 0, top_k=5, top_p=0.5"
    with without_torch(logits, what), trace(logits=logits) as traffic:
        lab.sample(logits, **given, **key)
    report = traffic.report()
    loaded, allowed = report["logits"].load_bytes, 2 * logits.nbytes
    assert loaded <= allowed, (
        f"{what}: {loaded:,} bytes loaded; the maximum and its place are {allowed:,}"
        f"\n  likely   `draw` stands inside of the `if`, not before it\n{report}"
    )


FILTERS = {
    "temperature": ({"temperature": 0.5}, "weights are exp((l - max) / temperature): divide once"),
    "top_k": ({"top_k": 10}, "kth = kth_largest(x_ptr, length, k, top, BLOCK) if 0 < k < length"),
    "top_k of 1": ({"top_k": 1}, "kth = kth_largest(x_ptr, length, k, top, BLOCK) if 0 < k < length"),
    "top_p": ({"top_p": 0.9}, "all that weigh more than the edge, and of those at the edge as many as reach top_p"),
    "small top_p": ({"top_p": 0.05}, "the token that crosses top_p is in; the nucleus is never empty"),
    "min_p": ({"min_p": 0.1}, "candidates weigh at least min_p, where the likeliest weighs 1"),
    "all": (
        {"top_k": 50, "top_p": 0.8, "min_p": 0.01, "temperature": 1.7},
        "top_p is a share of the mass that top_k and min_p left",
    ),
    "top_k, then top_p": (
        {"top_k": 5, "top_p": 0.6, "temperature": 3.0},
        "top_p is a share of the mass that top_k left: pass kth and min_p on",
    ),
}


@checks("sample")
@pytest.mark.parametrize("name", FILTERS)
def test_filters(lab, name):
    params, hint = FILTERS[name]
    assert_draws(lab, 3 * torch.randn(5, 500), settings(5, **params), keys(5, seed=len(name)), hint)


@checks("sample")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("small_blocks")
def test_rows_of_many_blocks(lab, dtype):
    hint = (
        "walk over the row in BLOCKs, the last of which is not full; 16-bit logits have many ties, which are all in or in order"
    )
    logits = (3 * torch.randn(3, 300)).to(dtype)
    assert_draws(lab, logits, settings(3, top_k=40, top_p=0.7, min_p=0.001), keys(3), hint)


@checks("sample")
@pytest.mark.parametrize("length", [1, 2, 5000])
def test_lengths(lab, length):
    assert_draws(lab, torch.randn(3, length), settings(3, top_p=0.9), keys(3), "a vocabulary of one token has one answer")


@checks("sample")
@pytest.mark.parametrize("weights, top_p", [((0.5, 0.3, 0.2), 0.7), ((1.0, 0.89, 0.8), 0.6)], ids=str)
def test_the_token_that_crosses_the_border_is_in(lab, weights, top_p):
    logits = torch.tensor([weights]).log().expand(10, -1).contiguous()
    hint = "the first weighs less than the share top_p: the second, which crosses it, is in the nucleus, the third is not"
    assert_draws(lab, logits, settings(10, top_p=top_p), keys(10), hint)


@checks("sample")
@pytest.mark.usefixtures("small_blocks")
def test_equal_logits_at_the_edges(lab):
    """200 equal logits: top-k keeps all that tie with the third; top-p exactly the first 75 % or 25 %."""
    logits, key = torch.zeros(4, 200), keys(4)
    u = uniforms(**key)
    said = "200 equal logits, 64 a block"
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(settings(4, top_k=3)), **on(key))
    assert_tokens(got, (200 * u).long(), "tokens, top_k=3", said, "all that tie with the k-th stay, so here all 200")
    top_p = torch.tensor([0.75, 0.25], dtype=torch.float64).repeat(2)
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(settings(4) | {"top_p": top_p}), **on(key))
    hint = "of equal weights at the edge only the first, as many as are needed: `last` is the index of the last of those"
    assert_tokens(got, (200 * top_p * u).long(), "tokens, top_p 0.75 and 0.25 in turn", said, hint)


@checks("sample")
def test_rows_without_a_distribution(lab):
    logits = torch.randn(5, 100)
    logits[0, 7] = logits[0, 9] = -torch.tensor(torch.nan)
    logits[1, 20] = logits[1, 30] = torch.inf
    logits[2] = -torch.inf
    logits[3] = torch.nan
    key = keys(5)
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(settings(5, top_k=5, top_p=0.5)), **on(key)).cpu()
    hint = "draw only where top lies between MINUS_INF and PLUS_INF; else the first of the row's largest, NaN above all"
    said = "rows with NaN at 7 and 9, +inf at 20 and 30, all -inf, all NaN; top_k=5, top_p=0.5"
    assert_tokens(got[:4], [7, 20, 0, 0], "tokens", said, hint)
    assert_draws(lab, logits[4:], settings(1, top_k=5, top_p=0.5), {n: v[4:] for n, v in key.items()}, "as if it were alone")


@checks("sample")
def test_masked_tokens_are_never_drawn(lab):
    logits = torch.full((12, 40), -torch.inf)
    logits[:, 3], logits[:, 38] = 0.0, -1.0
    hint = "a token of -inf has weight 0, at the row's beginning, between and at its end"
    assert_draws(lab, logits, settings(12, temperature=50.0), keys(12), hint)


@checks("sample")
def test_a_row_does_not_know_its_neighbours(lab):
    logits, key = 2 * torch.randn(6, 200), keys(6)
    own = {
        "temperature": torch.tensor([0, 1, 0.5, 1, 0, 2.0]),
        "top_k": torch.tensor([0, 0, 5, 300, 3, 20]),
        "top_p": torch.tensor([1, 1, 0.9, 0.5, 0.1, 1], dtype=torch.float64),
        "min_p": torch.tensor([0, 0.1, 0, 0, 0.5, 0.2]),
    }
    with fenced():
        together = lab.sample(logits.to(DEVICE), **on(own), **on(key)).cpu()
    hint = "parameters and key are the row's own, and the row's number is in none of them"
    for rows in (slice(2, 3), slice(5, 2, -1)):
        index = torch.arange(6)[2:3] if rows.step is None else torch.tensor([5, 4, 3])
        some = {name: value[index] for name, value in (own | key).items()}
        with fenced():
            got = lab.sample(logits[index].contiguous().to(DEVICE), **on(some))
        assert_tokens(got, together[index], "tokens", f"rows {index.tolist()} of six in a batch of their own", hint)
    greedy = own["temperature"] == 0
    assert_tokens(together[greedy], logits[greedy].argmax(-1), "tokens", "rows with temperature 0", "0 is argmax")


@checks("sample")
def test_one_key_many_rows(lab):
    """The same key twice gives the same token; another position, index or seed another number."""
    logits = torch.zeros(12, 4096)
    key = {
        "seed": torch.tensor([7] * 8 + [8] * 4),
        "position": torch.tensor([1, 1, 2, 2**32 + 1, 1, 1, 5, 6, 1, 2, 3, 4]),
        "index": torch.tensor([0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]),
    }
    with fenced():
        got = lab.sample(logits.to(DEVICE), **on(settings(12)), **on(key))
    said = (
        f"4,096 equal logits, seeds {key['seed'].tolist()}, positions {key['position'].tolist()}, indices {key['index'].tolist()}"
    )
    assert_tokens(got, (4096 * uniforms(**key)).long(), "tokens", said, KEY)


@checks("sample")
@pytest.mark.usefixtures("small_blocks")
def test_the_tail_of_a_long_row(lab):
    """64 weights of 1, then 100 blocks of 64 that add 3.2e-6 each. A running float32 sum stays at 64 for ever."""
    logits = torch.cat([torch.zeros(64), torch.full((6400,), math.log(5e-8))])[None]
    key = {"seed": torch.tensor([11]), "position": torch.tensor([405644]), "index": torch.tensor([0])}
    assert (uniforms(**key) > 1 - 3e-6).all()
    hint = "a float32 cannot add 3.2e-6 to 64: carry the sum from block to block, and the total, in float64"
    assert_draws(lab, logits, settings(1), key, hint, ties=True)


@checks("sample")
def test_sample_compiles_without_spills(lab):
    logits = torch.randn(1, 128256, device=DEVICE).bfloat16()
    found = assert_compiles(lambda: lab.sample(logits, **on(settings(1)), **on(keys(1))), "sample of 128,256 bfloat16, RTX 4090")
    said = f"sample: loads of {found.widest_load} bits a thread; neighbouring lanes must load neighbouring elements\n{found}"
    assert found.widest_load == 128, said
