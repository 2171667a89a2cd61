"""MLA beside DeepSeek-V3's layer as transformers has it, and its two orders of multiplication beside each other."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from minillm.attention.mla import MlaAttention, mla_attend, mla_attend_absorbed
from shared.models import Mla

DIMS = Mla(q_lora_rank=24, kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10)
HIDDEN, HEADS = 36, 3


def layers(dtype=torch.float64):
    """transformers' layer and ours with the same weights, and its rotary embedding."""
    torch.manual_seed(0)
    config = DeepseekV3Config(
        hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=HEADS, attn_implementation="eager", **vars(DIMS)
    )
    theirs = DeepseekV3Attention(config, layer_idx=0).to(dtype).eval()
    with torch.no_grad():
        for norm in (theirs.q_a_layernorm, theirs.kv_a_layernorm):
            norm.weight.uniform_(0.5, 2)
    ours = MlaAttention(HIDDEN, HEADS, DIMS).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, DeepseekV3RotaryEmbedding(config)


@pytest.mark.parametrize("absorbed", [False, True])
def test_equals_transformers(absorbed):
    theirs, ours, rotary = layers()
    x = torch.randn(11, HIDDEN, dtype=torch.float64)
    mask = torch.full((11, 11), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        expected = theirs(x[None], rotary(x[None], torch.arange(11)[None]), mask)[0][0]
    got, cache = ours(x, x.new_empty(0, 28), absorbed)
    assert torch.allclose(got, expected, atol=1e-6)  # rotary angles and norms are float32 in both
    assert cache.shape == (11, 28)


def test_tokens_one_at_a_time_give_what_all_at_once_give():
    _, ours, _ = layers()
    x = torch.randn(9, HIDDEN, dtype=torch.float64)
    whole, kept = ours(x, x.new_empty(0, 28), absorbed=False)
    cache, rows = x.new_empty(0, 28), []
    for chunk in (x[:4], x[4:5], x[5:6], x[6:]):
        out, cache = ours(chunk, cache, absorbed=len(chunk) == 1)
        rows.append(out)
    assert torch.allclose(torch.cat(rows), whole, atol=1e-6)
    assert torch.allclose(cache, kept, atol=1e-6)


def random_inputs(T, S, H, P, R, r, V):
    shapes = [(T, H, P), (T, H, R), (S, r), (S, R), (H, P, r), (H, V, r)]
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("T, S", [(1, 1), (1, 50), (7, 7), (6, 31)])
@pytest.mark.parametrize("scale", [None, 0.2])
def test_absorbed_equals_expanded(T, S, scale):
    torch.manual_seed(1)
    inputs = random_inputs(T, S, 4, 16, 8, 32, 12)
    assert torch.allclose(mla_attend_absorbed(*inputs, scale), mla_attend(*inputs, scale), rtol=0, atol=1e-12)


@pytest.mark.parametrize("T, S", [(1, 50), (6, 31)])
def test_arithmetic_is_what_the_course_says(T, S):
    H, P, R, r, V = 4, 16, 8, 32, 12
    inputs = random_inputs(T, S, H, P, R, r, V)
    counted = {}
    for attend in (mla_attend, mla_attend_absorbed):
        with FlopCounterMode(display=False) as counter:
            attend(*inputs)
        counted[attend] = counter.get_total_flops()
    assert counted[mla_attend] == 2 * H * (S * r * (P + V) + T * S * (P + R + V))
    assert counted[mla_attend_absorbed] == 2 * H * (T * r * (P + V) + T * S * (r + R + r))
