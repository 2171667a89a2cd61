"""Weight-only quantization as linear methods: weights are read as small integers, arithmetic stays in the model's dtype.

Decoding reads every weight once for each step and does little with it, so a weight of half the bytes is nearly half the time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import ConfigError
from minillm.model.linear import Linear, LinearMethod, Unquantized
from minillm.quant.rtn import quantize_groups, quantize_per_channel

DEQUANTIZE_ABOVE = 32  # rows of x: from about here one conversion and a plain product beat converting in the inner loop


class Int8Linear:
    """int8, one scale an output channel: half of bf16's bytes."""

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        q, scale = quantize_per_channel(weight, weight.dtype)
        return {"qweight": q, "scale": scale}

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        if (
            x.shape[0] > DEQUANTIZE_ABOVE or layer.in_features % 16
        ):  # the kernel reads 16 inputs at a time, past the end if need be
            out = F.linear(x, layer.qweight.to(x.dtype)) * layer.scale
        else:
            out = torch.ops.aten._weight_int8pack_mm(x, layer.qweight, layer.scale)
        return out if layer.bias is None else out + layer.bias

    def dense(self, layer: Linear) -> Tensor:
        return layer.qweight.to(layer.scale.dtype) * layer.scale[:, None]


class Int4Linear:
    """int4 with a scale and a zero point for each group of inputs: with bf16 scales and groups of 32, 5 bits a weight."""

    def __init__(self, group_size: int):
        self.group_size = group_size

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        weight = F.pad(weight, (0, 0, 0, -weight.shape[0] % 16))  # the kernel takes output channels by sixteens
        q, scale, minimum = quantize_groups(weight, self.group_size, scale_dtype=weight.dtype)
        # it counts q from -8, so that its zero point is the value in the middle of the group's range
        middle = minimum.float() + 8 * scale.float()
        return {
            "qweight": torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), 1),
            "scale_and_zero": torch.stack([scale, middle.to(scale.dtype)], dim=-1).transpose(0, 1).contiguous(),
        }

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        out = self._product(x.contiguous(), layer)
        return out if layer.bias is None else out + layer.bias

    def dense(self, layer: Linear) -> Tensor:
        # how the integers are packed differs from processor to processor; the product with the identity does not
        identity = torch.eye(layer.in_features, dtype=layer.scale_and_zero.dtype)
        return self._product(identity, layer).T.contiguous()

    def _product(self, x: Tensor, layer: Linear) -> Tensor:
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(x, layer.qweight, self.group_size, layer.scale_and_zero)
        return out[:, : layer.out_features]


def make_linear_method(
    quantization: str | None, group_size: int, config: ModelConfig, device: torch.device | str = "cpu"
) -> LinearMethod:
    """The method for EngineConfig.quantization. Raises ConfigError where this model or device cannot have it."""
    if quantization is None:
        return Unquantized()
    if torch.device(device).type != "cpu":
        raise ConfigError(f"--quantization {quantization} runs on a CPU only so far; leave it out on a GPU")
    if quantization == "int8":
        return Int8Linear()
    inputs = {config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size}
    uneven = sorted(size for size in inputs if size % group_size)
    if uneven:
        fitting = [g for g in (32, 64, 128) if not any(size % g for size in inputs)]
        way_out = f"--quantization-group-size {fitting[-1]}" if fitting else "--quantization int8"
        raise ConfigError(f"groups of {group_size} do not divide the {uneven[0]} inputs of a matrix of this model; use {way_out}")
    return Int4Linear(group_size)
