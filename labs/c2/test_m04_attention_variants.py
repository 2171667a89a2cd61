"""Checks of 2.4: known models and hybrids counted, attention over latents beside torch's own, and masks told by their rule."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises
from shared.layers import Heads, Latent, State

GDN = State(num_heads=4, key_dim=8, value_dim=16, conv_channels=96, conv_kernel=4)

# Multiplied out by hand from the models' published shapes, 16 bit.
KNOWN = {
    "Llama-3.1-8B, grouped queries": ([Heads(8, 128)] * 32, 0, 131_072),
    "SmolLM2-1.7B, a key-value head for each query head": ([Heads(32, 64)] * 24, 0, 196_608),
    "SmolLM2-135M": ([Heads(3, 64)] * 30, 7000, 23_040),
    "DeepSeek-V3, latents": ([Latent(512, 64)] * 61, 100_000, 70_272),
    "one head for all (multi-query)": ([Heads(1, 80)] * 2, 5, 640),
    "Gemma-3-4B, while windows fill": ([Heads(4, 256)] * 5 + [Heads(4, 256, 1024)] * 29, 1023, 139_264),
    "Gemma-3-4B, once they are full": ([Heads(4, 256)] * 5 + [Heads(4, 256, 1024)] * 29, 1024, 20_480),
    "linear attention alone": ([GDN] * 3, 9, 0),
    "a hybrid": ([GDN, GDN, GDN, Heads(2, 256)] * 12, 9, 24_576),
    "one of each": ([Latent(10, 3), GDN, Heads(2, 5), Heads(3, 7, 4)], 3, 2 * (13 + 20 + 42)),
    "one of each, the window full": ([Latent(10, 3), GDN, Heads(2, 5), Heads(3, 7, 4)], 4, 2 * (13 + 20)),
}


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("name", KNOWN)
def test_known_models(lab, name):
    layers, context, expected = KNOWN[name]
    assert_equal(
        lab.kv_bytes_per_token(layers, context), expected, "bytes", inputs=f"{name}: {len(layers)} layers, context={context}",
        hint="sum over the layers, each by its own kind; a key and a value for Heads, rank + rotary for a Latent",
    )  # fmt: skip


@checks("kv_bytes_per_token")
@given(
    window=st.integers(1, 12), tokens=st.integers(0, 30), heads=st.integers(1, 4),
    full=st.integers(0, 2), latents=st.integers(0, 2), states=st.integers(0, 2),
)  # fmt: skip
def test_all_tokens_together_are_what_is_kept(lab, window, tokens, heads, full, latents, states):
    layers = [Heads(heads, 5, window), *[Heads(2, 3)] * full, *[Latent(7, 2)] * latents, *[GDN] * states]
    got = sum(lab.kv_bytes_per_token(layers, context, 1) for context in range(tokens))
    expected = 10 * heads * min(tokens, window) + tokens * (12 * full + 9 * latents)
    assert_equal(
        got, expected, f"bytes that {tokens} tokens add, one after the other", inputs=f"{layers}, one byte an element",
        hint="a window of W keeps exactly W tokens: the one that follows W others takes the oldest one's place",
    )  # fmt: skip


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("size", [1, 4, 0.5, 0.5625])
def test_elements_of_any_size(lab, size):
    assert_equal(
        lab.kv_bytes_per_token([Heads(1, 5), Latent(4, 1)], 0, size), 15 * size, "bytes", inputs=f"bytes_per_element={size}",
        hint="15 elements a token; the result is not rounded",
    )  # fmt: skip


@checks("kv_bytes_per_token")
@pytest.mark.parametrize("arguments", [([], 0, 2), ([Heads(1, 1)], -1, 2), ([Heads(1, 1)], 0, 0), ([Heads(1, 1)], 0, -2)])
def test_nonsense_is_refused(lab, arguments):
    assert_raises(ValueError, lambda: lab.kv_bytes_per_token(*arguments), f"kv_bytes_per_token{arguments}")


# Every size is another number, so that none can stand for another; the last has a latent as small as MLA is not meant for.
SHAPES = {
    "one token": dict(T=1, S=1, H=1, P=4, R=2, r=8, V=3),
    "a decode": dict(T=1, S=37, H=4, P=8, R=6, r=24, V=10),
    "a prefill": dict(T=9, S=9, H=3, P=8, R=4, r=20, V=5),
    "a chunk after others": dict(T=5, S=23, H=3, P=6, R=4, r=11, V=7),
    "equal sizes": dict(T=3, S=8, H=2, P=8, R=8, r=8, V=8),
}


def random_inputs(T, S, H, P, R, r, V, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = [(T, H, P), (T, H, R), (S, r), (S, R), (H, P, r), (H, V, r)]
    return [torch.randn(shape, generator=g, dtype=torch.float64).to(dtype) for shape in shapes]


def expanded(q_nope, q_pe, latents, k_pe, w_uk, w_uv, scale=None):
    "The definition, a head at a time, with torch's own attention."
    T, S, heads = len(q_nope), len(latents), []
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    for h in range(q_nope.shape[1]):
        q = torch.cat([q_nope[:, h], q_pe[:, h]], dim=-1)
        k = torch.cat([latents @ w_uk[h].T, k_pe], dim=-1)
        v = latents @ w_uv[h].T
        heads.append(F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=scale)[0])
    return torch.stack(heads, dim=1)


@checks("mla_attend_absorbed")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_equals_the_expanded_form(lab, name, scale):
    inputs = random_inputs(**SHAPES[name])
    said = f"{name}: {', '.join(f'{k}={v}' for k, v in SHAPES[name].items())}, float64, scale={scale}"
    got = lab.mla_attend_absorbed(*inputs, scale)
    assert_close(
        got, expanded(*inputs, scale), "the output [T, H, V]", atol=1e-10, rtol=1e-10, inputs=said,
        hint="the scale multiplies both parts of the score and is (P + R) ** -0.5 by default; query t sees keys 0 to S - T + t; "
        "float64 throughout",
    )  # fmt: skip


@checks("mla_attend_absorbed")
def test_float32_stays_float32(lab):
    inputs = random_inputs(**SHAPES["a chunk after others"], dtype=torch.float32)
    got = lab.mla_attend_absorbed(*inputs)
    assert_close(got, expanded(*inputs), "the output", atol=1e-4, rtol=1e-4, inputs="a chunk after others, float32")


@checks("mla_attend_absorbed")
def test_large_scores_do_not_overflow(lab):
    inputs = [x * 30 for x in random_inputs(**SHAPES["a prefill"])]
    got = lab.mla_attend_absorbed(*inputs)
    assert_close(
        got, expanded(*inputs), "the output", atol=1e-8, rtol=1e-8, inputs="a prefill, every input 30 times as large",
        hint="torch.softmax subtracts the largest score; exp() of a score alone overflows",
    )  # fmt: skip


@checks("mla_attend_absorbed")
def test_inputs_are_not_changed(lab):
    inputs = random_inputs(**SHAPES["a decode"])
    before = [x.clone() for x in inputs]
    lab.mla_attend_absorbed(*inputs)
    for name, x, y in zip(["q_nope", "q_pe", "latents", "k_pe", "w_uk", "w_uv"], inputs, before, strict=True):
        assert_equal(torch.equal(x, y), True, f"{name} is as it was", hint="a method whose name ends in _ changes its tensor")


class Largest(TorchDispatchMode):
    "Elements of the largest piece of memory that was made. Views share their memory and do not count again."

    def __init__(self, inputs):
        super().__init__()
        self.known = {x.untyped_storage().data_ptr() for x in inputs}
        self.elements, self.what = 0, ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.known:
                size = x.untyped_storage().nbytes() // x.element_size()
                if size > self.elements:
                    self.elements, self.what = size, f"{func}, {list(x.shape)}"
        return out


@checks("mla_attend_absorbed")
@pytest.mark.parametrize("part, V", [("keys", 2), ("values", 40), ("rotary keys", 2)])
def test_nothing_is_expanded(lab, part, V):
    """A decode over 500 tokens with 12 heads. What an expansion would make is larger than cache, scores and weights."""
    S, H, P, R, r = (
        (500, 12, 2, 9, 16) if part == "rotary keys" else (500, 12, 40, 2, 16) if part == "keys" else (500, 12, 2, 2, 16)
    )
    inputs = random_inputs(T=1, S=S, H=H, P=P, R=R, r=r, V=V)
    limit = max(S * (r + R), H * S, H * max(P, V) * r)
    with Largest(inputs) as made:
        lab.mla_attend_absorbed(*inputs)
    assert made.elements <= limit, (
        f"one query over S={S} latents, H={H}, P={P}, R={R}, r={r}, V={V}: {made.what} has {made.elements:,} elements; "
        f"cache, scores and weights have {limit:,} at most. An expanded head is what absorbing avoids ({part} of all heads: "
        f"{S * H * {'keys': P, 'values': V, 'rotary keys': R}[part]:,})"
    )


def told(num_queries, num_keys, window, num_sinks):
    "The rule, one pair after another."
    first = num_keys - num_queries
    rows = [[s <= p and (p - s < window or s < num_sinks) for s in range(num_keys)] for p in range(first, num_keys)]
    return torch.tensor(rows, dtype=torch.bool).reshape(num_queries, num_keys)


def drawn(mask):
    return "\n".join("".join("#" if x else "." for x in row) for row in mask.tolist())


def assert_mask(got, num_queries, num_keys, window, num_sinks, hint):
    said = f"num_queries={num_queries}, num_keys={num_keys}, window={window}, num_sinks={num_sinks}"
    assert isinstance(got, torch.Tensor), f"{said}: expected a tensor, got {type(got).__name__}"
    assert_equal(got.dtype, torch.bool, "dtype", inputs=said)
    assert_equal(list(got.shape), [num_queries, num_keys], "shape", inputs=said)
    expected = told(num_queries, num_keys, window, num_sinks)
    assert torch.equal(got, expected), (
        f"{said}: who sees whom (# may look, . may not)\nexpected\n{drawn(expected)}\ngot\n{drawn(got)}\nhint: {hint}"
    )


@checks("sliding_window_mask")
@pytest.mark.parametrize("window", [1, 2, 3, 6, 9])
def test_a_window(lab, window):
    got = lab.sliding_window_mask(6, 6, window)
    assert_mask(got, 6, 6, window, 0, "the window includes the token itself: `window` tokens in all, none of them later")


@checks("sliding_window_mask")
@pytest.mark.parametrize("num_sinks", [1, 2, 4, 8])
def test_sinks(lab, num_sinks):
    got = lab.sliding_window_mask(8, 8, 2, num_sinks)
    assert_mask(got, 8, 8, 2, num_sinks, "sinks come on top of the window, and nobody sees a sink that is later than itself")


@checks("sliding_window_mask")
@pytest.mark.parametrize("num_queries", [0, 1, 3])
def test_queries_are_the_last_tokens(lab, num_queries):
    got = lab.sliding_window_mask(num_queries, 9, 3, 2)
    assert_mask(got, num_queries, 9, 3, 2, "row 0 is the token at position num_keys - num_queries")


@checks("sliding_window_mask")
@given(keys=st.integers(0, 14), queries=st.integers(0, 14), window=st.integers(1, 16), sinks=st.integers(0, 16))
def test_any_of_them(lab, keys, queries, window, sinks):
    queries = min(queries, keys)
    assert_mask(lab.sliding_window_mask(queries, keys, window, sinks), queries, keys, window, sinks, "see the docstring's rule")


@checks("sliding_window_mask")
def test_the_device_is_passed_on(lab):
    got = lab.sliding_window_mask(2, 4, 2, 1, torch.device("meta"))
    assert_equal(got.device.type, "meta", "the device", inputs="device=torch.device('meta')", hint="every arange needs it")


@checks("sliding_window_mask")
@pytest.mark.parametrize("arguments", [(5, 4, 2, 0), (-1, 4, 2, 0), (2, 4, 0, 0), (2, 4, -1, 0), (2, 4, 2, -1)])
def test_what_cannot_be_is_refused(lab, arguments):
    assert_raises(ValueError, lambda: lab.sliding_window_mask(*arguments), f"sliding_window_mask{arguments}")
