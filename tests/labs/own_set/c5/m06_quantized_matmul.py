"""Answers to labs/c5/m06_quantized_matmul.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.int4_packing import Int4Weight
from minillm.kernels.linear_tile import store_tile, tile_of
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# ------------------------------------------------------------------------------------------------------------------- pack_int4


@exercise(reference="minillm.kernels.int4_packing:pack_int4")
def pack_int4(q: Tensor, scale: Tensor, minimum: Tensor) -> Int4Weight:
    (channels, inputs), groups = q.shape, scale.shape[1]
    group_size = inputs // groups if groups else 0
    if group_size not in (32, 64, 128) or groups * group_size != inputs:
        raise ValueError(f"{inputs} inputs in {groups} groups: whole groups of 32, 64 or 128 are needed")
    if (q > 15).any():
        raise ValueError(f"q holds {int(q.max())}; four bits end at 15")
    low, high = q.view(channels, groups, 2, group_size // 2).unbind(2)
    return Int4Weight((low | high << 4).flatten(1), scale.T.contiguous(), minimum.T.contiguous())


# ----------------------------------------------------------------------------------------------------------------------- w4a16


@triton.jit
def halves(byte):
    """(1 + low / 16, 1 + high / 16) of bytes, float32, by their bits."""
    byte = byte.to(tl.int32)
    low = ((byte & 15) << 19 | 0x3F800000).to(tl.float32, bitcast=True)
    high = ((byte >> 4) << 19 | 0x3F800000).to(tl.float32, bitcast=True)
    return low, high


@triton.jit
def line_of(scale_ptr, minimum_ptr, at, real):
    """a and b of W = a · v + b, for channels of one group."""
    a = 16 * tl.load(scale_ptr + at, mask=real, other=0.0).to(tl.float32)
    return a, tl.load(minimum_ptr + at, mask=real, other=0.0).to(tl.float32) - a


@triton.jit
def one_row_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, N, groups, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = G // 2
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.arange(0, HALF)
    packed_ptr += n.to(tl.int64)[:, None] * packed_stride + j[None, :]
    real = n < N
    total = tl.zeros([BLOCK_N], tl.float32)
    for g in range(groups):
        low, high = halves(tl.load(packed_ptr + g * HALF, mask=real[:, None], other=0))
        a, b = line_of(scale_ptr, minimum_ptr, g * N + n, real)
        x_low = tl.load(x_ptr + g * G + j).to(tl.float32)
        x_high = tl.load(x_ptr + g * G + HALF + j).to(tl.float32)
        products = tl.sum(low * x_low[None, :] + high * x_high[None, :], axis=1)
        total += a * products + b * tl.sum(x_low + x_high, axis=0)
    if HAS_BIAS:
        total += tl.load(bias_ptr + n, mask=real, other=0.0).to(tl.float32)
    tl.store(out_ptr + n, total.to(out_ptr.dtype.element_ty), mask=real)


@triton.jit
def tile_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, M, N, groups, x_stride, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = G // 2
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP=8)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.arange(0, HALF)
    packed_ptr += n.to(tl.int64)[:, None] * packed_stride + j[None, :]
    x_ptr += m.to(tl.int64)[:, None] * x_stride + j[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for g in range(groups):
        low, high = halves(tl.load(packed_ptr + g * HALF, mask=(n < N)[:, None], other=0))
        a, b = line_of(scale_ptr, minimum_ptr, g * N + n, n < N)
        x_low = tl.load(x_ptr + g * G, mask=(m < M)[:, None], other=0.0)
        x_high = tl.load(x_ptr + g * G + HALF, mask=(m < M)[:, None], other=0.0)
        w_low = (a[:, None] * low + b[:, None]).to(x_low.dtype)
        w_high = (a[:, None] * high + b[:, None]).to(x_high.dtype)
        acc = tl.dot(w_low, tl.trans(x_low), acc, input_precision="ieee")
        acc = tl.dot(w_high, tl.trans(x_high), acc, input_precision="ieee")
    store_tile(out_ptr, bias_ptr, acc, m, n, M, N, tl.program_id(1), HAS_BIAS)


def launch_w4a16(one_row, tile, x: Tensor, weight: Int4Weight, bias: Tensor | None) -> Tensor:
    """Given: one_row for one row of x, in programs of 16 channels; for more rows tile, 16 to 64 rows by 64 channels."""
    packed, scale, minimum = weight
    (rows, _), (channels, _), group_size, groups = x.shape, weight.shape, weight.group_size, scale.shape[0]
    out = torch.empty(rows, channels, dtype=x.dtype, device=x.device)
    anything = scale if bias is None else bias  # a kernel's pointer must point somewhere
    tensors = (x, packed, scale, minimum, anything, out)
    options = {"HAS_BIAS": bias is not None, "G": group_size, "num_warps": 4}
    if rows == 1 and channels:
        one_row[(triton.cdiv(channels, 16),)](*tensors, channels, groups, packed.stride(0), BLOCK_N=16, **options)
    elif rows and channels:
        block_m, block_n = min(64, max(16, next_power_of_2(rows))), 64
        grid = (triton.cdiv(rows, block_m) * triton.cdiv(channels, block_n),)
        sizes = rows, channels, groups, x.stride(0), packed.stride(0)
        tile[grid](*tensors, *sizes, BLOCK_M=block_m, BLOCK_N=block_n, num_stages=3, **options)
    return out


@exercise(reference="minillm.kernels.w4a16:w4a16", part="kernels.w4a16")
def w4a16(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    return launch_w4a16(one_row_kernel, tile_kernel, x, weight, bias)
