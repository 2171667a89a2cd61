"""RMSNorm, alone and with the addition to the residual stream that comes before it, each in one kernel.

    h = residual + x                                   (add_rms_norm only)
    y = round(h / sqrt(mean(h²) + eps)) · weight

x, residual [..., H], weight [H], all of one dtype: bfloat16, float16 or float32. Squares are summed in float32. Roundings to the
dtype happen where Hugging Face's Llama and minillm.model.ops have them: after the addition, after the quotient, after the weight.

Bytes, T rows of H elements of s bytes. rms_norm reads x and writes y: **2·T·H·s**. A residual addition by itself reads two and
writes one, the norm after it reads that one again and writes y: 5·T·H·s. add_rms_norm reads x and the residual and writes the new
residual and y, each byte once: **4·T·H·s**. Both also read the weight, H·s from HBM; every row asks for it, and the L2 cache
answers all but the first. Rows of more than 64 KiB (see minillm.kernels.rows) are read once more: + T·H·s.

Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", arXiv 1910.07467, equation 4.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    INT32_LIMIT,
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    refuse_overlap,
    require,
)
from minillm.kernels.rows import as_rows, row_block
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def _scaled(h, inverse_rms, weight, dtype: tl.constexpr):
    """The quotient rounded to the dtype, then times the weight. The product of two rounded numbers is exact in float32."""
    return ((h * inverse_rms).to(dtype).to(tl.float32) * weight.to(tl.float32)).to(dtype)


@triton.jit
def rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr,
    x_stride, x_inner_stride, residual_stride, out_stride, sum_stride, length, eps,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, one row, all of it in registers. With ADD, the residual comes in and the sum goes out. Grid (outer, inner):
    x's rows may lie at two strides, as the heads of tokens do; all others at one."""
    outer, inner = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)  # row * stride may pass 2³¹
    row = outer * tl.num_programs(1) + inner
    x_ptr += outer * x_stride + inner * x_inner_stride
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < length
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last")  # every row needs it
    h = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        residual = tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
        total = (residual + h).to(dtype)
        tl.store(sum_ptr + row * sum_stride + column, total, mask=inside)
        h = total.to(tl.float32)  # the norm sees what the next layer will see: the rounded sum
    inverse_rms = tl.rsqrt(tl.sum(h * h, axis=0) / length + eps)
    tl.store(out_ptr + row * out_stride + column, _scaled(h, inverse_rms, weight, dtype), mask=inside)


@triton.jit
def rms_norm_long_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr,
    x_stride, x_inner_stride, residual_stride, out_stride, sum_stride, length, eps,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, one row that does not fit: once over it for the sum of squares, once more for the result. Grid as above."""
    outer, inner = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    row = outer * tl.num_programs(1) + inner
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    x_ptr += outer * x_stride + inner * x_inner_stride
    out_ptr += row * out_stride
    if ADD:
        residual_ptr += row * residual_stride
        sum_ptr += row * sum_stride
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        column = start + lane
        inside = column < length
        h = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            residual = tl.load(residual_ptr + column, mask=inside, other=0.0).to(tl.float32)
            total = (residual + h).to(dtype)
            tl.store(sum_ptr + column, total, mask=inside)
            h = total.to(tl.float32)
        squares += h * h
    inverse_rms = tl.rsqrt(tl.sum(squares, axis=0) / length + eps)

    source = x_ptr
    if ADD:
        source = sum_ptr
        tl.debug_barrier()  # what this program's other threads wrote
    for start in range(0, length, BLOCK):
        column = start + lane
        inside = column < length
        h = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last")
        tl.store(out_ptr + column, _scaled(h, inverse_rms, weight, dtype), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension. x [..., H], weight [H]; returns [..., H], in `out` if given,
    which may be x itself. x [T, heads, H] may be a slice of a fused tensor, as q and k are that Qwen3 normalizes."""
    out = _new_like(x=x) if out is None else out
    _launch(x, None, weight, eps, out, None)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, residual_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(rms_norm(residual + x), residual + x). x, residual [..., H], weight [H]; both results [..., H].

    `out` and `residual_out` take the results if given. In place: residual_out=residual, and out=x. They must be two tensors.
    """
    out = _new_like(x=x) if out is None else out
    residual_out = _new_like(residual=residual) if residual_out is None else residual_out
    _launch(x, residual, weight, eps, out, residual_out)
    return out, residual_out


def _new_like(**tensor: Tensor) -> Tensor:
    check_tensors(**tensor)
    (like,) = tensor.values()
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, out: Tensor, residual_out: Tensor | None) -> None:
    like_x = {"out": out} if residual is None else {"residual": residual, "out": out, "residual_out": residual_out}
    check_tensors(x=x, weight=weight, **like_x)
    check_same_dtype(x=x, weight=weight, **like_x)
    require(x.ndim >= 1, "x is a scalar; rows [..., H] are needed")
    check_shape(x.shape, **like_x)
    check_shape((x.shape[-1],), weight=weight)
    check_last_dim_contiguous(weight=weight)
    refuse_overlap(out=out)
    if residual is not None:
        refuse_overlap(residual_out=residual_out)
        require(x.numel() == 0 or out.data_ptr() != residual_out.data_ptr(), "out and residual_out are one tensor: give two")
    grid, x_strides = _rows_of(x, residual is not None)
    out_rows = as_rows(out=out)
    residual_rows = None if residual is None else as_rows(residual=residual)
    sum_rows = None if residual_out is None else as_rows(residual_out=residual_out)
    length = x.shape[-1]
    require(length < INT32_LIMIT, f"rows of {length} elements: this kernel takes less than 2**31")
    if x.numel() == 0:
        return
    block, num_warps = row_block(length, x.dtype)
    kernel = rms_norm_kernel if block >= length else rms_norm_long_kernel
    kernel[grid](
        x, residual_rows, weight, out_rows, sum_rows,
        *x_strides, 0 if residual_rows is None else residual_rows.stride(0),
        out_rows.stride(0), 0 if sum_rows is None else sum_rows.stride(0),
        length, eps, ADD=residual is not None, BLOCK=block, num_warps=num_warps,
    )  # fmt: skip


def _rows_of(x: Tensor, even: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The grid (outer, inner) of x's rows and their two strides: (rows, 1) where one stride leads from each to the next, as it
    must if `even`; else, of x [T, heads, H], (T, heads)."""
    if x.ndim == 3 and not even and x.shape[0] > 1 and x.stride(0) != x.shape[1] * x.stride(1):
        refuse_negative_strides(x=x)
        check_last_dim_contiguous(x=x)
        require(x.shape[1] < 2**16, f"x has {x.shape[1]} rows for each first index, a launch takes 65535: pass x.contiguous()")
        return (x.shape[0], x.shape[1]), (x.stride(0), x.stride(1))
    rows = as_rows(x=x)
    return (rows.shape[0], 1), (rows.stride(0), 0)


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """rms_norm in plain torch."""
    x32 = x.float()
    y = (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight
    return y if out is None else out.copy_(y)


def add_rms_norm_torch(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, residual_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """add_rms_norm in plain torch."""
    total = residual + x
    return rms_norm_torch(total, weight, eps, out), total if residual_out is None else residual_out.copy_(total)


def rms_norm_bytes(rows: int, length: int, dtype: torch.dtype) -> int:
    """Bytes that rms_norm must move through HBM: x once (twice if a row does not fit), y once, the weight once."""
    passes = 2 if row_block(length, dtype)[0] >= length else 3
    return (passes * rows + 1) * length * dtype.itemsize


def add_rms_norm_bytes(rows: int, length: int, dtype: torch.dtype) -> int:
    """The same for add_rms_norm: x, residual, new residual and y."""
    return rms_norm_bytes(rows, length, dtype) + 2 * rows * length * dtype.itemsize


def _shipped(name: str, length: int, dtype: torch.dtype, add: bool) -> Shipped:
    block, num_warps = row_block(length, dtype)
    pointer = {torch.bfloat16: "*bf16", torch.float16: "*fp16"}[dtype]
    pointers = ("x_ptr", "weight_ptr", "out_ptr", *(("residual_ptr", "sum_ptr") if add else ()))
    strides = ("x_stride", "x_inner_stride", "residual_stride", "out_stride", "sum_stride", "length")
    return Shipped(
        name=name,
        kernel="minillm.kernels.rms_norm:rms_norm_kernel",
        signature=dict.fromkeys(pointers, pointer) | dict.fromkeys(strides, "i32") | {"eps": "fp32"},
        constexprs={"ADD": add, "BLOCK": block} | ({} if add else {"residual_ptr": None, "sum_ptr": None}),
        aligned=pointers + strides,
        num_warps=num_warps,
    )


SHIPPED = (
    _shipped("rms_norm.bf16.4096", 4096, torch.bfloat16, add=False),
    _shipped("add_rms_norm.bf16.4096", 4096, torch.bfloat16, add=True),
    _shipped("add_rms_norm.fp16.4096", 4096, torch.float16, add=True),
    _shipped("add_rms_norm.bf16.576", 576, torch.bfloat16, add=True),
)
