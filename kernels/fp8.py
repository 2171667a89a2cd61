"""The matrix product of two matrices of 8-bit floats.

    out[m, n] = a_scale[m] · b_scale[n] · Σ_k a[m, k] · b[n, k]

a [M, K], b [N, K] in float8_e4m3fn or float8_e5m2 (minillm.kernels.fp8_quantize), their scales float32, one for each row or [1]
for all; sums in float32; out [M, N] in bfloat16, float16 or float32. Needs tensor cores for float8: compute capability 8.9 (RTX
40, L4) or higher. Those of Ada and Hopper keep 13 fraction bits of their "float32" sums (DeepSeek-V3, section 3.3.2;
SageAttention2); so after each 128 inputs their sum is added to a true one, outside of them.

Bytes, as of any tiled product: **⌈N / BLOCK_N⌉·M·K + ⌈M / BLOCK_M⌉·N·K + s·M·N**, s of out's dtype, and the scales of each
tile's rows and columns, 4·(⌈N / BLOCK_N⌉·M + ⌈M / BLOCK_M⌉·N); plus 8·S·M·N if K is split in S parts, when the scales count S
times.

Sources: Micikevicius et al. 2022, "FP8 Formats for Deep Learning", arXiv 2209.05433; DeepSeek-AI 2024, "DeepSeek-V3", arXiv
2412.19437; Zhang et al. 2024, "SageAttention2", arXiv 2411.10958.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from minillm.kernels.checks import (
    FLOATS,
    check_last_dim_contiguous,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    require,
)
from minillm.kernels.fp8_quantize import FORMATS, has_e4m3
from minillm.kernels.linear_tile import TileConfig, parts_bytes, store_tile, sum_splits, tile_config, tile_of
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def fp8_gemm_kernel(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, out_ptr, M, N, K, a_stride, b_stride,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """One program, one tile of out, transposed (see linear_tile), its part of K."""
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP=8)
    split = tl.program_id(1)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptr += m.to(tl.int64)[:, None] * a_stride + k[None, :]
    b_ptr += n.to(tl.int64)[:, None] * b_stride + k[None, :]
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    first = split * length
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for start in range(first, min(first + length, K), BLOCK_K):
        inside = (start + k < K)[None, :]
        b = tl.load(b_ptr + start, mask=inside & (n < N)[:, None], other=0.0)
        a = tl.load(a_ptr + start, mask=inside & (m < M)[:, None], other=0.0)
        # Not tl.dot(…, acc): a sum of BLOCK_K products each, added here. The limit keeps the compiler from merging the two again.
        acc += tl.dot(b, tl.trans(a), max_num_imprecise_acc=BLOCK_K)
    a_scale = tl.load(a_scale_ptr + m * A_ROWS, mask=m < M, other=0.0)  # without ROWS, all read the one there is
    b_scale = tl.load(b_scale_ptr + n * B_ROWS, mask=n < N, other=0.0)
    acc = acc * a_scale[None, :] * b_scale[:, None]
    store_tile(out_ptr, out_ptr, acc, m, n, M, N, split, HAS_BIAS=False)


def fp8_gemm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """(a_scale · a [M, K]) · (b_scale · b [N, K])ᵀ -> [M, N] of out_dtype.

    a, b: float8, of either format each; their scales float32, [M] and [N], or [1].
    """
    check_tensors(FORMATS, a=a, b=b)
    check_shape((None, None), a=a)
    (rows, length), columns = a.shape, b.shape[0]
    check_shape((columns, length), b=b)
    check_tensors((*FORMATS, torch.float32), a=a, a_scale=a_scale, b_scale=b_scale)
    check_tensors((torch.float32,), a_scale=a_scale, b_scale=b_scale)
    if out_dtype not in FLOATS:
        raise TypeError(f"out_dtype is {out_dtype}; this kernel writes bfloat16, float16, float32")
    for name, scale, size in (("a_scale", a_scale, rows), ("b_scale", b_scale, columns)):
        require(scale.shape in ((size,), (1,)), f"{name} has shape {list(scale.shape)}; [{size}] or [1] is needed")
    refuse_negative_strides(a=a, b=b)
    check_last_dim_contiguous(a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    require(
        has_e4m3(a.device),
        "this GPU has no tensor cores for float8 (compute capability 8.9 is needed): use w8a16",
    )
    out = torch.empty(rows, columns, dtype=out_dtype, device=a.device)
    if out.numel() == 0:
        return out
    tile = fp8_tile(rows, columns, length)
    target = out if tile.splits == 1 else out.new_empty(tile.splits, rows, columns, dtype=torch.float32)
    grid = (triton.cdiv(rows, tile.block_m) * triton.cdiv(columns, tile.block_n), tile.splits)
    fp8_gemm_kernel[grid](
        a, b, a_scale, b_scale, target, rows, columns, length, a.stride(0), b.stride(0),
        A_ROWS=a_scale.numel() > 1, B_ROWS=b_scale.numel() > 1, BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k,
        SPLITS=tile.splits, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out if tile.splits == 1 else sum_splits(target, None, out)


def fp8_tile(rows: int, columns: int, length: int) -> TileConfig:
    tile = tile_config(rows, columns, length, block_k=128)
    return replace(tile, num_stages=max(3, tile.num_stages))  # operands of half the size: one more step in flight fits


def fp8_gemm_torch(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The same in plain torch, in float32, rounded once."""
    return ((a.float() @ b.float().T) * a_scale[:, None] * b_scale).to(out_dtype)


def fp8_gemm_bytes(m: int, n: int, k: int, out_dtype: torch.dtype = torch.bfloat16) -> int:
    """Bytes that fp8_gemm requests with a scale for each row of a and b."""
    tile = fp8_tile(m, n, k)
    tiles_m, tiles_n = triton.cdiv(m, tile.block_m), triton.cdiv(n, tile.block_n)
    operands = tiles_n * m * k + tiles_m * n * k + 4 * tile.splits * (tiles_n * m + tiles_m * n)
    return operands + out_dtype.itemsize * m * n + parts_bytes(tile.splits, m, n)


def _shipped(name: str, m: int, n: int, k: int) -> Shipped:
    tile = fp8_tile(m, n, k)
    signature = dict.fromkeys(("a_ptr", "b_ptr"), "*fp8e4nv") | dict.fromkeys(("a_scale_ptr", "b_scale_ptr"), "*fp32")
    signature["out_ptr"] = "*bf16" if tile.splits == 1 else "*fp32"
    signature |= dict.fromkeys(("M", "N", "K", "a_stride", "b_stride"), "i32")
    constexprs = {
        "A_ROWS": True, "B_ROWS": True, "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k,
        "SPLITS": tile.splits,
    }  # fmt: skip
    aligned = tuple(argument for argument in signature if argument != "M")
    return Shipped(
        name, "minillm.kernels.fp8:fp8_gemm_kernel", signature, constexprs, aligned, tile.num_warps, tile.num_stages,
        has_dot=True, min_sm=89,
    )  # fmt: skip


SHIPPED = (
    _shipped("fp8_gemm.tile16.4096", 16, 4096, 4096),
    _shipped("fp8_gemm.tile128.4096", 512, 4096, 4096),
)
