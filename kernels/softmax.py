"""Softmax of every row, in one kernel.

    y_i = exp(x_i - m) / Σ_j exp(x_j - m),    m = max_j x_j

x [..., N] in bfloat16, float16 or float32; arithmetic in float32, y in x's dtype. As in torch, a row of nothing but −inf (or one
that holds +inf or NaN) has no softmax and becomes NaN.

Bytes, R rows of N elements of s bytes. Written as torch operations, softmax takes five passes: max reads x; the subtraction reads
x and writes; exp reads and writes; the sum reads; the division reads and writes: 8·R·N·s. Here a row that fits a program (64 KiB,
see minillm.kernels.rows) is read once and written once: **2·R·N·s**, the least possible. A longer row is read twice, first for m
and the sum together, which one pass yields if the sum is rescaled whenever the maximum grows: **3·R·N·s** requested. The second
reading finds the row in the L2 cache if all rows in flight fit there.

Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", arXiv 1805.02867, algorithm 3.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import INT32_LIMIT, check_same_dtype, check_shape, check_tensors, refuse_overlap, require
from minillm.kernels.rows import as_rows, row_block
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, length, BLOCK: tl.constexpr):
    """One program, one row, all of it in registers."""
    row = tl.program_id(0).to(tl.int64)  # row * stride may pass 2³¹
    column = tl.arange(0, BLOCK)
    inside = column < length
    # −inf beyond the row's end: it neither is the maximum nor adds to the sum
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_stride + column, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_long_kernel(x_ptr, out_ptr, x_stride, out_stride, length, BLOCK: tl.constexpr):
    """One program, one row that does not fit: once over it for maximum and sum, once more for the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    out_ptr += row * out_stride
    column = tl.arange(0, BLOCK)

    # Every lane keeps a maximum and a sum of its own: lanes meet once, after the loop, not in each turn of it.
    peak = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        x = tl.load(x_ptr + start + column, mask=start + column < length, other=-float("inf"), eviction_policy="evict_last").to(
            tl.float32
        )
        new_peak = tl.maximum(peak, x)
        # A lane that has seen nothing but −inf would compute −inf − (−inf) = NaN and spoil a row that is fine.
        origin = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        total = total * tl.exp(peak - origin) + tl.exp(x - origin)
        peak = new_peak
    row_peak = tl.max(peak, axis=0)
    origin = tl.where(row_peak == -float("inf"), 0.0, row_peak)
    row_total = tl.sum(total * tl.exp(peak - origin), axis=0)

    for start in range(0, length, BLOCK):
        inside = start + column < length
        x = tl.load(x_ptr + start + column, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - origin) / row_total  # 0 / 0 for a row of −inf: NaN, as in torch
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask=inside)


def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension. x [..., N]; returns [..., N] in its dtype, in `out` if given, which may be x itself."""
    tensors = {"x": x} if out is None else {"x": x, "out": out}
    check_tensors(**tensors)
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    check_same_dtype(x=x, out=out)
    check_shape(x.shape, out=out)
    refuse_overlap(out=out)
    x_rows, out_rows = as_rows(x=x), as_rows(out=out)
    rows, length = x_rows.shape
    require(length < INT32_LIMIT, f"rows of {length} elements: this kernel takes less than 2**31")
    if x.numel() == 0:
        return out
    block, num_warps = row_block(length, x.dtype)
    kernel = softmax_kernel if block >= length else softmax_long_kernel
    kernel[(rows,)](x_rows, out_rows, x_rows.stride(0), out_rows.stride(0), length, BLOCK=block, num_warps=num_warps)
    return out


def softmax_torch(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The same in plain torch."""
    y = torch.softmax(x.float(), dim=-1).to(x.dtype)
    return y if out is None else out.copy_(y)


def softmax_bytes(rows: int, length: int, dtype: torch.dtype) -> int:
    """Bytes that the kernel requests: each element read and written once, or read twice where a row does not fit a program."""
    passes = 2 if row_block(length, dtype)[0] >= length else 3
    return passes * rows * length * dtype.itemsize


def _shipped(name: str, length: int, dtype: torch.dtype) -> Shipped:
    block, num_warps = row_block(length, dtype)
    kernel = "softmax_kernel" if block >= length else "softmax_long_kernel"
    pointer = {torch.bfloat16: "*bf16", torch.float16: "*fp16"}[dtype]
    return Shipped(
        name=name,
        kernel=f"minillm.kernels.softmax:{kernel}",
        signature={"x_ptr": pointer, "out_ptr": pointer, "x_stride": "i32", "out_stride": "i32", "length": "i32"},
        constexprs={"BLOCK": block},
        aligned=("x_ptr", "out_ptr", "x_stride", "out_stride", "length"),
        num_warps=num_warps,
    )


SHIPPED = (
    _shipped("softmax.bf16.4096", 4096, torch.bfloat16),
    _shipped("softmax.fp16.4096", 4096, torch.float16),
    _shipped("softmax.bf16.128256", 128256, torch.bfloat16),  # Llama 3's vocabulary
)
