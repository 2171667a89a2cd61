"""How w4a16 stores 4-bit weights: two to a byte, in an order that spares the kernel every shuffle.

Within a group of G inputs, byte j (0 ≤ j < G/2) holds input j in its low four bits and input j + G/2 in its high ones. So the
low halves of neighbouring bytes are neighbouring inputs, and so are the high halves: a thread that loads 16 bytes has two runs
of 16 weights, each beside 16 neighbouring elements of x. (With 2j and 2j + 1 in a byte, the two would have to be interleaved
again in registers, or x taken apart.) Neither run leaves its group, whose scale and minimum serve both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from minillm.kernels.checks import FLOATS, check_same_dtype, check_shape, check_tensors, require
from torch import Tensor

GROUP_SIZES = (32, 64, 128)


class Int4Weight(NamedTuple):
    """A matrix W [N, K] ≈ scale · q + minimum, q in [0, 15]. With groups of 128 and 16-bit scales, 4.25 bits a weight."""

    packed: Tensor  # [N, K / 2] uint8
    scale: Tensor  # [K / G, N]: of one group, the values of neighbouring channels are neighbours
    minimum: Tensor  # [K / G, N]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): output and input features."""
        return self.packed.shape[0], 2 * self.packed.shape[1]

    @property
    def group_size(self) -> int:
        return 2 * self.packed.shape[1] // max(1, self.scale.shape[0])


def pack_int4(q: Tensor, scale: Tensor, minimum: Tensor) -> Int4Weight:
    """q [N, K] uint8 in [0, 15]; scale, minimum [N, K / G], of one dtype: as minillm.quant.rtn.quantize_groups returns them.

    G must be 32, 64 or 128. A zero point z is a minimum of −z · scale.
    """
    check_tensors((torch.uint8,), q=q)
    check_tensors(FLOATS, scale=scale, minimum=minimum)
    check_shape((None, None), q=q, scale=scale)
    check_shape(scale.shape, minimum=minimum)
    check_same_dtype(scale=scale, minimum=minimum)
    (rows, inputs), groups = q.shape, scale.shape[1]
    require(scale.shape[0] == rows, f"scale has {scale.shape[0]} rows, q {rows}: one for each output channel is needed")
    group_size = inputs // groups if groups and inputs % groups == 0 else 0
    require(
        group_size in GROUP_SIZES,
        f"{inputs} inputs in {groups} groups: quantise in groups of {', '.join(map(str, GROUP_SIZES))} that divide the inputs",
    )
    require(not q.numel() or int(q.max()) < 16, "q holds numbers above 15: quantise to 4 bits")
    low, high = q.unflatten(1, (groups, 2, group_size // 2)).unbind(2)
    return Int4Weight((low | high << 4).flatten(1).contiguous(), scale.T.contiguous(), minimum.T.contiguous())


def unpack_int4(weight: Int4Weight) -> Tensor:
    """The q [N, K] uint8 that was packed."""
    halves = weight.packed.unflatten(1, (weight.scale.shape[0], 1, -1))
    return torch.cat([halves & 15, halves >> 4], dim=2).flatten(1)


def dequantize_int4(weight: Int4Weight) -> Tensor:
    """scale · q + minimum [N, K], float32."""
    groups = unpack_int4(weight).float().unflatten(1, (weight.scale.shape[0], -1))
    return (groups * weight.scale.float().T[..., None] + weight.minimum.float().T[..., None]).flatten(1)
