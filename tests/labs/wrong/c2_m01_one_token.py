"""Mistakes planted in 2.1."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.kit.wrong import patch, replace
from minillm.model.ops import causal_mask, rope_cos_sin, rope_frequencies


def ordinary_rows_are_normalised(subject):
    """The test one would write first: rows of ordinary size, ones for the weight, come out with a root mean square of one."""
    out = subject(torch.randn(5, 64), torch.ones(64), 1e-5)
    torch.testing.assert_close(out.square().mean(-1).sqrt(), torch.ones(5), atol=1e-3, rtol=0)


def position_zero_stays_and_lengths_are_kept(subject):
    x = torch.randn(4, 3, 16)
    out = subject(x, *rope_cos_sin(torch.arange(4), rope_frequencies(16, 100.0), torch.float32))
    assert out.shape == x.shape and torch.equal(out[0], x[0]) and not torch.allclose(out[1], x[1])
    torch.testing.assert_close(out.norm(dim=-1), x.norm(dim=-1))


def a_whole_prompt_equals_sdpa(subject):
    """As many key-value heads as query heads, all tokens at once, the usual scale."""
    q, k, v = torch.randn(3, 6, 4, 16)
    want = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v)), is_causal=True)
    torch.testing.assert_close(subject(q, k, v, 16**-0.5), want.transpose(0, 1), atol=1e-5, rtol=1e-4)


def zero_gives_zero_and_the_shape_is_right(subject):
    gate, up = torch.zeros(2, 5, 8)
    assert torch.equal(subject(gate, up), torch.zeros(5, 8)) and subject(torch.randn(3, 8), torch.randn(3, 8)).shape == (3, 8)


def interleaved_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def rope_that_pairs_right_and_lays_out_wrong(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


def rope_of_the_first_token_for_all(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = (a[: x.shape[1]] if len(a) == x.shape[1] else a[:, None] for a in (cos, sin))
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def interleaved(x: Tensor, group: int) -> Tensor:
    return x.repeat_interleave(group, dim=1)


def softmax(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def minus_ten_thousand(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -1e4).softmax(-1)


def weights_in_bfloat16(scores: Tensor, seen: Tensor) -> Tensor:
    return softmax(scores, seen).bfloat16().float()


def plain_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    weights = torch.exp(scores) * seen
    return weights / weights.sum(-1, keepdim=True)


def scaled_in_half(q, k, v, scale, sliding_window=None):
    return attention_with()(q * scale, k, v, 1.0, sliding_window)


def attention_with(heads=interleaved, mask=causal_mask, own_scale=False, dtype=torch.float32, weigh=softmax):
    """gqa_attention, written with repeated heads as most would, and one thing wrong."""

    def gqa_attention(q, k, v, scale, sliding_window=None):
        group, dim = q.shape[1] // k.shape[1], q.shape[-1]
        wide_q, wide_k, wide_v = (x.to(dtype or q.dtype) for x in (q, heads(k, group), heads(v, group)))
        scores = torch.einsum("thd,shd->hts", wide_q, wide_k) * (dim**-0.5 if own_scale else scale)
        weights = weigh(scores, mask(len(q), len(k), sliding_window))
        return torch.einsum("hts,shd->thd", weights, wide_v).to(q.dtype)

    return gqa_attention


def first_tokens(queries, keys, window=None):
    return causal_mask(keys, keys, window)[:queries]


def overflowing_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    grown = torch.exp(gate.float())
    return (gate.float() * grown / (1 + grown)).to(gate.dtype) * up


def swiglu_in_place(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate, inplace=True) * up


ROOT = "torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)"
TURN = "return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)"
SILU = "    return F.silu(gate) * up\n"

WRONG = {
    "rms_norm": {
        "eps_outside_the_root": patch(ROOT, "1 / (x32.square().mean(-1, keepdim=True).sqrt() + eps)", "eps is added to the root"),
        "no_eps": patch(ROOT, "torch.rsqrt(x32.square().mean(-1, keepdim=True))", "a row of zeros becomes NaN"),
        "eps_as_a_floor": patch(ROOT, "torch.rsqrt(x32.square().mean(-1, keepdim=True).clamp(min=eps))", "the larger of the two"),
        "layer_norm": patch(ROOT, "torch.rsqrt(x32.var(-1, correction=0, keepdim=True) + eps)", "the mean is subtracted first"),
        "sum_for_mean": patch(ROOT, "torch.rsqrt(x32.square().sum(-1, keepdim=True) + eps)", "a row has length one"),
        "one_scale_for_all_rows": patch(ROOT, "torch.rsqrt(x32.square().mean() + eps)", "the mean is over everything"),
        "over_the_tokens": patch(ROOT, "torch.rsqrt(x32.square().mean(0, keepdim=True) + eps)", "the mean is over the tokens"),
        "gemmas_weight": patch("return normed.to(x.dtype) * weight", "return normed.to(x.dtype) * (1 + weight)", "1 + weight"),
        "forgets_the_weight": patch("return normed.to(x.dtype) * weight", "return normed.to(x.dtype)", "no weight"),
        "squares_in_half": patch("    x32 = x.float()\n", "    x32 = x\n", "float16 squares overflow"),
        "stays_float32": patch("return normed.to(x.dtype) * weight", "return normed * weight.float()", "the dtype changes"),
        "rounds_once": patch(
            "return normed.to(x.dtype) * weight", "return (normed * weight).to(x.dtype)", "the weight comes before the rounding"
        ),
        "in_place": patch(f"normed = x32 * {ROOT}", f"normed = x32.mul_({ROOT})", "writes into the caller's float32 tensor"),
    },
    "rope": {
        "rope_interleaved": replace(interleaved_rope, "pairs of neighbours, as the paper and Meta's own weights have them"),
        "laid_out_interleaved": replace(rope_that_pairs_right_and_lays_out_wrong, "the halves are mixed when put together"),
        "turns_back": patch(
            TURN, "return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)", "by the negative angle"
        ),
        "sign_of_one_half": patch(
            TURN, "return torch.cat([first * cos + second * sin, second * cos + first * sin], dim=-1)", "no rotation at all"
        ),
        "halves_exchanged": patch(
            TURN, "return torch.cat([second * cos + first * sin, first * cos - second * sin], dim=-1)", "b before a"
        ),
        "angle_of_the_head": replace(rope_of_the_first_token_for_all, "broadcasts over heads where there are as many as tokens"),
        "turns_one_half": patch(TURN, "return torch.cat([first * cos - second * sin, second], dim=-1)", "b stays as it was"),
    },
    "gqa_attention": {
        "heads_alternate": replace(
            attention_with(heads=lambda x, group: x.repeat(1, group, 1)), "head h reads h % num_kv_heads: repeat, not interleave"
        ),
        "all_read_the_first": replace(
            attention_with(heads=lambda x, group: x[:, :1].expand(-1, group * x.shape[1], -1)), "as if there were one kv head"
        ),
        "queries_are_the_first_tokens": replace(attention_with(mask=first_tokens), "a decode sees the first token only"),
        "sees_everything": replace(
            attention_with(mask=lambda t, s, w=None: torch.ones(t, s, dtype=torch.bool)), "there is no causal mask"
        ),
        "not_itself": patch("mask = key <= query", "mask = key < query.clamp(min=1)", "a token does not see itself"),
        "own_scale": replace(attention_with(own_scale=True), "D ** -0.5 whatever the model says"),
        "masks_after_softmax": replace(
            attention_with(weigh=lambda scores, seen: scores.softmax(-1) * seen), "the weights no longer add up to one"
        ),
        "plain_exp": replace(attention_with(weigh=plain_softmax), "the largest score is not subtracted: exp overflows"),
        "in_half_precision": replace(attention_with(dtype=None), "scores in the queries' dtype"),
        "scaled_in_half": replace(scaled_in_half, "q * scale is rounded to q's dtype"),
        "weights_in_half": replace(attention_with(weigh=weights_in_bfloat16), "the weights are rounded before the sum"),
        "hides_with_a_number": replace(attention_with(weigh=minus_ten_thousand), "-10,000 where -inf belongs"),
        "ignores_the_window": replace(attention_with(mask=lambda t, s, w=None: causal_mask(t, s)), "sliding_window is not used"),
        "window_one_too_wide": patch("(key > query - sliding_window)", "(key >= query - sliding_window)", "off by one"),
        "stays_float32": patch("return out.reshape(q.shape).to(q.dtype)", "return out.reshape(q.shape)", "the dtype changes"),
    },
    "swiglu": {
        "gates_the_wrong_one": patch(SILU, "    return gate * F.silu(up)\n", "silu of up"),
        "sigmoid_only": patch(SILU, "    return torch.sigmoid(gate) * up\n", "a GLU: the gate's own size is lost"),
        "silu_of_the_product": patch(SILU, "    return F.silu(gate * up)\n", "multiplied first"),
        "gelu": patch(SILU, "    return F.gelu(gate) * up\n", "GEGLU: close enough to look right"),
        "relu": patch(SILU, "    return F.relu(gate) * up\n", "ReGLU"),
        "overflows": replace(overflowing_swiglu, "exp(x) / (1 + exp(x)): inf / inf from 89 on"),
        "in_place": replace(swiglu_in_place, "writes into the caller's gate"),
    },
}  # fmt: skip

HAPPY = {
    "rms_norm": ordinary_rows_are_normalised,
    "rope": position_zero_stays_and_lengths_are_kept,
    "gqa_attention": a_whole_prompt_equals_sdpa,
    "swiglu": zero_gives_zero_and_the_shape_is_right,
}
