"""Checks of 2.6: filters against transformers, Philox against its authors, draws by hand and by chi-square, sums bit by bit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal
from labs.kit.conformance import checks as suite
from labs.kit.sampling_by_hand import in_stated_order, philox_in_numpy, transformers_distribution
from minillm.request import Request, SamplingParams
from minillm.sampling.rng import uniform


def normal(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def distribution(lab, logits, **params):
    """Probability of each token, after checking the form of what candidates returned."""
    before = logits.clone()
    ids, weights = lab.candidates(logits, SamplingParams(**params))
    inputs = f"{len(logits)} logits, {params}"
    assert_equal(torch.equal(logits, before), True, "the caller's logits are unchanged", inputs=inputs)
    places = list(range(len(logits))) if ids is None else ids.tolist()
    assert_equal(len(weights), len(places), "one weight for each id", inputs=inputs)
    assert_equal(weights.dtype, torch.float32, "dtype of weights", inputs=inputs)
    if ids is not None:
        assert_equal(ids.dtype, torch.int64, "dtype of ids", inputs=inputs, hint="as nonzero() gives them: they index tensors")
    assert_equal(len(places) > 0, True, "at least one token is left", inputs=inputs, hint="the token that reaches top_p stays")
    assert_equal(places, sorted(set(places)), "ids ascend, each once", inputs=inputs)
    assert_close(weights.amax(), torch.tensor(1.0), "the likeliest token's weight", atol=1e-6, rtol=0, inputs=inputs)
    probs = torch.zeros_like(logits)
    probs[places] = weights / weights.sum()
    return probs


def known():
    """A tensor of its own for each check: code that works in place must not spoil the next one."""
    return torch.tensor([0.30, 0.05, 0.40, 0.15, 0.10]).log()


@checks("candidates")
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_temperature_divides_the_logits(lab, temperature):
    got = distribution(lab, known(), temperature=temperature)
    assert_close(got, torch.softmax(known() / temperature, 0), "probabilities", atol=1e-6, rtol=1e-5, inputs=f"{temperature=}")


@checks("candidates")
@pytest.mark.parametrize(
    "params, kept, hint",
    [
        ({"top_k": 2}, [0, 2], "the two largest"),
        ({"top_k": 9}, [0, 1, 2, 3, 4], "top_k above the vocabulary keeps everything"),
        ({"top_p": 0.65}, [0, 2], "0.40 does not reach 0.65, 0.40 + 0.30 does: the token that reaches it stays"),
        ({"top_p": 0.3}, [2], "the first token reaches 0.3 by itself"),
        ({"min_p": 0.3}, [0, 2, 3], "min_p is a share of the likeliest one's probability: at least 0.3 · 0.40 = 0.12 is kept"),
        ({"min_p": 0.5, "temperature": 2.0}, [0, 2, 3, 4], "temperature first: at 2 the ratios are 0.87, 0.35, 1, 0.61, 0.5"),
        ({"min_p": 0.7, "top_p": 0.55}, [2], "min_p leaves 0.40 and 0.30; of these 0.40 is 57 %, enough for 0.55"),
        ({"top_k": 2, "top_p": 0.55}, [2], "top_p is a share of what top_k left: 0.40 of 0.70 is 57 %"),
    ],
)
def test_known_filters(lab, params, kept, hint):
    logits = known() + 1e-6 * torch.tensor([0, 0, 0, 0, 1.0])  # off the exact border of min_p = 0.5
    got = distribution(lab, logits, **{"temperature": 1.0, **params})
    probs = f"probabilities 0.30, 0.05, 0.40, 0.15, 0.10; {params}"
    assert_equal(got.nonzero().flatten().tolist(), kept, "ids that are left", inputs=probs, hint=hint)


@checks("candidates")
def test_ties(lab):
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0])
    got = distribution(lab, logits, top_k=2)
    hint = "compare with the k-th largest value, and keep what is not below it"
    assert_equal(got.nonzero().flatten().tolist(), [1, 2, 4], "ids top_k=2 leaves of 1, 3, 3, 2, 3", hint=hint)
    got = distribution(lab, torch.zeros(4), top_p=0.5)
    hint = "a stable sort keeps equals in the order of their ids"
    assert_equal(got.nonzero().flatten().tolist(), [0, 1], "ids top_p=0.5 leaves of four equal logits", hint=hint)


@checks("candidates")
def test_nothing_asked_leaves_everything(lab):
    ids, weights = lab.candidates(known(), SamplingParams())
    assert_equal(ids, None, "ids without any filter", hint="None stands for the whole vocabulary")
    assert_equal(len(weights), 5, "number of weights")


@checks("candidates")
@pytest.mark.parametrize("temperature", [1e-6, 1e4])
def test_extreme_temperatures_and_impossible_tokens(lab, temperature):
    logits = torch.tensor([-torch.inf, 700.0, 703.0, -torch.inf, 1.0])
    for params in ({}, {"top_k": 4}, {"top_p": 0.9999}, {"min_p": 1e-9}):
        got = distribution(lab, logits, temperature=temperature, **params)
        hint = "subtract the largest logit before exp"
        assert_equal(bool(got.isfinite().all()), True, f"finite probabilities at {temperature}, {params}", hint=hint)
        assert_equal(got[[0, 3]].tolist(), [0, 0], f"probability of the impossible tokens, {params}")
        assert_close(got.sum(), torch.tensor(1.0), "sum of probabilities", atol=1e-5, rtol=0, inputs=f"{temperature=} {params}")
    got = lab.candidates(logits[[1, 2]], SamplingParams(temperature=1e-6))[1]
    assert_equal(got.tolist(), [0.0, 1.0], "weights of logits 700 and 703 at temperature 1e-6")


@checks("candidates")
def test_a_long_tail_is_summed_exactly(lab):
    """One token of weight 1 and 200,000 of 1e-8: their sum, 0.002, is below what a running float32 sum near 1 can see."""
    logits = torch.full((200_001,), math.log(1e-8))
    logits[0] = 0.0
    got = len(lab.candidates(logits, SamplingParams(top_p=0.999))[1])
    expected = (0.999 * 1.002 - 1) / 1e-8  # about 99,800 of the tail
    hint = "add up in float64: adding 1e-8 to 1.0 changes nothing in float32"
    assert_close(
        float(got), expected, "number of tokens top_p=0.999 leaves", atol=0, rtol=0.02, inputs="1, then 1e-8 200,000 ×", hint=hint
    )


@checks("candidates")
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 2, 17, 300, 3000]),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 40, 10_000]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_filters_agree_with_transformers(lab, seed, size, temperature, top_k, top_p, min_p):
    params = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    logits = normal(size, seed=seed, scale=3.0)
    got, expected = distribution(lab, logits, **params), transformers_distribution(logits, **params)
    inputs = f"{size} logits, {params}"
    # at a mass within rounding of top_p one token more or less is a matter of summation order: that is what this module is about
    differ = int(((got > 0) != (expected > 0)).sum())
    assert differ <= (top_p < 1), f"{inputs}: keeps {int((got > 0).sum())} tokens, transformers {int((expected > 0).sum())}"
    if differ == 0:
        assert_close(got, expected, "probabilities", atol=2e-6, rtol=1e-4, inputs=inputs)


# Known-answer vectors of Random123, the authors' library (philox4x32, 10 rounds)
ONES, PI = 0xFFFFFFFF, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@checks("philox4x32")
@pytest.mark.parametrize("counter, key, expected", VECTORS, ids=["zeros", "ones", "pi"])
def test_published_vectors(lab, counter, key, expected):
    got = lab.philox4x32(counter, key)
    inside = all(isinstance(word, int) and 0 <= word <= ONES for word in got)
    assert_equal(inside, True, "four words below 2**32", inputs=str(got), hint="the key wraps around: & 0xFFFFFFFF after adding")
    hint = "ten rounds; the key moves on after each; the new words are all made from the old ones"
    assert_equal([hex(w) for w in got], [hex(w) for w in expected], f"philox4x32({counter}, {key})", hint=hint)


WORDS = st.integers(0, ONES)


@checks("philox4x32")
@given(counter=st.tuples(WORDS, WORDS, WORDS, WORDS), key=st.tuples(WORDS, WORDS))
def test_any_counter_and_key(lab, counter, key):
    got, expected = map(hex, lab.philox4x32(counter, key)), map(hex, philox_in_numpy(counter, key))
    hint = "it must hold for any words, not for the published ones alone"
    assert_equal(list(got), list(expected), "four words", inputs=f"philox4x32({counter}, {key})", hint=hint)


@checks("philox4x32")
def test_neighbouring_counters_share_nothing(lab):
    """One bit of the counter or the key changes about half of the 128 bits of the result."""
    base = lab.philox4x32((5, 6, 7, 8), (9, 10))
    for name, counter, key in [(f"counter word {i}", [5, 6, 7, 8], [9, 10]) for i in range(4)] + [
        (f"key word {i}", [5, 6, 7, 8], [9, 10]) for i in range(2)
    ]:
        (counter if "counter" in name else key)[int(name[-1])] ^= 1
        other = lab.philox4x32(tuple(counter), tuple(key))
        changed = sum((a ^ b).bit_count() for a, b in zip(base, other, strict=True))
        assert 35 < changed < 93, f"one bit of {name} changes {changed} of 128 bits, expected about 64"


def request(seed=0, position=1, index=0, **params):
    """One whose next token stands at `position`: its first token is the prompt, the others are answer."""
    return Request(f"r{seed}-{position}-{index}", [0] * position, 1, SamplingParams(seed=seed, **params), 99, seed, index=index)


def drawn(lab, logits, requests):
    return [token.token_id for token in lab.Sampler()(logits, requests)]


def by_hand(probs, seed, position, index=0):
    """The token at which the running sum first exceeds u, in plain Python."""
    total, u = math.fsum(probs), uniform(seed, position, index)
    running = 0.0
    for token, p in enumerate(probs):
        running += p
        if running > u * total:
            return token
    return len(probs) - 1


@checks("Sampler")
@pytest.mark.parametrize("check", suite("sampling.pipeline"), ids=lambda check: check.__name__.removeprefix("check_"))
def test_any_sampler(lab, check):
    check(lab.Sampler)


@checks("Sampler")
def test_the_token_is_where_the_running_sum_passes_u(lab):
    logits = normal(7, scale=1.5)
    probs = torch.softmax(logits.double(), 0).tolist()
    for seed, position, index in [(s, p, i) for s in (0, 7, -3, 2**63 + 1) for p in (1, 2, 50) for i in (0, 1)]:
        got = drawn(lab, logits[None], [request(seed, position, index)])
        key = f"seed {seed}, num_tokens {position}, index {index}: u = {uniform(seed, position, index):.4f}"
        inputs = f"probabilities {[round(p, 3) for p in probs]}; {key}"
        assert_equal(
            got, [by_hand(probs, seed, position, index)], "token", inputs=inputs, hint="the key is (seed, num_tokens, index)"
        )


@checks("Sampler")
def test_draws_pass_chi_square(lab):
    logits = normal(12, seed=3)
    probs = torch.softmax(logits, 0).double().numpy()
    for name, requests in {
        "seeds 0 to 3999": [request(seed) for seed in range(4000)],
        "positions 1 to 1000 of one seed, four samples each": [request(5, p, i) for p in range(1, 1001) for i in range(4)],
    }.items():
        counts = np.bincount(drawn(lab, logits.expand(4000, -1), requests), minlength=12)
        p = stats.chisquare(counts, probs / probs.sum() * 4000).pvalue
        assert p > 1e-4, f"{name}: counts {counts.tolist()}, expected {(probs * 4000).round().tolist()}; chi-square p = {p:.1e}"


@checks("Sampler")
def test_alone_and_among_others(lab):
    """The same request in batches of 1 to 9, at every place, beside greedy, filtered and penalised ones."""
    logits = normal(9, 50, seed=4, scale=2.0)
    kinds = [{}, {"temperature": 0}, {"top_k": 3}, {"repetition_penalty": 1.5}, {"top_p": 0.7, "logprobs": 2}]
    requests = [request(seed, 1 + seed, **kinds[seed % 5]) for seed in range(9)]
    alone = [drawn(lab, logits[i : i + 1], [requests[i]])[0] for i in range(9)]
    for size in range(1, 10):
        for shift in range(9):
            places = [(shift + j) % 9 for j in range(size)]
            got = drawn(lab, logits[places], [requests[i] for i in places])
            hint = "a generator shared by a batch, or made once and used up draw by draw, gives others' numbers"
            assert_equal(got, [alone[i] for i in places], "tokens", inputs=f"requests {places} in one batch", hint=hint)


@checks("Sampler")
def test_a_request_that_gave_way_goes_on_with_the_same_draws(lab):
    """A sequence of 12 draws, by one sampler; and again with another sampler from the middle on, as after a restart."""
    logits = normal(1, 200, seed=5)
    whole, sampler = [], lab.Sampler()
    for position in range(1, 13):
        whole.append(sampler(logits, [request(9, position)])[0].token_id)
    again, sampler = [], lab.Sampler()
    for position in range(6, 13):
        sampler(logits.expand(3, -1), [request(s, 4) for s in (1, 2, 3)])  # others run meanwhile
        again.append(sampler(logits, [request(9, position)])[0].token_id)
    hint = "keep no state: the position in the sequence says which draw it is, not how many were made"
    assert_equal(again, whole[5:], "tokens from position 6 on", inputs="seed 9, 200 tokens; paused after position 5", hint=hint)


@checks("Sampler")
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_bias_and_penalties_count_for_greedy_and_for_random_rows(lab, temperature):
    logits = torch.tensor([[0.0, 9.0, 1.0]])
    before = logits.clone()
    got = drawn(lab, logits, [request(1, 2, temperature=temperature, logit_bias={1: -100.0, 2: 60.0})])
    assert_equal(got, [2], "token", inputs="logits 0, 9, 1; logit_bias -100 for token 1, +60 for token 2", hint="process first")
    assert_equal(logits.tolist(), before.tolist(), "the caller's logits afterwards", hint="the engine reports logprobs from them")


@checks("Sampler")
@pytest.mark.parametrize("temperature", [0, 0.25])
def test_logprobs_are_the_models_own(lab, temperature):
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    wish = {"temperature": temperature, "logit_bias": {2: 50.0}}
    for count in (0, 2, None):
        (token,) = lab.Sampler()(logits, [request(1, 2, logprobs=count, **wish)])
        inputs = f"logits 0, 2, 1, -1; temperature {temperature}, logit_bias +50 for token 2, logprobs={count}"
        assert_equal(token.token_id, 2, "token", inputs=inputs)
        assert_equal(token.logprobs is None, count is None, "logprobs is None", inputs=inputs, hint="0 asks for the token's own")
        if count is not None:
            expected = torch.log_softmax(logits[0], 0)
            got = [(entry.token_id, round(entry.logprob, 4)) for entry in token.logprobs]
            wanted = [(i, round(expected[i].item(), 4)) for i in [2, 1, 2][: 1 + count]]
            assert_equal(
                got, wanted, "(token, logprob)", inputs=inputs, hint="from the logits as they came in: raw, not processed"
            )


@checks("Sampler")
def test_each_row_gets_the_logprobs_that_its_request_asked_for(lab):
    logits = normal(4, 30, seed=8)
    wishes, before = [2, None, 0, 5], logits.clone()
    requests = [request(seed, temperature=seed % 2, logprobs=count) for seed, count in enumerate(wishes)]
    tokens = lab.Sampler()(logits, requests)
    inputs = f"four rows; logprobs={wishes}"
    kinds = [type(token.token_id) for token in tokens]
    assert_equal(kinds, [int] * 4, "types of token_id", inputs=inputs, hint="int(…): it goes into text and JSON from here")
    counts = [None if token.logprobs is None else len(token.logprobs) for token in tokens]
    hint = "the token itself, and as many of the likeliest as this request asks for, whatever the others want"
    assert_equal(counts, [3, None, 1, 6], "entries of each row", inputs=inputs, hint=hint)
    for i in (0, 2, 3):
        own, expected = tokens[i].logprobs[0], torch.log_softmax(before[i], 0)[tokens[i].token_id].item()
        assert_equal(own.token_id, tokens[i].token_id, f"first entry of row {i}", inputs=inputs, hint="each row's own token")
        assert_close(own.logprob, expected, f"its logprob, row {i}", atol=1e-5, rtol=0, inputs=inputs, hint="from the same row")
    hint = "a row of `process` may be a view of the caller's logits: make new tensors, never work in place"
    assert_equal(torch.equal(logits, before), True, "the caller's logits are unchanged", inputs=inputs, hint=hint)


@checks("Sampler")
def test_of_equal_logits_the_lowest_id_is_greedy(lab):
    logits = torch.zeros(2, 130)
    logits[0, [128, 70, 9]] = 1.0
    got = drawn(lab, logits, [request(temperature=0), request(temperature=0)])
    assert_equal(got, [9, 0], "tokens", inputs="130 logits of 0; in the first row 1 at 9, 70 and 128")


@checks("Sampler")
def test_a_whole_vocabulary_is_summed_in_float64(lab):
    logits = normal(1, 200_000, seed=6, scale=0.3)
    _, weights = lab.candidates(logits[0], SamplingParams())
    running = weights.double().cumsum(0)
    for seed in range(40):
        u = uniform(seed, 1) * float(running[-1])
        expected = int(torch.searchsorted(running, torch.tensor([u], dtype=torch.float64), right=True))
        hint = "a running sum in float32 is off by several tokens far out"
        assert_equal(drawn(lab, logits, [request(seed)]), [expected], "token", inputs=f"200,000 tokens, seed {seed}", hint=hint)


def assert_same_bits(got, expected, what, inputs, hint):
    assert_equal(list(got.shape), list(expected.shape), f"shape of {what}", inputs=inputs)
    assert_equal(got.dtype, expected.dtype, f"dtype of {what}", inputs=inputs)
    if not torch.equal(got, expected):
        where = tuple((got != expected).nonzero()[0].tolist())
        values = f"  expected {expected[where].item()!r}\n  got      {got[where].item()!r}"
        count = f"{int((got != expected).sum())} of {got.numel()} numbers differ, the first at {list(where)}"
        raise AssertionError(f"{what}: {count}\n  input    {inputs}\n{values}\n  likely   {hint}")


@checks("fixed_split_linear")
@pytest.mark.parametrize("split, expected", [(1, 0.0), (2, 2.0), (3, 1.0), (6, 0.0)])
def test_where_the_sum_is_cut_shows(lab, split, expected):
    big = float(2**24)  # in float32, big + 1 == big, while big + 2 is another number
    x = torch.tensor([[big, 0, 1, 1, -big, 0]])
    got = lab.fixed_split_linear(x, torch.ones(1, 6), split)
    inputs = f"x = 2**24, 0, 1, 1, -2**24, 0; weights 1; split={split}"
    assert_close(
        got, torch.tensor([[expected]]), "sum", atol=0, rtol=0, inputs=inputs, hint="each part from 0, then part to part"
    )


@checks("fixed_split_linear")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns, split", [(1, 1), (6, 1), (7, 3), (64, 16), (65, 64), (20, 100)])
def test_the_order_is_the_stated_one(lab, dtype, columns, split):
    x, weight = (normal(4, columns, seed=1) * 1000).to(dtype), normal(5, columns, seed=2).to(dtype)
    got = lab.fixed_split_linear(x, weight, split)
    inputs = f"x [4, {columns}], weight [5, {columns}], {dtype}, split={split}"
    hint = "float32 throughout, the product rounded before it is added, columns and parts from left to right"
    assert_same_bits(got, in_stated_order(x, weight, split), "result", inputs, hint)


@checks("fixed_split_linear")
@pytest.mark.parametrize("columns, split", [(576, 64), (37, 8), (5, 64)])
def test_a_row_is_the_same_alone_and_among_others(lab, columns, split):
    x, weight = normal(17, columns, seed=3), normal(33, columns, seed=4)
    alone = torch.cat([lab.fixed_split_linear(row[None].clone(), weight, split) for row in x])
    for count in (0, 1, 2, 5, 8, 17):
        for start in (0, 17 - count):
            got = lab.fixed_split_linear(x[start : start + count], weight, split)
            inputs = f"rows {start} to {start + count} of 17 together, [., {columns}], split={split}"
            hint = "the parts must not depend on the number of rows"
            assert_same_bits(got, alone[start : start + count], "rows", inputs, hint)


@checks("fixed_split_linear")
def test_it_is_a_product(lab):
    x, weight = normal(3, 100, seed=5), normal(4, 100, seed=6)
    got = lab.fixed_split_linear(x, weight)
    assert_close(got, (x.double() @ weight.double().t()).float(), "x·weightᵀ", atol=1e-4, rtol=1e-5, inputs="[3, 100], [4, 100]")
