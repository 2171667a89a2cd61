"""Checks of the map: four numbers against published shapes and prices, and what must hold whatever the numbers are."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises

# name: FLOP/s, bytes/s, FLOP/byte. Peaks are dense, from vendors' tables (shared/hardware.toml says which).
RIDGES = {
    "RTX 4090, bf16": (165.2e12, 1.008e12, 163.889),
    "RTX 4090, fp8 into fp32": (330.3e12, 1.008e12, 327.679),
    "H100 SXM, bf16": (989.4e12, 3.35e12, 295.343),
    "RTX 3090, bf16": (71.2e12, 936e9, 76.0684),
}

# name: layers, key-value heads, elements a head, bytes an element, bytes a token.
KV_BYTES = {
    "Llama-3.1-8B, bf16": (32, 8, 128, 2, 131_072),
    "Llama-3.1-8B, fp8": (32, 8, 128, 1, 65_536),
    "Llama-3.1-8B, 4 bit": (32, 8, 128, 0.5, 32_768),
    "Llama-3-70B, bf16": (80, 8, 128, 2, 327_680),
    "Llama-3.1-405B, bf16": (126, 8, 128, 2, 516_096),
    "OPT-13B, fp16, as many key-value heads as query heads": (40, 40, 128, 2, 819_200),
    "SmolLM2-135M, bf16": (30, 3, 64, 2, 23_040),
    "SmolLM2-135M, fp32": (30, 3, 64, 4, 46_080),
    "one layer, one head of 3 elements, 4 bit": (1, 1, 3, 0.5, 3),
    "three layers, one head of 5 elements, 4.5 bit": (3, 1, 5, 0.5625, 16.875),
}

CARD = 24_564 * 2**20  # what a "24 GB" card reports
LLAMA_8B, LLAMA_8B_KV = 16_060_522_496, 131_072

# name: memory, weights, bytes a token, overhead, share, tokens
BUDGETS = {
    "exactly 40,000 tokens' worth of room": (21_303_402_496, LLAMA_8B, LLAMA_8B_KV, 0, 1.0, 40_000),
    "one byte less than 40,000 tokens' worth": (21_303_402_495, LLAMA_8B, LLAMA_8B_KV, 0, 1.0, 39_999),
    "8B on a 24 GB card, 2 GB of overhead, share 0.90": (CARD, LLAMA_8B, LLAMA_8B_KV, 2e9, 0.90, 39_069),
    "8B on a 24 GB card, 1 GB of overhead, share 0.92": (CARD, LLAMA_8B, LLAMA_8B_KV, 1e9, 0.92, 50_629),
    "8B on a 24 GB card, all of it": (CARD, LLAMA_8B, LLAMA_8B_KV, 0, 1.0, 73_979),
    "70B on a 24 GB card": (CARD, 141_107_412_992, 327_680, 1e9, 0.92, 0),
    "weights that fit, and less than a token beside them": (1000, 990, 11, 0, 1.0, 0),
    "three tokens and a half": (1000, 300, 100, 50, 0.7, 3),
    "two bytes and a half a token": (1000, 300, 2.5, 0, 1.0, 280),
}

R1 = {"input_price": 0.55, "cached_price": 0.14, "output_price": 2.19}  # DeepSeek-R1 in February 2025
ROUND = {"input_price": 1.0, "cached_price": 0.1, "output_price": 10.0}

# name: requests, prompt, prefix, answer; what else is given; dollars
BILLS = {
    "no requests": ((0, 3200, 3000, 300), {}, 0.0),
    "no tokens": ((1, 0, 0, 0), {}, 0.0),
    "reasoning only": ((1, 0, 0, 0), {"reasoning_tokens": 1_000_000}, 10.0),
    "a prompt that is all prefix": ((1, 1_000_000, 1_000_000, 0), {}, 0.1),
    "a prefix that is never found": ((1, 1_000_000, 1_000_000, 0), {"hit_rate": 0}, 1.0),
    "two requests without a prefix": ((2, 1_000_000, 0, 1_000_000), {}, 22.0),
    "three requests, everything at once": (
        (3, 1_000_000, 500_000, 100_000),
        {"hit_rate": 0.5, "reasoning_tokens": 200_000},
        11.325,
    ),
    "one cached token": ((1, 1, 1, 0), {}, 1e-7),
    "cached dearer than input": ((1, 1_000_000, 500_000, 0), {"cached_price": 2.0}, 1.5),
    "input for nothing, cached billed": ((1, 1_000_000, 500_000, 0), {"input_price": 0.0}, 0.05),
}

# Refused. name of the case: arguments, options, what its hint says
BAD_BUDGETS = {
    "no memory": ((0, 1, 1), {}, "memory_bytes must be above zero"),
    "negative memory": ((-5, 1, 1), {}, "memory_bytes must be above zero"),
    "no weights": ((9, 0, 1), {}, "weight_bytes must be above zero"),
    "negative weights": ((9, -1, 1), {}, "weight_bytes must be above zero"),
    "tokens of no bytes": ((9, 1, 0), {}, "bytes_per_token must be above zero"),
    "tokens of negative bytes": ((9, 1, -1), {}, "bytes_per_token must be above zero"),
    "all three negative": ((-9, -1, -1), {}, "each of the three sizes must be above zero"),
    "negative overhead": ((9, 1, 1), {"overhead_bytes": -1}, "overhead_bytes may be 0, not less"),
    "share 0": ((9, 1, 1), {"gpu_memory_utilization": 0}, "gpu_memory_utilization must be above 0"),
    "negative share": ((9, 1, 1), {"gpu_memory_utilization": -0.5}, "gpu_memory_utilization must be above 0"),
    "share above 1": ((9, 1, 1), {"gpu_memory_utilization": 1.01}, "gpu_memory_utilization is at most 1"),
    "share in per cent": ((9, 1, 1), {"gpu_memory_utilization": 92}, "gpu_memory_utilization is a share, not per cent"),
}

BAD_BILLS = {
    "negative requests": ((-1, 10, 5, 5), {}, "num_requests may be 0, not less"),
    "negative prompt and prefix": ((1, -10, -10, 5), {}, "prompt_tokens and prefix_tokens may be 0, not less"),
    "negative prefix": ((1, 10, -1, 5), {}, "prefix_tokens may be 0, not less"),
    "prefix longer than the prompt": ((1, 10, 11, 5), {}, "prefix_tokens are a part of prompt_tokens"),
    "negative answer": ((1, 10, 5, -1), {}, "answer_tokens may be 0, not less"),
    "negative answer hidden by reasoning": (
        (1, 10, 5, -1),
        {"reasoning_tokens": 5},
        "answer_tokens may be 0, not less, whatever is thought",
    ),
    "negative reasoning": ((1, 10, 5, 5), {"reasoning_tokens": -1}, "reasoning_tokens may be 0, not less"),
    "negative hit rate": ((1, 10, 5, 5), {"hit_rate": -0.1}, "hit_rate is at least 0"),
    "hit rate above 1": ((1, 10, 5, 5), {"hit_rate": 1.1}, "hit_rate is at most 1"),
    "hit rate in per cent": ((1, 10, 5, 5), {"hit_rate": 56}, "hit_rate is a share, not per cent"),
    "negative input price": ((1, 10, 5, 5), {"input_price": -0.55}, "input_price may be 0, not less"),
    "negative cached price": ((1, 10, 5, 5), {"cached_price": -0.55}, "cached_price may be 0, not less"),
    "negative output price": ((1, 10, 5, 5), {"output_price": -0.55}, "output_price may be 0, not less"),
}


def likely(got, mistakes, otherwise):
    """The hint whose number this is (mistakes: hint -> what that mistake gives), or `otherwise`."""
    if isinstance(got, int | float):
        for hint, value in mistakes.items():
            if math.isclose(got, value, rel_tol=1e-9):
                return hint
    return otherwise


def call_of(name, args, options):
    """The call as text."""
    return f"{name}({', '.join([*map(str, args), *(f'{key}={value}' for key, value in options.items())])})"


@checks("ridge_point")
@pytest.mark.parametrize("name", RIDGES)
def test_ridge_of_known_cards(lab, name):
    peak, bandwidth, expected = RIDGES[name]
    ridge, gib = peak / bandwidth, 2**30 / 1e9
    mistakes = {
        "FLOP/byte is peak over bandwidth, not the other way round": 1 / ridge,
        "not rounded": round(ridge),
        "not rounded, and not cut to a whole number": int(ridge),
        "bytes in, bytes out; no conversion": ridge / gib,
        "bytes in, bytes out: no conversion": ridge * gib,
        "the peak is given dense; nothing to double": 2 * ridge,
        "a peak counts FLOPs, not multiply-adds; nothing to halve": ridge / 2,
    }
    got = lab.ridge_point(peak, bandwidth)
    hint = likely(got, mistakes, "peak_flops over bandwidth")
    said = f"peak_flops={peak:g}, bandwidth={bandwidth:g} ({name})"
    assert_close(got, expected, "ridge_point", atol=0, rtol=1e-4, inputs=said, hint=hint)


@checks("ridge_point")
@given(peak=st.floats(1e3, 1e16), bandwidth=st.floats(1e3, 1e14), moved=st.floats(1, 1e12))
def test_at_the_ridge_both_take_equally_long(lab, peak, bandwidth, moved):
    ridge = lab.ridge_point(peak, bandwidth)
    said = f"peak_flops={peak:g}, bandwidth={bandwidth:g}, {moved:g} bytes moved and {moved:g} * ridge FLOPs computed"
    hint = "seconds to compute are FLOPs / peak_flops, seconds to move are bytes / bandwidth"
    assert_close(moved * ridge / peak, moved / bandwidth, "seconds to compute", atol=0, rtol=1e-9, inputs=said, hint=hint)


@checks("ridge_point")
@pytest.mark.parametrize(
    "peak, bandwidth",
    [
        pytest.param(0, 1e12, id="no peak"),
        pytest.param(1e12, 0, id="no bandwidth"),
        pytest.param(-1e12, 1e12, id="negative peak"),
        pytest.param(1e12, -1e12, id="negative bandwidth"),
        pytest.param(-1e12, -1e12, id="both negative"),
    ],
)
def test_a_machine_without_peak_or_bandwidth_is_refused(lab, peak, bandwidth):
    call = f"ridge_point({peak:g}, {bandwidth:g})"
    wrong = [name for name, value in (("peak_flops", peak), ("bandwidth", bandwidth)) if value <= 0]
    hint = f"{' and '.join(wrong)} must be above zero"
    assert_raises(ValueError, lambda: lab.ridge_point(peak, bandwidth), call, hint=hint)


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("name", KV_BYTES)
def test_kv_bytes_of_known_models(lab, name):
    layers, heads, dim, size, expected = KV_BYTES[name]
    said = f"num_layers={layers}, num_kv_heads={heads}, head_dim={dim}, bytes_per_element={size} ({name})"
    got = lab.kv_bytes_per_token(layers, heads, dim, size)
    mistakes = {
        "a key and a value: twice as much": expected / 2,
        "every layer has a cache of its own": expected / layers,
        "every key-value head counts": expected / heads,
        "bytes_per_element is what it is, not always 2": expected / size * 2,
        "not rounded": int(expected),
        "not rounded: bytes_per_element need not be whole": 2 * layers * heads * int(dim * size),
        "bytes_per_element is a fraction in 4 bit; int() makes it 0": 2 * layers * heads * dim * int(size),
        "bytes in, bytes out; no conversion": expected / 1024,
    }
    hint = likely(got, mistakes, "a key and a value, of head_dim elements, for every key-value head of every layer")
    assert_equal(got, expected, "kv_bytes_per_token", inputs=said, hint=hint)


@checks("kv_bytes_per_token")
def test_two_bytes_an_element_unless_told_otherwise(lab):
    assert_equal(
        lab.kv_bytes_per_token(32, 8, 128), 131_072, "kv_bytes_per_token", inputs="32 layers, 8 key-value heads of 128 elements"
    )


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("layers, heads, dim", [(1, 1, 1), (3, 2, 5), (2, 7, 16)])
def test_as_many_bytes_as_tensors_that_hold_them(lab, layers, heads, dim, dtype):
    tokens = 3
    keys, values = ([torch.empty(heads, tokens, dim, dtype=dtype) for _ in range(layers)] for _ in "kv")
    held = sum(tensor.nbytes for tensor in [*keys, *values])
    said = f"{layers} layers, each with keys and values of {tokens} tokens: tensors [{heads}, {tokens}, {dim}] of {dtype}"
    got = tokens * lab.kv_bytes_per_token(layers, heads, dim, dtype.itemsize)
    assert_equal(got, held, f"{tokens} * kv_bytes_per_token({layers}, {heads}, {dim}, {dtype.itemsize})", inputs=said)


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("name", ["num_layers", "num_kv_heads", "head_dim", "bytes_per_element"])
@pytest.mark.parametrize("value", [pytest.param(0, id="zero"), pytest.param(-1, id="negative")])
def test_a_model_without_a_cache_is_refused(lab, name, value):
    sizes = {"num_layers": 32, "num_kv_heads": 8, "head_dim": 128, "bytes_per_element": 2} | {name: value}
    call = call_of("kv_bytes_per_token", (), sizes)
    assert_raises(ValueError, lambda: lab.kv_bytes_per_token(**sizes), call, hint=f"{name} must be above zero")


@checks("kv_bytes_per_token")
@pytest.mark.parametrize(
    "args",
    [
        pytest.param((-32, -8, 128, 2), id="layers and heads"),
        pytest.param((32, 8, -128, -2), id="elements and their size"),
        pytest.param((-32, -8, -128, -2), id="all four"),
    ],
)
def test_two_negatives_are_refused_too(lab, args):
    hint = "each must be above zero; the product of two negatives is, and hides them"
    call = call_of("kv_bytes_per_token", args, {})
    assert_raises(ValueError, lambda: lab.kv_bytes_per_token(*args), call, hint=hint)


@checks("kv_token_budget")
@pytest.mark.parametrize("name", BUDGETS)
def test_budgets(lab, name):
    memory, weights, per_token, overhead, share, expected = BUDGETS[name]
    got = lab.kv_token_budget(memory, weights, per_token, overhead_bytes=overhead, gpu_memory_utilization=share)
    said = f"memory {memory:,}, weights {weights:,}, {per_token:,} a token, overhead {overhead:,.0f}, share {share} ({name})"
    left = memory * share - weights - overhead
    mistakes = {
        "the share is of the whole card, not of what weights and overhead leave": (memory - weights - overhead)
        * share
        // per_token,
        "gpu_memory_utilization limits what the engine may take": (memory - weights - overhead) // per_token,
        "the overhead comes off too": (memory * share - weights) // per_token,
        "no room is 0 tokens, not fewer": left // per_token,
        "a token that does not fit entirely does not fit": math.ceil(left / per_token),
        "bytes_per_token need not be whole": left // int(per_token),
        "whole tokens": left / per_token,
    }
    hint = likely(got, mistakes, "share of the card, less weights and overhead, in whole tokens; bytes in, no conversion")
    assert_equal(got, expected, "kv_token_budget", inputs=said, hint=hint)
    assert isinstance(got, int), f"kv_token_budget gave {got!r}: tokens are counted, return an int"


@checks("kv_token_budget")
def test_without_overhead_and_share_all_memory_counts(lab):
    got = lab.kv_token_budget(1000, 300, 100)
    assert_equal(got, 7, "kv_token_budget(1000, 300, 100)", inputs="no overhead_bytes and no gpu_memory_utilization given")


@checks("kv_token_budget")
@given(
    memory=st.integers(1, 10**6),
    weights=st.integers(1, 10**6),
    per_token=st.integers(1, 5000),
    overhead=st.integers(0, 10**5),
    share=st.sampled_from([0.25, 0.5, 0.75, 1.0]),  # binary fractions: the sums below are exact
)
def test_one_more_token_would_not_fit(lab, memory, weights, per_token, overhead, share):
    tokens = lab.kv_token_budget(memory, weights, per_token, overhead_bytes=overhead, gpu_memory_utilization=share)
    said = f"memory {memory}, weights {weights}, {per_token} a token, overhead {overhead}, share {share}"
    assert tokens >= 0, f"kv_token_budget gave {tokens} for {said}: no cache is smaller than none"
    fixed = weights + overhead
    fits = tokens == 0 or fixed + tokens * per_token <= memory * share
    assert fits, f"kv_token_budget gave {tokens} for {said}: together that is more than the share allows"
    assert fixed + (tokens + 1) * per_token > memory * share, f"kv_token_budget gave {tokens} for {said}: one more would fit"


@checks("kv_token_budget")
@pytest.mark.parametrize("name", BAD_BUDGETS)
def test_impossible_cards_are_refused(lab, name):
    args, options, hint = BAD_BUDGETS[name]
    call = call_of("kv_token_budget", args, options)
    assert_raises(ValueError, lambda: lab.kv_token_budget(*args, **options), call, hint=hint)


def bill(lab, *args, **options):
    """The bot's bill, and the call as text."""
    call = call_of("bot_cost", args, options)
    try:
        return lab.bot_cost(*args, **options), call
    except ValueError as error:
        raise AssertionError(f"{call} is a bill like any other, and was refused: {error}") from error


@checks("bot_cost")
@pytest.mark.parametrize("prefix, expected", [(0, 2.417), (3000, 1.187)])
def test_the_support_bot(lab, prefix, expected):
    got, call = bill(lab, 1000, 3200, prefix, 300, **R1)
    hint = "a cached token is billed once, at cached_price; prices are per million"
    assert_close(got, expected, call, atol=5e-7, rtol=0, hint=hint)


@checks("bot_cost")
@pytest.mark.parametrize("reasoning, saving", [(500, 35.0), (1000, 26.7), (2000, 18.1), (5000, 9.2)])
def test_reasoning_eats_the_saving(lab, reasoning, saving):
    """Per cent saved by the cached prefix, of a bill with this many reasoning tokens a request."""
    without, _ = bill(lab, 1000, 3200, 0, 300, **R1, reasoning_tokens=reasoning)
    cached, call = bill(lab, 1000, 3200, 3000, 300, **R1, reasoning_tokens=reasoning)
    hint = "reasoning tokens are output: output_price, every one of them, cache or no cache"
    assert_close(100 * (1 - cached / without), saving, f"per cent saved, {call}", atol=0.06, rtol=0, hint=hint)


@checks("bot_cost")
def test_a_cache_that_is_not_always_hit(lab):
    got, call = bill(lab, 1000, 3200, 3000, 300, **R1, hit_rate=0.563)
    hint = "hit_rate is a share of requests; it applies to the prefix, not to the whole prompt, and misses pay input_price"
    assert_close(got, 1.72451, call, atol=5e-6, rtol=0, hint=hint)


@checks("bot_cost")
@pytest.mark.parametrize("name", BILLS)
def test_bills(lab, name):
    args, options, expected = BILLS[name]
    got, call = bill(lab, *args, **ROUND | options)
    hints = {
        "one cached token": "not rounded: a token costs a ten-millionth of a dollar",
        "cached dearer than input": "a cached price above the input price is billed as it stands",
    }
    hint = hints.get(name, "prices are per million; a cached token is billed once, reasoning is output")
    assert_close(got, expected, call, atol=1e-12, rtol=1e-9, hint=hint)


@checks("bot_cost")
@given(
    prompt=st.integers(0, 5000),
    part=st.floats(0, 1),
    answer=st.integers(0, 3000),
    reasoning=st.integers(0, 9000),
    hits=st.floats(0, 1),
)
def test_between_all_hit_and_all_missed(lab, prompt, part, answer, reasoning, hits):
    prefix = int(prompt * part)
    options = {**ROUND, "reasoning_tokens": reasoning}
    got, call = bill(lab, 10, prompt, prefix, answer, **options, hit_rate=hits)
    all_missed = 10 * (prompt * 1.0 + (answer + reasoning) * 10.0) / 1e6
    saved = 10 * prefix * (1.0 - 0.1) / 1e6
    assert_close(got, all_missed - hits * saved, call, atol=1e-9, rtol=1e-9, hint="each hit saves the price difference once")


@checks("bot_cost")
@pytest.mark.parametrize("name", BAD_BILLS)
def test_impossible_bills_are_refused(lab, name):
    args, options, hint = BAD_BILLS[name]
    call = call_of("bot_cost", args, R1 | options)
    assert_raises(ValueError, lambda: lab.bot_cost(*args, **R1 | options), call, hint=hint)
