"""Each operation against transformers' own, against torch's, and against what its paper says of it."""

import math

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from minillm.config import RopeScaling
from minillm.model import ops

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LLAMA31 = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# --- rms_norm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(48,), (1, 48), (5, 3, 48), (0, 48)])
def test_rms_norm_is_bitwise_transformers(dtype, shape):
    theirs = LlamaRMSNorm(48, eps=1e-5).to(dtype)
    theirs.weight.data = torch.randn(48).to(dtype)
    x = (torch.randn(shape) * 3).to(dtype)
    got = ops.rms_norm(x, theirs.weight, 1e-5)
    assert got.dtype == dtype and torch.equal(got, theirs(x))


def test_rms_norm_squares_in_float32():
    x = torch.full((1, 8), 1000.0, dtype=torch.float16)  # 1000² is past float16's 65504
    assert torch.equal(ops.rms_norm(x, torch.ones(8, dtype=torch.float16), 1e-5), torch.ones_like(x))


def test_rms_norm_eps_keeps_zero_and_tiny_rows_finite():
    weight = torch.ones(4)
    assert torch.equal(ops.rms_norm(torch.zeros(1, 4), weight, 1e-5), torch.zeros(1, 4))
    torch.testing.assert_close(
        ops.rms_norm(torch.full((1, 4), 1e-4), weight, 1e-4), torch.full((1, 4), 1e-4 / math.sqrt(1e-8 + 1e-4))
    )


# --- rope -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head_dim", "theta"), [(64, 10000.0), (64, 100000.0), (128, 1e6), (6, 500.0)])
def test_plain_frequencies(head_dim, theta):
    want = torch.tensor([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])
    torch.testing.assert_close(ops.rope_frequencies(head_dim, theta), want, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scaling", [LLAMA31, RopeScaling(32.0, 1.0, 4.0, 8192), RopeScaling(8.0, 0.5, 7.0, 64)], ids=str)
def test_llama3_frequencies_equal_transformers(scaling):
    parameters = {"rope_type": "llama3", "rope_theta": 500000.0, **vars(scaling)}
    config = LlamaConfig(head_dim=128, max_position_embeddings=131072, rope_parameters=parameters)
    want, attention_factor = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert attention_factor == 1.0
    torch.testing.assert_close(ops.rope_frequencies(128, 500000.0, scaling), want, rtol=1e-5, atol=0)


def test_llama3_scaling_keeps_fast_waves_stretches_slow_ones_and_blends_between():
    plain, scaled = ops.rope_frequencies(128, 500000.0), ops.rope_frequencies(128, 500000.0, LLAMA31)
    turns = 8192 * plain / (2 * math.pi)
    fast, slow = turns >= 4, turns <= 1
    between = ~(fast | slow)
    assert fast.any() and slow.any() and between.any()
    torch.testing.assert_close(scaled[fast], plain[fast], rtol=1e-6, atol=0)
    torch.testing.assert_close(scaled[slow], plain[slow] / 8, rtol=1e-6, atol=0)
    assert (scaled[between] < plain[between]).all() and (scaled[between] > plain[between] / 8).all()
    assert (scaled.diff() < 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_is_bitwise_transformers(dtype):
    positions = torch.tensor([0, 1, 2, 777, 8191, 131071])
    config = LlamaConfig(hidden_size=9 * 16, num_attention_heads=9, rope_parameters={"rope_type": "default", "rope_theta": 1e5})
    q, k = torch.randn(6, 9, 16).to(dtype), torch.randn(6, 3, 16).to(dtype)
    want = apply_rotary_pos_emb(q, k, *(x[0] for x in LlamaRotaryEmbedding(config)(q, positions[None])))
    cos, sin = ops.rope_cos_sin(positions, ops.rope_frequencies(16, 1e5), dtype)
    assert cos.shape == sin.shape == (6, 8) and cos.dtype == sin.dtype == dtype
    for x, theirs in zip((q, k), want, strict=True):
        got = ops.rope(x, cos, sin)
        assert got.dtype == dtype and torch.equal(got, theirs)


def test_rope_turns_pair_i_with_i_plus_half():
    x = torch.zeros(1, 1, 8)
    x[0, 0, 1] = 1.0
    got = ops.rope(x, *ops.rope_cos_sin(torch.tensor([3]), ops.rope_frequencies(8, 100.0), torch.float32))[0, 0]
    angle = 3 * 100.0 ** (-2 / 8)
    want = torch.zeros(8)
    want[1], want[5] = math.cos(angle), math.sin(angle)
    torch.testing.assert_close(got, want)


def test_rope_leaves_position_zero_and_lengths_alone():
    x = torch.randn(4, 3, 16)
    inv_freq = ops.rope_frequencies(16, 1e4)
    turned = ops.rope(x, *ops.rope_cos_sin(torch.tensor([0, 5, 6, 7000]), inv_freq, torch.float32))
    assert torch.equal(turned[0], x[0]) and not torch.allclose(turned[1], x[1])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_rope_scores_depend_on_distance_only():
    q, k = torch.randn(2, 16)
    inv_freq = ops.rope_frequencies(16, 1e4)

    def score(m: int, n: int) -> float:
        cos, sin = ops.rope_cos_sin(torch.tensor([m, n]), inv_freq, torch.float32)
        turned = ops.rope(torch.stack([q, k])[:, None], cos, sin)[:, 0]
        return (turned[0] @ turned[1]).item()

    near, far = [score(3 + distance, 3) for distance in range(5)], [score(100 + distance, 100) for distance in range(5)]
    assert near == pytest.approx(far, abs=1e-4)
    assert max(near) - min(near) > 0.5, "the distance must matter"


def test_angles_of_neighbouring_positions_differ_even_for_bfloat16():
    cos, sin = ops.rope_cos_sin(torch.tensor([4096, 4097]), torch.tensor([1.0]), torch.bfloat16)
    assert cos.flatten().tolist() == pytest.approx([math.cos(4096), math.cos(4097)], abs=5e-3)
    assert sin.flatten().tolist() == pytest.approx([math.sin(4096), math.sin(4097)], abs=5e-3)


# --- attention --------------------------------------------------------------------------------------------------------


def test_causal_mask_by_hand():
    assert ops.causal_mask(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert ops.causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert ops.causal_mask(2, 4, sliding_window=2).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert ops.causal_mask(3, 3, sliding_window=1).int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert torch.equal(ops.causal_mask(5, 9, sliding_window=9), ops.causal_mask(5, 9))


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 6), (6, 2), (6, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (3, 7), (1, 7), (1, 1)])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_gqa_attention_equals_sdpa_with_repeated_heads(heads, kv_heads, queries, keys, window):
    q, k, v = torch.randn(queries, heads, 8), torch.randn(keys, kv_heads, 8), torch.randn(keys, kv_heads, 8)
    position = torch.arange(keys)
    back = position[keys - queries :, None] - position
    mask = (back >= 0) & (back < (window or keys))
    k_all, v_all = (x.repeat_interleave(heads // kv_heads, dim=1).transpose(0, 1) for x in (k, v))
    want = F.scaled_dot_product_attention(q.transpose(0, 1), k_all, v_all, attn_mask=mask, scale=0.4).transpose(0, 1)
    torch.testing.assert_close(ops.gqa_attention(q, k, v, 0.4, window), want, atol=1e-6, rtol=1e-5)


def test_the_first_token_sees_only_itself():
    q, k, v = torch.randn(5, 4, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 8)
    torch.testing.assert_close(ops.gqa_attention(q, k, v, 1.0)[0], v[0].repeat_interleave(2, dim=0))


def test_gqa_attention_survives_scores_past_float16():
    q = k = torch.full((2, 1, 64), 100.0, dtype=torch.float16)  # q·k = 640,000
    v = torch.tensor([[1.0], [3.0]], dtype=torch.float16)[..., None].expand(2, 1, 64)
    got = ops.gqa_attention(q, k, v, 0.125)
    assert got.dtype == torch.float16 and got[:, 0, 0].tolist() == [1.0, 2.0]


# --- feed-forward -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu_is_bitwise_transformers(dtype):
    theirs = LlamaMLP(LlamaConfig(hidden_size=24, num_attention_heads=3, intermediate_size=40)).to(dtype)
    x = torch.randn(5, 24).to(dtype)
    got = theirs.down_proj(ops.swiglu(theirs.gate_proj(x), theirs.up_proj(x)))
    assert got.dtype == dtype and torch.equal(got, theirs(x))


def test_swiglu_gates_the_first_argument():
    gate, up = torch.tensor([-30.0, 0.0, 1.0, 30.0]), torch.tensor([5.0, 5.0, 2.0, 2.0])
    want = torch.tensor([0.0, 0.0, 2 / (1 + math.exp(-1)), 60.0])
    torch.testing.assert_close(ops.swiglu(gate, up), want, atol=1e-6, rtol=1e-6)
