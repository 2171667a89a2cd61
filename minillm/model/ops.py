"""The arithmetic of a Llama-like decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Plain functions of tensors. T counts tokens of a flat batch, D is head_dim. Reductions run in float32 whatever the dtype,
and roundings happen where transformers rounds, so that bfloat16 results stay comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.config import RopeScaling


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight, over the last dimension (Zhang & Sennrich 2019, arXiv 1910.07467).

    x [..., H] and weight [H] of one dtype; returns [..., H] in it. The quotient is computed in float32 and rounded
    to the dtype before it meets the weight.
    """
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """Radians per position for each pair of dimensions: theta^(-2i/D) (Su et al. 2021, arXiv 2104.09864, eq. 15).

    With `scaling`, Llama 3.1's rule: a wave that turns at least `high_freq_factor` times within the original context
    is kept, one that turns fewer than `low_freq_factor` times is slowed by `factor`, and those between are blended
    linearly in the number of turns. Returns [D/2] float32.
    """
    inv_freq = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if scaling is None:
        return inv_freq
    turns = scaling.original_max_position_embeddings * inv_freq / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return keep * inv_freq + (1 - keep) * inv_freq / scaling.factor


def rope_cos_sin(positions: Tensor, inv_freq: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position * frequency. positions [T] integers, inv_freq [D/2]; returns two [T, D/2] of `dtype`.

    Angles are computed in float32: bfloat16 cannot tell position 4097 from 4096.
    """
    angles = positions[:, None].float() * inv_freq
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of dimensions of each head by its token's angle (arXiv 2104.09864, section 3.2).

    x [T, heads, D]; cos, sin [T, D/2]; returns [T, heads, D]. Pairs are (i, i + D/2), the layout of Hugging Face
    checkpoints; the paper and Meta's original weights pair (2i, 2i + 1).
    """
    cos, sin = cos[:, None], sin[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def causal_mask(num_queries: int, num_keys: int, sliding_window: int | None = None, device: torch.device | str = "cpu") -> Tensor:
    """[num_queries, num_keys] bool, True where a query may look. The queries are the last of the num_keys tokens.

    The token at position p sees p and everything before it; with a window, the last `sliding_window` of those, itself
    included (Jiang et al. 2023, Mistral 7B, arXiv 2310.06825, section 2).
    """
    key = torch.arange(num_keys, device=device)
    query = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    mask = key <= query
    return mask if sliding_window is None else mask & (key > query - sliding_window)


def gqa_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, sliding_window: int | None = None) -> Tensor:
    """softmax(q·kᵀ·scale + causal mask)·v for one sequence, num_heads / num_kv_heads query heads sharing each key-value
    head (Ainslie et al. 2023, arXiv 2305.13245).

    q [T, num_heads, D], the sequence's last T tokens; k, v [S, num_kv_heads, D], all S >= T of them. Query head h reads
    key-value head h // (num_heads / num_kv_heads). Scores and sums in float32; returns [T, num_heads, D] in q's dtype.
    """
    num_keys, num_kv_heads = k.shape[:2]
    grouped = q.float().unflatten(1, (num_kv_heads, -1))
    scores = torch.einsum("tkgd,skd->kgts", grouped, k.float()) * scale
    mask = causal_mask(len(q), num_keys, sliding_window, q.device)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    out = torch.einsum("kgts,skd->tkgd", weights, v.float())
    return out.reshape(q.shape).to(q.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, elementwise, where silu(x) = x / (1 + exp(-x)): what a gated feed-forward layer does between its
    first two matrices and its last, w_down(swiglu(w_gate(x), w_up(x))) (Shazeer 2020, arXiv 2002.05202, eq. 6).

    gate, up [..., I] of one shape and dtype; returns the same.
    """
    return F.silu(gate) * up


@dataclass(frozen=True)
class Ops:
    """The operators a decoder calls, each of which may be replaced: the parts `ops.<name>` of minillm.parts. gqa_attention is
    not among them, because what a decoder calls is an attention backend; TorchAttention calls it."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    rope: Callable[[Tensor, Tensor, Tensor], Tensor] = rope
    swiglu: Callable[[Tensor, Tensor], Tensor] = swiglu
