"""Answers to labs/c5/m01_first_kernels.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.rows import as_rows, row_block
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = i < length
    total = tl.load(x_ptr + i, mask=real).to(tl.float32) + tl.load(y_ptr + i, mask=real).to(tl.float32)
    tl.store(out_ptr + i, total.to(out_ptr.dtype.element_ty), mask=real)


@exercise(reference="minillm.kernels.add:add")
def add(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        out = torch.empty_like(x)
    if x.numel():
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@triton.jit
def whole_row_kernel(x_ptr, out_ptr, x_stride, out_stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    real = i < length
    x = tl.load(x_ptr + row * x_stride + i, mask=real, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + i, (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty), mask=real)


@triton.jit
def long_row_kernel(x_ptr, out_ptr, x_stride, out_stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    out_ptr += row * out_stride
    i = tl.arange(0, BLOCK)
    # Maximum and sum of each lane; lanes meet once, after the loop.
    peak = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(0, length, BLOCK):
        x = tl.load(x_ptr + start + i, mask=start + i < length, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, x)
        base = tl.where(higher == -float("inf"), 0.0, higher)  # a lane that has seen nothing but -inf sums to 0, not to NaN
        total = total * tl.exp(peak - base) + tl.exp(x - base)
        peak = higher
    highest = tl.max(peak, axis=0)
    denominator = tl.sum(total * tl.exp(peak - highest), axis=0)
    for start in range(0, length, BLOCK):
        real = start + i < length
        x = tl.load(x_ptr + start + i, mask=real).to(tl.float32)
        tl.store(out_ptr + start + i, (tl.exp(x - highest) / denominator).to(out_ptr.dtype.element_ty), mask=real)


@exercise(reference="minillm.kernels.softmax:softmax", part="kernels.softmax")
def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        x_rows, out_rows = as_rows(x=x), as_rows(out=out)
        rows, length = x_rows.shape
        block, num_warps = row_block(length, x.dtype)
        kernel = whole_row_kernel if block >= length else long_row_kernel
        kernel[(rows,)](x_rows, out_rows, x_rows.stride(0), out_rows.stride(0), length, BLOCK=block, num_warps=num_warps)
    return out
