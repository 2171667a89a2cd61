"""Answers to labs/c2/m01_one_token.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.kit import exercise


@exercise(reference="minillm.model.ops:rms_norm", part="ops.rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    mean_square = wide.square().mean(dim=-1, keepdim=True)
    return (wide / torch.sqrt(mean_square + eps)).to(x.dtype) * weight


@exercise(reference="minillm.model.ops:rope", part="ops.rope")
def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None, :], sin[:, None, :]  # the same for every head
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)


@exercise(reference="minillm.model.ops:gqa_attention", part="ops.gqa_attention")
def gqa_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, sliding_window: int | None = None) -> Tensor:
    num_queries, num_heads, head_dim = q.shape
    num_keys, num_kv_heads, _ = k.shape
    shared_by = num_heads // num_kv_heads
    queries = q.float().reshape(num_queries, num_kv_heads, shared_by, head_dim)
    scores = scale * torch.einsum("tkgd,skd->tkgs", queries, k.float())

    positions = torch.arange(num_keys, device=q.device)
    at = positions[num_keys - num_queries :, None]
    seen = positions <= at
    if sliding_window is not None:
        seen &= positions > at - sliding_window
    weights = scores.masked_fill(~seen[:, None, None, :], -torch.inf).softmax(dim=-1)
    out = torch.einsum("tkgs,skd->tkgd", weights, v.float())
    return out.reshape(num_queries, num_heads, head_dim).to(q.dtype)


@exercise(reference="minillm.model.ops:swiglu", part="ops.swiglu")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up
