"""Matrix products by our kernels: of weights as they were loaded, and of small integers that become numbers in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import ConfigError
from minillm.kernels.gemv import MAX_ROWS
from minillm.kernels.int4_packing import Int4Weight, dequantize_int4, pack_int4
from minillm.kernels.w8a16 import w8a16
from minillm.model.linear import Linear, LinearMethod, Unquantized
from minillm.quant.rtn import quantize_groups, quantize_per_channel


@dataclass(frozen=True)
class LinearKernels:
    """The parts `kernels.<name>` of minillm.parts for matrix products; contracts in minillm.kernels."""

    gemv: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    gemm: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    w4a16: Callable[[Tensor, Int4Weight, Tensor | None], Tensor]


class TritonLinear(Unquantized):
    """The weight as it was loaded: read once for the few rows of a decode step, tile by tile for more."""

    def __init__(self, kernels: LinearKernels):
        self.kernels = kernels

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        product = self.kernels.gemv if x.shape[0] <= MAX_ROWS else self.kernels.gemm
        return product(x, layer.weight, layer.bias)


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

    def __init__(self, group_size: int, kernels: LinearKernels):
        self.group_size, self.kernels = group_size, kernels

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        return pack_int4(*quantize_groups(weight, self.group_size, scale_dtype=weight.dtype))._asdict()

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        return self.kernels.w4a16(x, _packed(layer), layer.bias)

    def dense(self, layer: Linear) -> Tensor:
        return dequantize_int4(_packed(layer)).to(layer.scale.dtype)


def _packed(layer: Linear) -> Int4Weight:
    return Int4Weight(layer.packed, layer.scale, layer.minimum)


def make_triton_linear(quantization: str | None, group_size: int, config: ModelConfig, kernels: LinearKernels) -> LinearMethod:
    """The method for EngineConfig.quantization. Raises ConfigError where this model's matrices cannot be cut into such groups."""
    if quantization is None:
        return TritonLinear(kernels)
    if quantization == "int8":
        return TritonInt8Linear()
    inputs = {config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size}
    if uneven := sorted(size for size in inputs if size % group_size):
        raise ConfigError(
            f"groups of {group_size} do not divide the {uneven[0]} inputs of a matrix of this model; "
            "use a smaller --quantization-group-size, or --quantization int8"
        )
    return TritonInt4Linear(group_size, kernels)
