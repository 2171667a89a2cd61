"""Multi-head latent attention: one latent a token for all heads' keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).

The cache holds, for each token, a latent of r numbers and a rotary key of R numbers that all heads share. A head's keys and
values are linear in the latent, k = W_UK·c and v = W_UV·c, so there are two orders in which to multiply:

    expand      W_UK and W_UV to every cached latent, then ordinary multi-head attention      (many queries: prefill)
    absorb      W_UK into the query and W_UV into the output, and attend to the latents       (few queries: decode)

H counts heads, T queries, S >= T tokens of the sequence, P the dimensions of a head without rotation, V those of its values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from minillm.model.ops import causal_mask, rms_norm, rope, rope_cos_sin, rope_frequencies
from shared.models import Mla


def mla_attend(
    q_nope: Tensor, q_pe: Tensor, latents: Tensor, k_pe: Tensor, w_uk: Tensor, w_uv: Tensor, scale: float | None = None
) -> Tensor:
    """As mla_attend_absorbed, with each head's keys and values expanded from the latents first."""
    head_dim = q_nope.shape[-1] + q_pe.shape[-1]
    k_nope = torch.einsum("sr,hpr->shp", latents, w_uk)
    v = torch.einsum("sr,hvr->shv", latents, w_uv)
    scores = torch.einsum("thp,shp->hts", q_nope, k_nope) + torch.einsum("thr,sr->hts", q_pe, k_pe)
    return torch.einsum("hts,shv->thv", _weights(scores, head_dim**-0.5 if scale is None else scale), v)


def mla_attend_absorbed(
    q_nope: Tensor, q_pe: Tensor, latents: Tensor, k_pe: Tensor, w_uk: Tensor, w_uv: Tensor, scale: float | None = None
) -> Tensor:
    """Causal attention of the sequence's last T tokens over its S cached latents, no head's keys or values ever formed.

    q_nope [T, H, P], q_pe [T, H, R] (rotated); latents [S, r] (normed), k_pe [S, R] (rotated); w_uk [H, P, r], w_uv [H, V, r].
    scale: the factor on scores; None: (P + R) ** -0.5. Returns [T, H, V] in the dtype of all of these.
    """
    head_dim = q_nope.shape[-1] + q_pe.shape[-1]
    q_latent = torch.einsum("thp,hpr->thr", q_nope, w_uk)
    scores = torch.einsum("thr,sr->hts", q_latent, latents) + torch.einsum("thr,sr->hts", q_pe, k_pe)
    weights = _weights(scores, head_dim**-0.5 if scale is None else scale)
    attended = torch.einsum("hts,sr->thr", weights, latents)
    return torch.einsum("thr,hvr->thv", attended, w_uv)


def _weights(scores: Tensor, scale: float) -> Tensor:
    """Softmax over the keys a query may see. scores [H, T, S]."""
    mask = causal_mask(*scores.shape[1:], device=scores.device)
    return (scores * scale).masked_fill(~mask, -math.inf).softmax(dim=-1)


class MlaAttention(nn.Module):
    """DeepSeek-V3's attention layer for one sequence. Parameters bear the names of its checkpoints."""

    def __init__(self, hidden_size: int, num_heads: int, mla: Mla, rope_theta: float = 10000.0, eps: float = 1e-6):
        super().__init__()
        head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        self.num_heads, self.mla, self.eps = num_heads, mla, eps
        self.q_a_proj = nn.Linear(hidden_size, mla.q_lora_rank, bias=False)
        self.q_a_layernorm = nn.ParameterDict({"weight": torch.ones(mla.q_lora_rank)})
        self.q_b_proj = nn.Linear(mla.q_lora_rank, num_heads * head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(hidden_size, mla.kv_lora_rank + mla.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = nn.ParameterDict({"weight": torch.ones(mla.kv_lora_rank)})
        self.kv_b_proj = nn.Linear(mla.kv_lora_rank, num_heads * (mla.qk_nope_head_dim + mla.v_head_dim), bias=False)
        self.o_proj = nn.Linear(num_heads * mla.v_head_dim, hidden_size, bias=False)
        self.register_buffer("inv_freq", rope_frequencies(mla.qk_rope_head_dim, rope_theta), persistent=False)
        self.requires_grad_(False)

    def forward(self, x: Tensor, cache: Tensor, absorbed: bool) -> tuple[Tensor, Tensor]:
        """x [T, hidden_size], the tokens that follow those of cache [S - T, r + R], both in the parameters' dtype.

        Returns [T, hidden_size], and the cache [S, r + R] with the new tokens: all that has to be kept.
        """
        mla = self.mla
        positions = torch.arange(len(cache), len(cache) + len(x), device=x.device)
        cos, sin = rope_cos_sin(positions, self.inv_freq, x.dtype)
        q = self.q_b_proj(rms_norm(self.q_a_proj(x), self.q_a_layernorm["weight"], self.eps)).unflatten(-1, (self.num_heads, -1))
        q_nope, q_pe = q.split([mla.qk_nope_head_dim, mla.qk_rope_head_dim], dim=-1)
        latent, k_pe = self.kv_a_proj_with_mqa(x).split([mla.kv_lora_rank, mla.qk_rope_head_dim], dim=-1)
        latent = rms_norm(latent, self.kv_a_layernorm["weight"], self.eps)
        k_pe = _rope_pairs(k_pe[:, None], cos, sin)[:, 0]
        cache = torch.cat([cache, torch.cat([latent, k_pe], dim=-1)])
        latents, keys = cache.split([mla.kv_lora_rank, mla.qk_rope_head_dim], dim=-1)
        attend = mla_attend_absorbed if absorbed else mla_attend
        out = attend(q_nope, _rope_pairs(q_pe, cos, sin), latents, keys, *self.expansions())
        return self.o_proj(out.flatten(1)), cache

    def expansions(self) -> tuple[Tensor, Tensor]:
        """W_UK [H, P, r] and W_UV [H, V, r], which checkpoints store as one matrix, head by head."""
        both = self.kv_b_proj.weight.unflatten(0, (self.num_heads, -1))
        return both.split([self.mla.qk_nope_head_dim, self.mla.v_head_dim], dim=1)


def _rope_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions for a checkpoint that pairs dimensions (2i, 2i + 1): they are moved to where `rope` expects them."""
    return rope(x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), cos, sin)
