"""Weight-only quantization on a GPU: matrices stay as small integers in memory and become numbers in registers."""

from __future__ import annotations

from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import ConfigError
from minillm.kernels.int4_packing import Int4Weight, dequantize_int4, pack_int4
from minillm.kernels.w4a16 import w4a16
from minillm.kernels.w8a16 import w8a16
from minillm.model.linear import Linear, LinearMethod
from minillm.quant.rtn import quantize_groups, quantize_per_channel


class TritonInt8Linear:
    """int8, one scale an output channel; the same numbers as minillm.quant.linear.Int8Linear."""

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        qweight, scale = quantize_per_channel(weight, weight.dtype)
        return {"qweight": qweight, "scale": scale}

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        return w8a16(x, layer.qweight, layer.scale, layer.bias)

    def dense(self, layer: Linear) -> Tensor:
        return layer.qweight.to(layer.scale.dtype) * layer.scale[:, None]


class TritonInt4Linear:
    """int4 with a scale and a minimum for each group of inputs, of any processor: two weights to a byte."""

    def __init__(self, group_size: int):
        self.group_size = group_size

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        return pack_int4(*quantize_groups(weight, self.group_size, scale_dtype=weight.dtype))._asdict()

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        return w4a16(x, _packed(layer), layer.bias)

    def dense(self, layer: Linear) -> Tensor:
        return dequantize_int4(_packed(layer)).to(layer.scale.dtype)


def _packed(layer: Linear) -> Int4Weight:
    return Int4Weight(layer.packed, layer.scale, layer.minimum)


def make_triton_linear(quantization: str, group_size: int, config: ModelConfig) -> LinearMethod:
    """The method for EngineConfig.quantization. Raises ConfigError where this model's matrices cannot be cut into such groups."""
    if quantization == "int8":
        return TritonInt8Linear()
    inputs = {config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size}
    if uneven := sorted(size for size in inputs if size % group_size):
        raise ConfigError(
            f"groups of {group_size} do not divide the {uneven[0]} inputs of a matrix of this model; "
            "use a smaller --quantization-group-size, or --quantization int8"
        )
    return TritonInt4Linear(group_size)
