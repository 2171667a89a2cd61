"""Checks of 2.1: each operator against its definition in float64, then inside a whole model against transformers."""

import math

import pytest
import torch
from torch import Tensor

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal
from labs.kit.llama_by_hand import logits_of, smollm2, theirs, tiny
from minillm.model.checkpoints import cache_home
from minillm.model.checkpoints.cache import read_manifest
from minillm.model.ops import rope_cos_sin, rope_frequencies

ULP = {torch.bfloat16: 2**-7, torch.float16: 2**-10}  # the largest step between two neighbours, as a share of the number
TEXT = [504, 3575, 282, 4649, 314]  # "The capital of France is"


def close(got, expected: Tensor, what: str, inputs: str, hint: str | None = None, dtype=torch.float32, atol=1e-6, rtol=1e-5):
    """expected is of any precision; halves may be a rounding apart, but for rtol=0."""
    rtol = max(rtol, 1.01 * ULP.get(dtype, 0)) if rtol else 0
    assert_close(got, expected.to(dtype), what, atol=atol, rtol=rtol, inputs=inputs, hint=hint)


def untouched(call, *tensors: Tensor) -> None:
    before = [t.clone() for t in tensors]
    call(*tensors)
    for number, (tensor, old) in enumerate(zip(tensors, before, strict=True)):
        assert_equal(torch.equal(tensor, old), True, f"argument {number} is as it was before the call",
                     hint="an in-place operation (+=, *=, mul_) writes into the caller's tensor")  # fmt: skip


# --- rms_norm ---------------------------------------------------------------------------------------------------------


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


@checks("rms_norm")
def test_a_row_by_hand(lab):
    got = lab.rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0)
    expected = torch.tensor([3.0, 8.0]) / math.sqrt(12.5)
    close(got, expected, "rms_norm", "x [3, 4], weight [1, 2], eps 0", "mean of the squares: (9 + 16) / 2 = 12.5")


@checks("rms_norm")
@pytest.mark.parametrize("shape", [(1, 48), (5, 48), (48, 48), (5, 3, 48), (48,), (0, 48)], ids=str)
def test_each_row_by_itself(lab, shape):
    x = torch.randn(shape) * torch.logspace(-1, 2, 48)
    x = x * torch.arange(1, shape[0] + 1).view(-1, *[1] * (len(shape) - 1)) if len(shape) > 1 else x + 3
    weight = torch.randn(48)
    hint = "the mean is over the last dimension, of each row separately, and nothing is subtracted"
    close(lab.rms_norm(x, weight, 1e-5), normed(x, weight, 1e-5), "rms_norm", f"x {list(shape)}, eps 1e-5", hint)


@checks("rms_norm")
@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-3, 1e-5, 0.0])
def test_eps_stands_under_the_root(lab, size):
    x, weight = torch.randn(4, 16) * size, torch.randn(16)
    hint = "sqrt(mean + eps); not sqrt(mean) + eps, and not the larger of the two. Rows of ordinary size do not show it"
    close(lab.rms_norm(x, weight, 1e-4), normed(x, weight, 1e-4), "rms_norm", f"x about {size:g}, eps 1e-4", hint, atol=1e-7)


@checks("rms_norm")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_squared_in_float32(lab, dtype):
    x, weight = torch.full((1, 8), 1000.0, dtype=dtype), torch.ones(8, dtype=dtype)
    hint = "1000² = 1,000,000 is infinity in float16, whose largest number is 65,504: convert first"
    close(lab.rms_norm(x, weight, 1e-5), torch.ones(1, 8), "rms_norm", f"x all 1000, {dtype}", hint, dtype)
    x, weight = torch.randn(7, 64).to(dtype), torch.randn(64).to(dtype)
    # two roundings, each of half a step: of the quotient, and of the product with the weight
    close(lab.rms_norm(x, weight, 1e-5), normed(x, weight, 1e-5), "rms_norm", f"x [7, 64], {dtype}", dtype=dtype)


@checks("rms_norm")
def test_the_quotient_is_rounded_before_it_meets_the_weight(lab):
    x, weight = torch.tensor([1.0, 2.0]).bfloat16(), torch.tensor([1.6484375, 1.0]).bfloat16()
    expected = torch.tensor([1.046875, 1.265625])  # 0.6325 becomes 0.6328125, and its product with the weight 1.046875
    inputs = "x [1, 2], weight [1.6484375, 1], eps 0, bfloat16"
    hint = "round the quotient to x's dtype, then multiply: another order is another number in the last place, in every layer"
    close(lab.rms_norm(x, weight, 0.0), expected, "rms_norm", inputs, hint, torch.bfloat16, atol=0, rtol=0)


@checks("rms_norm")
def test_rms_norm_takes_any_layout_and_changes_nothing(lab):
    x, weight = torch.randn(16, 6).T, torch.randn(16)
    close(lab.rms_norm(x, weight, 1e-5), normed(x, weight, 1e-5), "rms_norm", "x [6, 16], a transposed view")
    untouched(lambda x, w: lab.rms_norm(x, w, 1e-5), x, weight)


# --- rope -------------------------------------------------------------------------------------------------------------


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A pair is a complex number, turning it is a multiplication."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    pairs = pairs * torch.complex(cos.double(), sin.double())[:, None, :]
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def angles(positions, dim: int, theta: float = 100.0, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    return rope_cos_sin(torch.as_tensor(positions), rope_frequencies(dim, theta), dtype)


PAIRS = "pairs are (i, i + D/2), not neighbours, and both halves turn by the same angle"


@checks("rope")
@pytest.mark.parametrize("at", range(6))
def test_where_one_number_goes(lab, at):
    x = torch.zeros(1, 1, 6)
    x[0, 0, at] = 1.0
    cos, sin = torch.tensor([[0.6, 0.8, 0.0]]), torch.tensor([[0.8, 0.6, 1.0]])
    expected = torch.zeros(1, 1, 6)
    pair, second = at % 3, at >= 3
    expected[0, 0, pair] = -sin[0, pair] if second else cos[0, pair]
    expected[0, 0, pair + 3] = cos[0, pair] if second else sin[0, pair]
    inputs = f"D = 6, a 1 at index {at} and else 0, cos [0.6, 0.8, 0], sin [0.8, 0.6, 1]"
    close(lab.rope(x, cos, sin), expected, "rope", inputs, f"{PAIRS}: (a, b) becomes (a*c - b*s, b*c + a*s)")


@checks("rope")
@pytest.mark.parametrize("shape", [(5, 9, 64), (5, 3, 64), (1, 4, 8), (4, 4, 8), (3, 3, 2), (2, 1, 6), (0, 3, 8)], ids=str)
def test_every_token_turns_by_its_own_angle(lab, shape):
    tokens, _, dim = shape
    x = torch.randn(shape)
    cos, sin = angles(torch.arange(tokens) * 7 + 2, dim)
    hint = "cos and sin belong to the token: all its heads turn alike. x is [T, heads, D], so they need a dimension for the heads"
    close(lab.rope(x, cos, sin), turned(x, cos, sin), "rope", f"x {list(shape)}, positions 2, 9, 16 …", hint)


@checks("rope")
def test_position_zero_changes_nothing(lab):
    x = torch.randn(1, 3, 8)
    close(lab.rope(x, *angles([0], 8)), x, "rope", "position 0: cos 1, sin 0", atol=0, rtol=0)


@checks("rope")
def test_scores_know_the_distance_only(lab):
    q, k = torch.randn(2, 1, 1, 16)

    def score(m: int, n: int) -> Tensor:
        return (lab.rope(q, *angles([m], 16)) * lab.rope(k, *angles([n], 16))).sum()

    for distance in (0, 1, 5, 40):
        got, expected = score(100 + distance, 100), score(7 + distance, 7)
        inputs = f"one query and one key, {distance} apart, at 7 and at 100"
        close(got, expected, "q·k", inputs, "a rotation keeps lengths: check the signs", atol=2e-5)


@checks("rope")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rope_keeps_the_dtype(lab, dtype):
    x = torch.randn(3, 2, 8).to(dtype)
    cos, sin = angles([1, 2, 3], 8, dtype=dtype)
    close(lab.rope(x, cos, sin), turned(x, cos, sin), "rope", f"x [3, 2, 8] {dtype}", dtype=dtype, atol=2 * ULP[dtype])


@checks("rope")
def test_rope_takes_any_layout_and_changes_nothing(lab):
    x = torch.randn(4, 5, 8)[:, 1:4]  # as queries lie beside keys and values
    cos, sin = angles(range(4), 8)
    close(lab.rope(x, cos, sin), turned(x, cos, sin), "rope", "x [4, 3, 8], part of a larger tensor")
    untouched(lab.rope, x, cos, sin)


# --- gqa_attention ----------------------------------------------------------------------------------------------------


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None) -> Tensor:
    """Query by query, head by head."""
    out, group = torch.zeros(q.shape, dtype=torch.float64), q.shape[1] // k.shape[1]
    for t in range(len(q)):
        p = len(k) - len(q) + t
        first = 0 if window is None else max(0, p - window + 1)
        for head in range(q.shape[1]):
            keys, values = (x[first : p + 1, head // group].double() for x in (k, v))
            out[t, head] = torch.softmax(scale * (keys @ q[t, head].double()), 0) @ values
    return out


@checks("gqa_attention")
def test_which_key_value_head_a_query_head_reads(lab):
    q, k = torch.zeros(1, 6, 4), torch.randn(3, 2, 4)
    v = torch.tensor([10.0, 20.0])[None, :, None].expand(3, 2, 4)
    expected = torch.tensor([10.0, 10, 10, 20, 20, 20])[None, :, None].expand(1, 6, 4)
    inputs = "6 query heads, 2 key-value heads; every value of head 0 is 10, of head 1 is 20"
    hint = (
        "heads 0, 1, 2 read the first: repeat_interleave or a reshape to (kv heads, group). `repeat` and h % kv_heads alternate"
    )
    close(lab.gqa_attention(q, k, v, 0.5), expected, "gqa_attention", inputs, hint)


@checks("gqa_attention")
def test_one_token_alone_sees_itself(lab):
    q, k, v = torch.randn(1, 4, 8), torch.randn(1, 2, 8), torch.randn(1, 2, 8)
    expected = v.repeat_interleave(2, dim=1)
    close(
        lab.gqa_attention(q, k, v, 0.3), expected, "gqa_attention", "T = S = 1", "softmax of one score is 1: its value comes out"
    )


@checks("gqa_attention")
def test_no_token_looks_ahead(lab):
    q, k, v = torch.randn(5, 4, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 8)
    got = lab.gqa_attention(q, k, v, 0.3)
    later_k, later_v = k.clone(), v.clone()
    later_k[3:], later_v[3:] = 50.0, -50.0
    hint = "mask before the softmax, with -inf: setting weights to 0 after it leaves their share missing"
    close(lab.gqa_attention(q, later_k, later_v, 0.3)[:3], got[:3], "rows 0 to 2", "T = S = 5; tokens 3 and 4 were changed", hint)
    hint = "mask before the softmax; or the heads: out[t, h] is for q[t, h], of which 0 and 1 read the first key-value head"
    close(got, attended(q, k, v, 0.3), "gqa_attention", "T = S = 5, 4 heads, 2 key-value heads", hint)


@checks("gqa_attention")
@pytest.mark.parametrize("queries, keys", [(1, 7), (3, 7), (6, 7), (7, 7), (2, 2), (0, 3)])
@pytest.mark.parametrize("heads, kv_heads", [(6, 2), (6, 1), (6, 6), (3, 3)])
def test_the_last_tokens_of_a_longer_sequence(lab, queries, keys, heads, kv_heads):
    q, k, v = torch.randn(queries, heads, 10), torch.randn(keys, kv_heads, 10), torch.randn(keys, kv_heads, 10)
    inputs = f"T = {queries}, S = {keys}, {heads} heads, {kv_heads} key-value heads, D = 10, scale 0.4"
    hint = f"query 0 stands at position {keys - queries}: the queries are the last T tokens, not the first"
    close(lab.gqa_attention(q, k, v, 0.4), attended(q, k, v, 0.4), "gqa_attention", inputs, hint)


@checks("gqa_attention")
@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_the_scale_is_the_callers(lab, scale):
    q, k, v = torch.randn(4, 2, 16), torch.randn(4, 1, 16), torch.randn(4, 1, 16)
    hint = "use `scale` as it comes, once; D ** -0.5 would be 0.25 here"
    close(lab.gqa_attention(q, k, v, scale), attended(q, k, v, scale), "gqa_attention", f"D = 16, scale {scale}", hint)


@checks("gqa_attention")
@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
def test_a_sliding_window(lab, window):
    for queries in (1, 4, 7):
        q, k, v = torch.randn(queries, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
        inputs = f"T = {queries}, S = 7, sliding_window {window}"
        hint = "a token sees the last `sliding_window` positions, itself included: window 1 is itself alone"
        close(lab.gqa_attention(q, k, v, 0.4, window), attended(q, k, v, 0.4, window), "gqa_attention", inputs, hint)


@checks("gqa_attention")
def test_large_scores(lab):
    q, v = torch.full((2, 1, 64), 100.0), torch.tensor([[1.0], [3.0]])[..., None].expand(2, 1, 64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        got = lab.gqa_attention(q.to(dtype), q.to(dtype), v.to(dtype), 0.125)
        expected = torch.tensor([[1.0], [2.0]])[..., None].expand(2, 1, 64)
        inputs = f"q·k = 640,000, scale 0.125, {dtype}"
        hint = "infinity in float16, and too large for exp: scores in float32, and torch.softmax, which subtracts the largest"
        close(got, expected, "gqa_attention", inputs, hint, dtype)


@checks("gqa_attention")
def test_what_is_hidden_has_no_weight_at_all(lab):
    q, v = torch.full((2, 1, 64), 100.0), torch.tensor([[1.0], [3.0]])[..., None].expand(2, 1, 64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        got = lab.gqa_attention(q.to(dtype), -q.to(dtype), v.to(dtype), 0.125)
        expected = torch.tensor([[1.0], [2.0]])[..., None].expand(2, 1, 64)
        inputs = f"every score -80,000, {dtype}"
        hint = "hide with -inf: -10,000, or the smallest float16, is more than a score may be"
        close(got, expected, "gqa_attention", inputs, hint, dtype)


@checks("gqa_attention")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scores_and_weights_are_float32(lab, dtype):
    size = 768 if dtype == torch.bfloat16 else 12288
    q, k = torch.tensor([[[5.0, 3.0]]]), torch.tensor([[[size, -size * 5 / 3]], [[0.0, 0.0]]])
    v = torch.tensor([0.0, 1.0])[:, None, None].expand(2, 1, 2)
    got = lab.gqa_attention(q.to(dtype), k.to(dtype), v.to(dtype), 0.1)
    inputs = f"q [5, 3], keys [{size}, {-size * 5 // 3}] and [0, 0], scale 0.1, {dtype}: both scores are 0"
    hint = "q * scale in q's dtype rounds: convert first, then scale"
    close(got, torch.full((1, 1, 2), 0.5), "gqa_attention", inputs, hint, dtype)
    q, k, v = torch.ones(1, 1, 1), torch.tensor([[[1.0]], [[0.0]]]), torch.tensor([[[200.0]], [[-300.0]]])
    got = lab.gqa_attention(q.to(dtype), k.to(dtype), v.to(dtype), math.log(1.5))
    inputs = f"weights 0.6 and 0.4, values 200 and -300, {dtype}"
    hint = "softmax's weights stay float32 until they have met the values"
    close(got, torch.zeros(1, 1, 1), "gqa_attention", inputs, hint, dtype, atol=1e-2)


@checks("gqa_attention")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_attention_keeps_the_dtype_and_sums_in_float32(lab, dtype):
    q, k = torch.randn(3, 4, 16).to(dtype), torch.randn(300, 2, 16).to(dtype)
    v = (torch.randn(300, 2, 16) + 2).to(dtype)
    got = lab.gqa_attention(q, k, v, 0.25)
    hint = "convert q, k and v to float32 first, and the result back at the very end"
    close(got, attended(q, k, v, 0.25), "gqa_attention", f"T = 3, S = 300, {dtype}", hint, dtype, atol=ULP[dtype] / 8)


@checks("gqa_attention")
def test_attention_takes_any_layout_and_changes_nothing(lab):
    q, k, v = torch.randn(4, 3, 8).transpose(0, 1), torch.randn(2, 5, 8).transpose(0, 1), torch.randn(5, 3, 8)[:, 1:]
    close(lab.gqa_attention(q, k, v, 0.4), attended(q, k, v, 0.4), "gqa_attention", "q, k, v: views of larger tensors")
    untouched(lambda q, k, v: lab.gqa_attention(q, k, v, 0.4), q, k, v)


# --- swiglu -----------------------------------------------------------------------------------------------------------


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return gate.double() * torch.sigmoid(gate.double()) * up.double()


@checks("swiglu")
def test_a_few_numbers_by_hand(lab):
    gate, up = torch.tensor([0.0, 1.0, -2.0, 3.0]), torch.tensor([5.0, 2.0, 4.0, -1.0])
    expected = torch.tensor([0.0, 2 / (1 + math.exp(-1)), -8 / (1 + math.exp(2)), -3 / (1 + math.exp(-3))])
    inputs = f"gate {gate.tolist()}, up {up.tolist()}"
    close(lab.swiglu(gate, up), expected, "swiglu", inputs, "silu(gate) * up: only the first argument goes through silu")


@checks("swiglu")
@pytest.mark.parametrize("shape", [(7, 24), (1, 24), (24,), (2, 3, 5), (0, 24)], ids=str)
def test_swiglu_of_any_shape(lab, shape):
    gate, up = torch.randn(shape) * 4, torch.randn(shape) * 4
    close(lab.swiglu(gate, up), gated(gate, up), "swiglu", f"gate, up {list(shape)}")


@checks("swiglu")
def test_silu_of_large_numbers_is_finite(lab):
    gate, up = torch.tensor([1000.0, 100.0, -100.0, -1000.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    inputs = f"gate {gate.tolist()}, up {up.tolist()}"
    hint = "exp(100) is infinity in float32: x / (1 + exp(-x)) survives it, exp(x) / (1 + exp(x)) is inf / inf"
    close(lab.swiglu(gate, up), torch.tensor([1000.0, 200.0, 0.0, 0.0]), "swiglu", inputs, hint)


@checks("swiglu")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_swiglu_keeps_the_dtype(lab, dtype):
    gate, up = (torch.randn(2, 6, 24) * 4).to(dtype)
    close(lab.swiglu(gate, up), gated(gate, up), "swiglu", f"gate, up [6, 24] {dtype}", dtype=dtype, atol=1e-6)


@checks("swiglu")
def test_swiglu_takes_any_layout_and_changes_nothing(lab):
    gate, up = torch.randn(5, 16).chunk(2, dim=-1)  # as one matrix computes both
    close(lab.swiglu(gate, up), gated(gate, up), "swiglu", "gate, up: halves of one tensor")
    untouched(lab.swiglu, gate, up)


# --- in a model -------------------------------------------------------------------------------------------------------


IN_MODELS = pytest.mark.parametrize("name", ["a two-layer Llama with random weights", "SmolLM2-135M"])


def compare(lab, name: str) -> None:
    real = name == "SmolLM2-135M"
    if real and read_manifest(cache_home() / "checkpoints" / "smollm2-135m") is None:
        pytest.skip("the model is not here yet: `minillm pull smollm2-135m` fetches it")
    hint = "alone it was right, so look at what differs here: many layers, real sizes, tensors that are views of others"
    for ids in [TEXT] if real else ([7], [3, 1, 4, 1, 5, 9, 2, 6], list(range(40))):
        make = smollm2 if real else tiny
        got, expected = logits_of(lab, make(), ids), theirs(make, tuple(ids))
        inputs = f"token ids {ids}; the other operators are minillm's"
        assert_close(got, expected, f"logits of {name}", atol=2e-4, rtol=0, inputs=inputs, hint=hint)


@checks("rms_norm")
@IN_MODELS
def test_rms_norm_in_a_model_gives_transformers_logits(lab, name):
    compare(lab, name)


@checks("rope")
@IN_MODELS
def test_rope_in_a_model_gives_transformers_logits(lab, name):
    compare(lab, name)


@checks("gqa_attention")
@IN_MODELS
def test_gqa_attention_in_a_model_gives_transformers_logits(lab, name):
    compare(lab, name)


@checks("swiglu")
@IN_MODELS
def test_swiglu_in_a_model_gives_transformers_logits(lab, name):
    compare(lab, name)
