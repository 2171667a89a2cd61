"""Answers to labs/c5/m02_fusion.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.rows import as_rows, next_power_of_2, row_block
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# -------------------------------------------------------------------------------------------------------------------- rms_norm


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, x_stride, x_inner_stride, out_stride, length, eps, BLOCK: tl.constexpr):
    i, j = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < length
    x = tl.load(x_ptr + i * x_stride + j * x_inner_stride + column, mask=real, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=real, other=0.0).to(tl.float32)
    normed = x / tl.sqrt(tl.sum(x * x, axis=0) / length + eps)
    rounded = normed.to(out_ptr.dtype.element_ty).to(tl.float32)
    row = i * tl.num_programs(1) + j
    tl.store(out_ptr + row * out_stride + column, (rounded * weight).to(out_ptr.dtype.element_ty), mask=real)


def launch_rms_norm(kernel, x, weight, eps, out) -> Tensor:
    """Given: makes the result where it is None, and starts one program a row: (T, heads) of them for x [T, heads, H], whose rows
    lie at two strides, else (rows, 1). ValueError for rows too long for a program."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    out_rows, length = as_rows(out=out), x.shape[-1]
    block, num_warps = row_block(length, x.dtype)
    if block < length:
        raise ValueError(f"rows of {length} elements do not fit a program of {block}")
    if x.numel():
        x_rows = x if x.ndim == 3 else as_rows(x=x)[:, None]
        kernel[x_rows.shape[:2]](
            x_rows, weight, out_rows, *x_rows.stride()[:2], out_rows.stride(0), length, eps, BLOCK=block, num_warps=num_warps
        )
    return out


@exercise(reference="minillm.kernels.rms_norm:rms_norm", part="kernels.rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    return launch_rms_norm(rms_norm_kernel, x, weight, eps, out)


# ---------------------------------------------------------------------------------------------------------------- add_rms_norm


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr,
    x_stride, residual_stride, out_stride, sum_stride, length, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < length
    dtype = out_ptr.dtype.element_ty
    x = tl.load(x_ptr + row * x_stride + column, mask=real, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * residual_stride + column, mask=real, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=real, other=0.0).to(tl.float32)
    total = (x + residual).to(dtype)
    tl.store(sum_ptr + row * sum_stride + column, total, mask=real)
    wide = total.to(tl.float32)
    normed = wide / tl.sqrt(tl.sum(wide * wide, axis=0) / length + eps)
    tl.store(out_ptr + row * out_stride + column, (normed.to(dtype).to(tl.float32) * weight).to(dtype), mask=real)


def launch_add_rms_norm(kernel, x, residual, weight, eps, out, residual_out) -> tuple[Tensor, Tensor]:
    """Given: makes the results where they are None, and starts one program a row. ValueError for rows too long for a program."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    residual_out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if residual_out is None else residual_out
    rows = as_rows(x=x), as_rows(residual=residual), as_rows(out=out), as_rows(residual_out=residual_out)
    count, length = rows[0].shape
    block, num_warps = row_block(length, x.dtype)
    if block < length:
        raise ValueError(f"rows of {length} elements do not fit a program of {block}")
    if x.numel():
        x_rows, residual_rows, out_rows, sum_rows = rows
        kernel[(count,)](
            x_rows, residual_rows, weight, out_rows, sum_rows, *(each.stride(0) for each in rows), length, eps,
            BLOCK=block, num_warps=num_warps,
        )  # fmt: skip
    return out, residual_out


@exercise(reference="minillm.kernels.rms_norm:add_rms_norm", part="kernels.add_rms_norm")
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, residual_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return launch_add_rms_norm(add_rms_norm_kernel, x, residual, weight, eps, out, residual_out)


# -------------------------------------------------------------------------------------------------------------------- silu_mul


@triton.jit
def silu_mul_kernel(gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, out_stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < length
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=real, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=real, other=0.0).to(tl.float32)
    dtype = out_ptr.dtype.element_ty
    silu = (gate / (1 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out_ptr + row * out_stride + column, (silu * up).to(dtype), mask=real)


def launch_silu_mul(kernel, gate, up, out) -> Tensor:
    """Given: makes the result where it is None, and starts programs of up to 1,024 columns."""
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    gate_rows, up_rows, out_rows = as_rows(gate=gate), as_rows(up=up), as_rows(out=out)
    count, length = gate_rows.shape
    block = min(1024, next_power_of_2(length))
    if gate.numel():
        kernel[(count, triton.cdiv(length, block))](
            gate_rows, up_rows, out_rows, gate_rows.stride(0), up_rows.stride(0), out_rows.stride(0), length,
            BLOCK=block, num_warps=max(1, block // 256),
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.silu_mul:silu_mul", part="kernels.silu_mul")
def silu_mul(gate: Tensor, up: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    if up is None:
        gate, up = gate.chunk(2, dim=-1)
    return launch_silu_mul(silu_mul_kernel, gate, up, out)


# ------------------------------------------------------------------------------------------------------------------------ rope


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr,
    q_stride, q_head_stride, k_stride, k_head_stride,
    q_out_stride, q_out_head_stride, k_out_stride, k_out_head_stride,
    cos_stride, sin_stride, num_q_heads, half,
    BLOCK: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i = tl.arange(0, BLOCK)
    real = i < half
    cos = tl.load(cos_ptr + token * cos_stride + i, mask=real, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_stride + i, mask=real, other=0.0).to(tl.float32)
    if head < num_q_heads:
        from_ptr = q_ptr + token * q_stride + head * q_head_stride
        to_ptr = q_out_ptr + token * q_out_stride + head * q_out_head_stride
    else:
        from_ptr = k_ptr + token * k_stride + (head - num_q_heads) * k_head_stride
        to_ptr = k_out_ptr + token * k_out_stride + (head - num_q_heads) * k_out_head_stride
    first = tl.load(from_ptr + i, mask=real, other=0.0).to(tl.float32)
    second = tl.load(from_ptr + half + i, mask=real, other=0.0).to(tl.float32)
    dtype = q_out_ptr.dtype.element_ty
    turned_first = (first * cos).to(dtype).to(tl.float32) - (second * sin).to(dtype).to(tl.float32)
    turned_second = (second * cos).to(dtype).to(tl.float32) + (first * sin).to(dtype).to(tl.float32)
    tl.store(to_ptr + i, turned_first.to(dtype), mask=real)
    tl.store(to_ptr + half + i, turned_second.to(dtype), mask=real)


def launch_rope(kernel, q, k, cos, sin, q_out, k_out) -> None:
    """Given: starts one program for each token and each head of q and of k, all in one launch. Strides are (token, head)."""
    (tokens, num_q_heads, head_dim), num_k_heads = q.shape, k.shape[1]
    if tokens and num_q_heads + num_k_heads and head_dim:
        strides = [stride for each in (q, k, q_out, k_out) for stride in each.stride()[:2]]
        kernel[(tokens, num_q_heads + num_k_heads)](
            q, k, cos, sin, q_out, k_out, *strides, cos.stride(0), sin.stride(0), num_q_heads, head_dim // 2,
            BLOCK=next_power_of_2(head_dim // 2), num_warps=1,
        )  # fmt: skip


@exercise(reference="minillm.kernels.rope:rope", part="kernels.rope")
def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, inplace: bool = False) -> tuple[Tensor, Tensor]:
    q_out, k_out = (q, k) if inplace else (torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (q, k))
    launch_rope(rope_kernel, q, k, cos, sin, q_out, k_out)
    return q_out, k_out
