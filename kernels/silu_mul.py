"""SiLU of the gate times up: what stands between the matrices of a gated feed-forward layer.

    y = round(gate / (1 + exp(−gate))) · up

gate, up [..., I], separate or as the two halves of one [..., 2·I] that a fused projection leaves behind; bfloat16, float16 or
float32. The sigmoid is computed in float32; SiLU is rounded to the dtype before it meets up, as torch's two operations round.

Bytes, T rows, elements of s bytes: gate and up are read, y is written: **3·T·I·s**. As two operations the SiLU is written and
read again: 5·T·I·s.

Source: Shazeer 2020, "GLU Variants Improve Transformer", arXiv 2002.05202, equation 6.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from minillm.kernels.checks import check_same_dtype, check_shape, check_tensors, refuse_overlap, require
from minillm.kernels.rows import as_rows, next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def silu_mul_kernel(gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, out_stride, length, BLOCK: tl.constexpr):
    """Program (row, block of columns)."""
    row = tl.program_id(0).to(tl.int64)  # row * stride may pass 2³¹
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < length
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out_ptr + row * out_stride + column, (silu * up).to(dtype), mask=inside)


def silu_mul(gate: Tensor, up: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """silu(gate) * up. gate, up [..., I]; or, without up, gate [..., 2·I] whose second half is up. Returns [..., I], in `out` if
    given, which may be gate or up, or one of its halves."""
    check_tensors(gate=gate)
    require(gate.ndim >= 1, "gate is a scalar; a tensor of at least one dimension is needed")
    if up is None:
        require(gate.shape[-1] % 2 == 0, f"without up, gate holds both: its last dimension, {gate.shape[-1]}, must be even")
        gate, up = _halves(gate)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    check_tensors(gate=gate, up=up, out=out)
    check_same_dtype(gate=gate, up=up, out=out)
    check_shape(gate.shape, up=up, out=out)
    refuse_overlap(out=out)
    gate_rows, up_rows, out_rows = as_rows(gate=gate), as_rows(up=up), as_rows(out=out)
    rows, length = gate_rows.shape
    if gate.numel() == 0:
        return out
    block, num_warps = silu_mul_block(length)
    require(length <= block * 65535, f"rows of {length} elements: a launch takes {block * 65535}; split them")
    silu_mul_kernel[(rows, triton.cdiv(length, block))](
        gate_rows, up_rows, out_rows, gate_rows.stride(0), up_rows.stride(0), out_rows.stride(0), length,
        BLOCK=block, num_warps=num_warps,
    )  # fmt: skip
    return out


def _halves(fused: Tensor) -> tuple[Tensor, Tensor]:
    half = fused.shape[-1] // 2
    return fused[..., :half], fused[..., half:]


def silu_mul_block(length: int) -> tuple[int, int]:
    """(columns a program computes, its warps): 8 elements a thread, one 128-bit load of a 16-bit dtype from each input."""
    block = min(1024, next_power_of_2(length))
    return block, max(1, block // 256)


def silu_mul_torch(gate: Tensor, up: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The same in plain torch."""
    gate, up = _halves(gate) if up is None else (gate, up)
    y = F.silu(gate) * up
    return y if out is None else out.copy_(y)


def silu_mul_bytes(rows: int, length: int, dtype: torch.dtype) -> int:
    """Bytes through HBM for outputs [rows, length]: two inputs and one output."""
    return 3 * rows * length * dtype.itemsize


def _shipped(name: str, length: int, pointer: str) -> Shipped:
    block, num_warps = silu_mul_block(length)
    pointers, numbers = ("gate_ptr", "up_ptr", "out_ptr"), ("gate_stride", "up_stride", "out_stride", "length")
    return Shipped(
        name=name,
        kernel="minillm.kernels.silu_mul:silu_mul_kernel",
        signature=dict.fromkeys(pointers, pointer) | dict.fromkeys(numbers, "i32"),
        constexprs={"BLOCK": block},
        aligned=pointers + numbers,
        num_warps=num_warps,
    )


SHIPPED = (_shipped("silu_mul.bf16.14336", 14336, "*bf16"), _shipped("silu_mul.fp16.14336", 14336, "*fp16"))
