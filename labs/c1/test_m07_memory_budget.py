"""Checks of the memory budget: known answers, what vLLM logged on a real card, and a cache filled block by block."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises
from shared.layers import Heads, Latent, State

GIB = 2**30
LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
LLAMA |= {"vocab_size": 128256}
SMALL = {"hidden_size": 10, "intermediate_size": 7, "num_heads": 3, "num_kv_heads": 2, "head_dim": 5, "vocab_size": 11}
LINEAR, OTHER = 6_979_321_856, 1_050_939_392  # of Llama-3.1-8B
CARD = 24_564 * 2**20

# name: tokens, requests, changes to SMALL, bytes an element -> bytes, by hand
MOMENTS = {
    "attention is the worst": (4, 1, {}, 2, 4 * (3 * 10 + 2 * 15 + 2 * 10) * 2),
    "the MLP is the worst": (4, 1, {"intermediate_size": 90}, 2, 4 * (3 * 10 + 3 * 90) * 2),
    "the head is the worst": (4, 4, {"vocab_size": 1000}, 2, (4 + 4) * 10 * 2 + 4 * 1000 * (2 + 4)),
    "the head, for one of many": (50, 1, {"vocab_size": 1000}, 2, 50 * (3 * 10 + 2 * 15 + 2 * 10) * 2),
    "float32": (3, 3, {"vocab_size": 1000}, 4, (3 + 3) * 10 * 4 + 3 * 1000 * (4 + 4)),
    "one byte": (5, 1, {}, 1, 5 * 80),
    "half a byte": (5, 1, {}, 0.5, 5 * 40),
    "the head in one byte": (4, 4, {"vocab_size": 1000}, 1, (4 + 4) * 10 + 4 * 1000 * (1 + 4)),
    "heads wider than the model": (1, 1, {"head_dim": 50}, 2, (3 * 10 + 2 * 150 + 2 * 100) * 2),
    "as many heads of keys as of queries": (2, 1, {"num_kv_heads": 3}, 2, 2 * (3 * 10 + 2 * 15 + 2 * 15) * 2),
    "one token": (1, 1, {"vocab_size": 1}, 2, 80 * 2),
}


@checks("activation_bytes")
@pytest.mark.parametrize("name", MOMENTS)
def test_each_moment_by_hand(lab, name):
    tokens, seqs, changes, size, expected = MOMENTS[name]
    shape = SMALL | changes
    got = lab.activation_bytes(tokens, seqs, **shape, bytes_per_element=size)
    said = f"{tokens} tokens of {seqs} requests, {shape}, {size} bytes an element ({name})"
    hint = "the largest of attention, MLP and head; they do not add up, for the memory of one is free again at the next"
    assert_close(got, expected, "activation_bytes", atol=1e-9, rtol=1e-12, inputs=said, hint=hint)


@checks("activation_bytes")
def test_the_examples_of_the_docstring(lab):
    said = "Llama-3.1-8B, bf16 by default"
    got = lab.activation_bytes(20_000, 1, **LLAMA), lab.activation_bytes(256, 256, **LLAMA)
    assert_close(got, (2_211_840_000, 201_195_520), "activation_bytes", atol=1, rtol=0, inputs=said)


@checks("activation_bytes")
@pytest.mark.parametrize("tokens, logged", [(20_000, 17.06 - 14.9888), (29_000, 17.98 - 14.9888)])
def test_what_a_real_card_needed(lab, tokens, logged):
    """vLLM issue 10517, 2024-12-02: peak of torch's memory less the weights, RTX 3090, prompts in one piece."""
    got = lab.activation_bytes(tokens, 1, **LLAMA) / GIB
    said = f"Llama-3.1-8B in bf16, a prompt of {tokens:,} tokens in one step"
    hint = "what vLLM logged; layers reuse one another's memory, so their number does not enter"
    assert_close(got, logged, "GiB of activations", atol=0, rtol=0.01, inputs=said, hint=hint)


@checks("activation_bytes")
@given(st.integers(1, 5000), st.integers(1, 300), st.floats(0.5, 8))
def test_more_of_anything_never_takes_less(lab, tokens, seqs, size):
    base = lab.activation_bytes(tokens, seqs, **SMALL, bytes_per_element=size)
    said = f"{tokens} tokens, {seqs} requests, {SMALL}, {size:g} bytes an element"
    for key in SMALL:
        more = lab.activation_bytes(tokens, seqs, **SMALL | {key: SMALL[key] + 1}, bytes_per_element=size)
        assert_equal(more >= base, True, f"no less with one more of {key}", inputs=said)
    twice = lab.activation_bytes(2 * tokens, 2 * seqs, **SMALL, bytes_per_element=size)
    hint = "every term is a multiple of tokens or of requests: nothing is constant, nothing grows faster"
    assert_close(twice, 2 * base, "twice the tokens and requests", atol=0, rtol=1e-9, inputs=said, hint=hint)


@checks("activation_bytes")
@pytest.mark.parametrize("key", [*SMALL, "num_tokens", "num_seqs", "bytes_per_element"])
@pytest.mark.parametrize("value", [0, -1])
def test_activation_bytes_refuses_nonsense(lab, key, value):
    given_ = {"num_tokens": 4, "num_seqs": 1, "bytes_per_element": 2} | SMALL | {key: value}
    assert_raises(ValueError, lambda: lab.activation_bytes(**given_), f"activation_bytes(..., {key}={value})")


# weight bits -> bytes of the 8B's weights
WEIGHTS = {
    32: (LINEAR + OTHER) * 4,
    24: (LINEAR + OTHER) * 3,
    16: (LINEAR + OTHER) * 2,
    8: LINEAR + OTHER * 2,
    4: LINEAR / 2 + OTHER * 2,
    4.15625: LINEAR * 4.15625 / 8 + OTHER * 2,
}


def budget(lab, *args, **options):
    """The six numbers, whatever kind of tuple they came in; a message instead of a crash where they did not."""
    try:
        got, refused = lab.memory_budget(*args, **options), None
    except ValueError as e:
        got, refused = None, str(e)
    assert_equal(refused, None, "ValueError", inputs=f"{args}, {options}", hint="all of this is allowed")
    six = isinstance(got, tuple) and len(got) == 6
    assert_equal(six, True, "a Budget of six numbers", inputs=f"got {got!r}", hint="return Budget(weights, adapters, ...)")
    return dict(zip(("weights", "adapters", "activations", "runtime", "kv_cache", "outside"), got, strict=True))


@checks("memory_budget")
@pytest.mark.parametrize("bits", WEIGHTS)
def test_weights(lab, bits):
    got = budget(lab, CARD, LINEAR, OTHER, weight_bits=bits)
    hint = "embedding and head take weight_bits too, but never fewer than 16; bits, not bytes"
    assert_close(got["weights"], WEIGHTS[bits], "weights", atol=1, rtol=1e-12, inputs=f"8B, weight_bits={bits}", hint=hint)


@checks("memory_budget")
def test_nothing_is_rounded(lab):
    got = budget(lab, 1000.0, 3, 1, weight_bits=5)
    said = "3 linear parameters of 5 bits, 1 other"
    assert_close(got["weights"], 3.875, "weights", atol=1e-12, rtol=0, inputs=said, hint="31 bits: a part of a byte counts")
    assert_close(got["kv_cache"], 916.125, "kv_cache", atol=1e-9, rtol=0, inputs=f"1000 bytes, {said}", hint="nothing is rounded")


@checks("memory_budget")
def test_every_term_has_its_place(lab):
    more = {"adapter_bytes": 3.0, "activation_bytes": 5.0, "runtime_bytes": 7.0, "gpu_memory_utilization": 0.75}
    got = budget(lab, 1000.0, 100, 10, **more)
    expected = {"weights": 220, "adapters": 3, "activations": 5, "runtime": 7, "kv_cache": 515, "outside": 250}
    for name, value in expected.items():
        said = f"memory_bytes=1000, 100 linear and 10 other parameters in 16 bits, {more}; all six: {got}"
        hint = "the share is of the whole card, and everything the engine has fits in it"
        assert_close(got[name], value, name, atol=1e-9, rtol=0, inputs=said, hint=hint)


@checks("memory_budget")
def test_the_share_is_a_target(lab):
    """Half a billion parameters on a 24 GB card: a third of it would do, and 0.9 of it is taken (vLLM issue 4253)."""
    got = budget(lab, 24e9, 500_000_000, 0, activation_bytes=1e9, gpu_memory_utilization=0.9)
    hint = "nobody asked how much cache is needed: what is left of the share becomes cache"
    assert_close(got["kv_cache"], 19.6e9, "kv_cache", atol=1, rtol=0, inputs="24e9 bytes, 1e9 of weights, share 0.9", hint=hint)


@checks("memory_budget")
def test_what_is_missing_is_below_zero(lab):
    got = budget(lab, 10e9, 8_000_000_000, 0, runtime_bytes=1e9, gpu_memory_utilization=0.5)
    hint = "not cut off at 0: the caller wants to know how much is missing"
    assert_close(
        got["kv_cache"], -12e9, "kv_cache", atol=1, rtol=0, inputs="10e9 bytes, half of it; 16e9 + 1e9 needed", hint=hint
    )
    assert_close(got["outside"], 5e9, "outside", atol=1, rtol=0, inputs="the same", hint="others' part stays theirs")


@checks("memory_budget")
def test_defaults_and_the_whole_card(lab):
    got = budget(lab, 1000.0, 100, 0)
    expected = {"weights": 200, "adapters": 0, "activations": 0, "runtime": 0, "kv_cache": 720, "outside": 80}
    for name, value in expected.items():
        said = "memory_bytes=1000, 100 linear parameters, all else by default"
        assert_close(got[name], value, name, atol=1e-9, rtol=0, inputs=said, hint="a share of 0.92, 16 bits, nothing else")
    got = budget(lab, 1000.0, 100, 0, gpu_memory_utilization=0.875)
    said = "memory_bytes=1000, 100 linear parameters, a share of 0.875"
    assert_close((got["kv_cache"], got["outside"]), (675, 125), "cache and outside", atol=1e-9, rtol=0, inputs=said)
    got = budget(lab, 1000.0, 100, 0, gpu_memory_utilization=1)
    assert_close((got["kv_cache"], got["outside"]), (800, 0), "cache and outside", atol=1e-9, rtol=0, inputs="a share of 1")


@checks("memory_budget")
@given(st.floats(1, 1e12), st.integers(1, 10**12), st.integers(0, 10**11), st.floats(0.5, 32), st.floats(0.01, 1))
def test_the_six_add_up_to_the_card(lab, memory, linear, other, bits, share):
    options = {"adapter_bytes": 1e8, "activation_bytes": 2e8, "runtime_bytes": 1e9, "gpu_memory_utilization": share}
    got = budget(lab, memory, linear, other, weight_bits=bits, **options)
    said = f"memory_bytes={memory:g}, {linear} and {other} parameters, {bits:g} bits, {options}: {got}"
    largest = max(map(abs, got.values()))
    assert_close(sum(got.values()), memory, "sum of the six", atol=1e-9 * largest + 1e-6, rtol=0, inputs=said)


@checks("memory_budget")
@pytest.mark.parametrize(
    "args, options",
    [
        ((0, 1, 1), {}),
        ((-1, 1, 1), {}),
        ((1, 0, 1), {}),
        ((1, -1, 1), {}),
        ((1, 1, -1), {}),
        ((1, 1, 1), {"weight_bits": 0}),
        ((1, 1, 1), {"weight_bits": -4}),
        ((1, 1, 1), {"adapter_bytes": -1}),
        ((1, 1, 1), {"activation_bytes": -1}),
        ((1, 1, 1), {"runtime_bytes": -1}),
        ((1, 1, 1), {"gpu_memory_utilization": 0}),
        ((1, 1, 1), {"gpu_memory_utilization": 1.01}),
        ((1, 1, 1), {"gpu_memory_utilization": 92}),
        ((1, 1, 1), {"gpu_memory_utilization": -0.5}),
    ],
    ids=str,
)
def test_memory_budget_refuses_nonsense(lab, args, options):
    assert_raises(ValueError, lambda: lab.memory_budget(*args, **options), f"memory_budget(*{args}, **{options})")


def fits(lab, layers, memory, context, **options):
    said = f"{layers}, {memory:g} bytes, {context} tokens, {options}"
    try:
        got = lab.max_concurrency(layers, memory, context, **options)
    except ZeroDivisionError:
        got = "a division by zero"
    hint = "every kind of layer keeps something, and the last block counts whole"
    assert_equal(got != "a division by zero", True, "a request takes some memory", inputs=said, hint=hint)
    assert_equal(type(got), int, "type of the result", inputs=said, hint="whole requests, an int")
    return got


@checks("max_concurrency")
def test_the_8b_on_24_gb(lab):
    layers = [Heads(8, 128)] * 32
    for memory, context, size, expected in (
        (6.41e9, 5_000, 2, 9),
        (6.41e9, 5_000, 1, 19),
        (16.74e9, 5_000, 2, 25),
        (6.41e9, 40_000, 2, 1),
        (6.41e9, 131_072, 2, 0),
    ):
        got = fits(lab, layers, memory, context, bytes_per_element=size)
        said = f"32 layers of Heads(8, 128), {memory:g} bytes, {context:,} tokens, {size} bytes an element"
        assert_equal(got, expected, "requests", inputs=said, hint="a key and a value; whole blocks of 16 tokens; whole requests")


@checks("max_concurrency")
@pytest.mark.parametrize("context, blocks", [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_tokens_take_whole_blocks(lab, context, blocks):
    one = blocks * 16 * 2 * 3 * 4 * 2  # Heads(3, 4), 2 bytes
    for memory, expected in ((one - 1, 0), (one, 1), (2 * one - 1, 1), (2 * one, 2), (7 * one, 7)):
        got = fits(lab, [Heads(3, 4)], memory, context)
        said = f"one layer of Heads(3, 4), {context} tokens in blocks of 16: {one} bytes each; {memory} bytes of cache"
        assert_equal(got, expected, "requests", inputs=said, hint="the last block of a request counts whole")


@checks("max_concurrency")
@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 18, 31, 32, 33, 100])
@pytest.mark.parametrize("context", [1, 16, 17, 40, 1000])
def test_a_window_may_begin_anywhere_in_a_block(lab, window, context):
    touched = max(len({(begin + i) // 16 for i in range(window)}) for begin in range(16))
    blocks = min(touched, math.ceil(context / 16))
    one = blocks * 16 * 2 * 1 * 8 * 2
    got = fits(lab, [Heads(1, 8, window)], 10 * one, context), fits(lab, [Heads(1, 8, window)], 10 * one - 1, context)
    said = (
        f"Heads(1, 8, window={window}), {context} tokens: {blocks} blocks of 16, {one} bytes each; 10 times that, and a byte less"
    )
    hint = f"{window} tokens in a row touch up to {touched} blocks; the whole context has {math.ceil(context / 16)}"
    assert_equal(got, (10, 9), "requests", inputs=said, hint=hint)


@checks("max_concurrency")
def test_latents_and_states(lab):
    latent = [Latent(512, 64)] * 61
    got = fits(lab, latent, 10 * 70_272 * 112, 100)
    said = "61 layers of Latent(512, 64), 100 tokens: 7 blocks of 16 tokens, 70,272 bytes a token; room for ten"
    assert_equal(got, 10, "requests", inputs=said, hint="a latent is kept once: no keys beside values, no heads")
    state = [State(2, 4, 8, conv_channels=5, conv_kernel=4)]
    one = (2 * 4 * 8 + 5 * 3) * 2
    for context in (1, 17, 1_000_000):
        got = fits(lab, state, 3 * one, context), fits(lab, state, 3 * one - 1, context)
        said = f"{state[0]}, {context:,} tokens: {one} bytes each, whatever the length; room for three, and a byte less"
        assert_equal(got, (3, 2), "requests", inputs=said, hint="caches.state_bytes([layer], ...) has the convolution, too")


KINDS = st.one_of(
    st.builds(Heads, st.integers(1, 4), st.integers(1, 8), st.none() | st.integers(1, 50)),
    st.builds(Latent, st.integers(1, 9), st.integers(1, 4)),
    st.builds(State, st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.integers(1, 4)),
)


def counted(layer, context, block_size):
    """Elements a request has of one layer, by looking at each position a block can begin at."""
    match layer:
        case State():
            state = layer.num_heads * layer.key_dim * layer.value_dim
            return state + layer.conv_channels * (layer.conv_kernel - 1)
        case Latent():
            width, kept = layer.kv_lora_rank + layer.qk_rope_head_dim, context
        case Heads():
            width, kept = 2 * layer.num_kv_heads * layer.head_dim, min(context, layer.window or context)
    begins = range(block_size) if kept < context else [0]
    most = max((begin + kept - 1) // block_size - begin // block_size + 1 for begin in begins)
    return min(most, -(-context // block_size)) * block_size * width


@checks("max_concurrency")
@given(st.lists(KINDS, min_size=1, max_size=6), st.integers(1, 300), st.integers(1, 20), st.sampled_from([0.5, 1, 2, 4]))
def test_any_mixture_of_layers(lab, layers, context, block_size, size):
    one = sum(counted(layer, context, block_size) for layer in layers) * size
    options = {"block_size": block_size, "bytes_per_element": size}
    got = fits(lab, layers, 5 * one, context, **options), fits(lab, layers, 5 * one - 0.25, context, **options)
    said = f"{layers}, {context} tokens, {options}: {one:g} bytes each; five times that, and a little less"
    hint = "each layer by itself, then added up; each kind by its own rule, blocks of block_size tokens"
    assert_equal(got, (5, 4), "requests", inputs=said, hint=hint)


@checks("max_concurrency")
@pytest.mark.parametrize("memory", [0, -1.0, -5e9])
def test_no_memory_holds_nobody(lab, memory):
    got = fits(lab, [Heads(8, 128)], memory, 100)
    assert_equal(got, 0, "requests", inputs=f"{memory:g} bytes of cache", hint="never negative: a budget may be short of memory")


@checks("max_concurrency")
@pytest.mark.parametrize(
    "args, options",
    [
        (([], 1e9, 100), {}),
        (([Heads(1, 1)], 1e9, 0), {}),
        (([Heads(1, 1)], 1e9, -5), {}),
        (([Heads(1, 1)], 1e9, 100), {"block_size": 0}),
        (([Heads(1, 1)], 1e9, 100), {"bytes_per_element": 0}),
        (([Heads(1, 1)], -1, 100), {"bytes_per_element": -2}),
        (([State(1, 1, 1)], 1e9, -1), {}),
    ],
    ids=str,
)
def test_max_concurrency_refuses_nonsense(lab, args, options):
    assert_raises(ValueError, lambda: lab.max_concurrency(*args, **options), f"max_concurrency(*{args}, **{options})")
