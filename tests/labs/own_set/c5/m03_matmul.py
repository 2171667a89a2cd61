"""Answers to labs/c5/m03_matmul.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.gemm import default_config
from minillm.kernels.gemv import GemvConfig, gemv_config
from minillm.kernels.grouped_gemm import grouped_gemm_blocks, grouped_gemm_warps
from minillm.kernels.linear_tile import tile_of
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# ------------------------------------------------------------------------------------------------------------------------ gemm


@triton.jit
def gemm_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, out_stride,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptr += m[:, None] * x_stride + k[None, :]
    w_ptr += n[None, :] * w_stride + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        left = k < K - start
        x = tl.load(x_ptr + start, mask=(m < M)[:, None] & left[None, :], other=0.0)
        w = tl.load(w_ptr + start, mask=(n < N)[None, :] & left[:, None], other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    out_ptr += m[:, None] * out_stride + n[None, :]
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def launch_gemm(kernel, x, w, bias, out, config) -> Tensor:
    """Given: makes the result and chooses the block sizes where they are None, and starts one program for each tile."""
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device) if out is None else out
    config = config or default_config(m, x.dtype)
    blocks = config.kwargs
    if m and n:
        kernel[(triton.cdiv(m, blocks["BLOCK_M"]) * triton.cdiv(n, blocks["BLOCK_N"]),)](
            x, w, bias, out, m, n, k, x.stride(0), w.stride(0), out.stride(0), HAS_BIAS=bias is not None, **blocks,
            num_warps=config.num_warps, num_stages=config.num_stages,
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.gemm:gemm", part="kernels.gemm")
def gemm(
    x: Tensor, w: Tensor, bias: Tensor | None = None, out: Tensor | None = None, config: triton.Config | None = None
) -> Tensor:
    return launch_gemm(gemm_kernel, x, w, bias, out, config)


# ------------------------------------------------------------------------------------------------------------------------ gemv


@triton.jit
def gemv_rows_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, part,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(1)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    m, k = tl.arange(0, BLOCK_M).to(tl.int64), tl.arange(0, BLOCK_K)
    x_ptr += m[:, None] * x_stride + k[None, :]
    w_ptr += n[None, :] * w_stride + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(split * part, tl.minimum((split + 1) * part, K), BLOCK_K):
        left = k < K - start
        x = tl.load(x_ptr + start, mask=(m < M)[:, None] & left[None, :], other=0.0)
        w = tl.load(w_ptr + start, mask=(n < N)[None, :] & left[:, None], other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    out_ptr += (split.to(tl.int64) * M + m)[:, None] * N + n[None, :]
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def sum_parts_kernel(parts_ptr, bias_ptr, out_ptr, N, size, SPLITS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    total = tl.zeros([BLOCK], tl.float32)
    for split in range(SPLITS):
        total += tl.load(parts_ptr + split * size + i, mask=real, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias_ptr + i % N, mask=real, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, total.to(out_ptr.dtype.element_ty), mask=real)


def launch_gemv(kernel, sum_kernel, x, w, bias, config) -> Tensor:
    """Given: chooses the block sizes where they are None; with one split your first kernel writes the result itself, with more
    it writes float32 parts (without bias), which your second adds up."""
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if m == 0 or n == 0:
        return out
    config = config or gemv_config(max(2, m), n, k)
    splits, block_n, block_k = config.splits, max(16, config.block_n), max(16, config.block_k)
    parts = out if splits == 1 else torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    part = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k  # whole blocks, so that the last splits may be empty
    kernel[(triton.cdiv(n, block_n), splits)](
        x, w, bias, parts, m, n, k, x.stride(0), w.stride(0), part, HAS_BIAS=bias is not None and splits == 1,
        BLOCK_M=16, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    if splits > 1:
        sum_kernel[(triton.cdiv(m * n, 1024),)](
            parts, bias, out, n, m * n, SPLITS=splits, HAS_BIAS=bias is not None, BLOCK=1024, num_warps=4
        )
    return out


@exercise(reference="minillm.kernels.gemv:gemv", part="kernels.gemv")
def gemv(x: Tensor, w: Tensor, bias: Tensor | None = None, config: GemvConfig | None = None) -> Tensor:
    return launch_gemv(gemv_rows_kernel, sum_parts_kernel, x, w, bias, config)


# ---------------------------------------------------------------------------------------------------------------- grouped_gemm


@triton.jit
def grouped_gemm_kernel(
    x_ptr, w_ptr, offsets_ptr, out_ptr, G, N, K, x_stride, w_group_stride, w_stride, out_stride,
    ADD: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Which group has this row tile: that of the only stretch [before, behind) of tiles that it lies in.
    g, tile = tl.arange(0, BLOCK_G), tl.program_id(0)
    begin = tl.load(offsets_ptr + g, mask=g < G, other=0).to(tl.int64)
    end = tl.load(offsets_ptr + g + 1, mask=g < G, other=0).to(tl.int64)
    tiles = tl.cdiv(end - begin, BLOCK_M).to(tl.int32)
    behind = tl.cumsum(tiles, axis=0)
    before = behind - tiles
    if tile >= tl.sum(tiles, axis=0):
        return
    mine = (before <= tile) & (tile < behind)
    group = tl.sum(tl.where(mine, g, 0), axis=0).to(tl.int64)
    first = tl.sum(tl.where(mine, begin + (tile - before) * BLOCK_M, 0), axis=0)
    last = tl.sum(tl.where(mine, end, 0), axis=0)

    m = first + tl.arange(0, BLOCK_M)
    n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptr += m[:, None] * x_stride + k[None, :]
    w_ptr += group * w_group_stride + n[None, :] * w_stride + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        left = k < K - start
        x = tl.load(x_ptr + start, mask=(m < last)[:, None] & left[None, :], other=0.0)
        w = tl.load(w_ptr + start, mask=(n < N)[None, :] & left[:, None], other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    out_ptr += m[:, None] * out_stride + n[None, :]
    real = (m < last)[:, None] & (n < N)[None, :]
    if ADD:
        acc += tl.load(out_ptr, mask=real, other=0.0).to(tl.float32)
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=real)


def launch_grouped_gemm(kernel, x, w, offsets, out, add) -> Tensor:
    """Given: makes the result where it is None, and starts as many programs as any offsets could need, since how many these need
    is known only on the GPU: a group may waste at most one tile."""
    (rows, k), (groups, n) = x.shape, w.shape[:2]
    out = torch.zeros(rows, n, dtype=x.dtype, device=x.device) if out is None else out
    blocks = grouped_gemm_blocks(rows, groups)
    row_tiles = min(rows, triton.cdiv(rows, blocks["BLOCK_M"]) + groups)
    if row_tiles and n and groups:
        kernel[(row_tiles, triton.cdiv(n, blocks["BLOCK_N"]))](
            x, w, offsets, out, groups, n, k, x.stride(0), w.stride(0), w.stride(1), out.stride(0),
            ADD=add, BLOCK_G=next_power_of_2(groups), **blocks, num_warps=grouped_gemm_warps(blocks), num_stages=3,
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.grouped_gemm:grouped_gemm")
def grouped_gemm(x: Tensor, w: Tensor, offsets: Tensor, out: Tensor | None = None, add: bool = False) -> Tensor:
    return launch_grouped_gemm(grouped_gemm_kernel, x, w, offsets, out, add)
