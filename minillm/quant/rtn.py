"""Round to nearest: the simplest quantization of a weight matrix, from the weights alone.

A float w is stored as a small integer q and read back as scale·q (symmetric) or scale·q + minimum (asymmetric). One scale
for a whole matrix would be set by its largest outlier; so each output channel, or each group of inputs, has its own.
(Dettmers et al., LLM.int8(), 2022, and Frantar et al., GPTQ, 2023, both measure against this.)
"""

from __future__ import annotations

import torch
from torch import Tensor


def quantize_per_channel(weight: Tensor, scale_dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Symmetric int8, one scale an output channel: scale = max|w| / 127, q = round(w / scale).

    weight [N, K] -> q [N, K] int8 in [-127, 127], scale [N] of scale_dtype. |w - scale·q| <= scale / 2, plus what
    rounding the scale itself cuts off the largest weight (half a unit in its last place, relative).
    """
    w = weight.float()
    scale = _rounded(w.abs().amax(dim=1) / 127, scale_dtype)
    q = torch.round(w / scale.float()[:, None]).clamp_(-127, 127)
    return q.to(torch.int8), scale


def dequantize_per_channel(q: Tensor, scale: Tensor) -> Tensor:
    """q [N, K] int8, scale [N] -> [N, K] float32."""
    return q.float() * scale.float()[:, None]


def quantize_groups(
    weight: Tensor, group_size: int, bits: int = 4, scale_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """Asymmetric, one scale and one minimum for each run of group_size inputs of a channel:
    scale = (max - min) / (2^bits - 1), q = round((w - min) / scale).

    weight [N, K], K a multiple of group_size -> q [N, K] uint8 in [0, 2^bits - 1]; scale, minimum [N, K / group_size] of
    scale_dtype. |w - (scale·q + min)| <= scale / 2, plus the rounding of scale and minimum to scale_dtype.
    """
    groups = weight.float().unflatten(1, (-1, group_size))
    low, high = groups.aminmax(dim=2)
    levels = 2**bits - 1
    scale, minimum = _rounded((high - low) / levels, scale_dtype), low.to(scale_dtype)
    q = torch.round((groups - minimum.float()[..., None]) / scale.float()[..., None]).clamp_(0, levels)
    return q.to(torch.uint8).flatten(1), scale, minimum


def dequantize_groups(q: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """q [N, K] uint8; scale, minimum [N, K / group_size] -> [N, K] float32."""
    groups = q.float().unflatten(1, (scale.shape[1], -1))
    return (groups * scale.float()[..., None] + minimum.float()[..., None]).flatten(1)


def _rounded(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The scale as it will be stored, never zero. Rounded before q is computed, so that q makes up for it."""
    return scale.clamp_min(torch.finfo(torch.float16).tiny).to(dtype)
