"""Matrix product for the few rows of a decode step: limited by reading the weight, once.

    out[m, n] = Σ_k x[m, k] · W[n, k] + bias[n],        M = 1 … 16

x [M, K], W [N, K], bias [N], out [M, N]; one dtype: bfloat16, float16 or float32. Sums in float32, rounded once, after the bias.

Bytes, elements of s bytes: every weight is asked for once, **N·K·s**, with out M·N·s (where N is no multiple of BLOCK_N, the
last program asks for the last row in place of those that do not exist). Each of the ⌈N/BLOCK_N⌉ programs also asks for x,
M·K·s, which the L2 cache answers. At 2·M·N·K operations this is M FLOPs a byte in 16 bits, far below any GPU's ridge. So
nothing counts but loads in flight. One row: products of a strip of W with x are kept per thread and added up once, at the end.
Two rows and more: tensor cores, with x padded to the 16 rows that their smallest tile has anyway; the weight arrives through a
pipeline of asynchronous copies. The two add in a different order, so a row's last bits may depend on whether it is alone.

Split-K: where N gives too few programs for the GPU, the sum over K is cut into S parts. Each writes float32 [S, M, N], and a
second kernel adds the parts from first to last: no atomics, the same bits every time. **8·S·M·N** bytes more.

Source: split-K as in Osama et al. 2023, "Stream-K", arXiv 2301.03598, section 3 (fixed-split), with the ordered sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    require,
    rows_fit_int32,
)
from minillm.kernels.linear_tile import sum_splits
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

MAX_ROWS = 16


@triton.jit
def gemv_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, N, K, w_stride, part,
    HAS_BIAS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One row of x. Program (BLOCK_N outputs, split): `part` of the K products of each, written to out [SPLITS, N]."""
    first_n = tl.program_id(0) * BLOCK_N
    split = tl.program_id(1)
    n, k = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    # A row that does not exist is replaced by the last, whose result is not stored twice.
    w_ptr += first_n.to(tl.int64) * w_stride + tl.minimum(n, N - 1 - first_n)[:, None] * w_stride
    products = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    end = min(K, (split + 1) * part)
    for start in range(split * part, end, BLOCK_K):
        inside = start + k < end
        x = tl.load(x_ptr + start + k, mask=inside, other=0.0).to(tl.float32)
        # The weight passes through once: it must not drive x out of the cache.
        w = tl.load(w_ptr + start + k[None, :], mask=inside[None, :], other=0.0, eviction_policy="evict_first").to(tl.float32)
        products += w * x[None, :]
    y = tl.sum(products, axis=1)
    if HAS_BIAS:
        y += tl.load(bias_ptr + first_n + n, mask=first_n + n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + split * N + first_n + n, y.to(out_ptr.dtype.element_ty), mask=first_n + n < N)


@triton.jit
def gemv_rows_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, part,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Up to BLOCK_M = 16 rows of x. Program (BLOCK_N outputs, split), written to out [SPLITS, M, N]."""
    first_n = tl.program_id(0) * BLOCK_N
    split = tl.program_id(1)
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    w_ptr += first_n.to(tl.int64) * w_stride
    w_at = w_ptr + tl.minimum(n, N - 1 - first_n)[None, :] * w_stride + k[:, None]
    x_at = x_ptr + m[:, None] * x_stride + k[None, :]
    tile = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    end = min(K, (split + 1) * part)
    for start in range(split * part, end, BLOCK_K):
        inside = start + k < end
        x = tl.load(x_at + start, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        w = tl.load(w_at + start, mask=inside[:, None], other=0.0, eviction_policy="evict_first")
        tile = tl.dot(x, w, tile, input_precision="ieee")
    if HAS_BIAS:
        tile += tl.load(bias_ptr + first_n + n, mask=first_n + n < N, other=0.0).to(tl.float32)[None, :]
    out_at = out_ptr + (split * M + m)[:, None] * N + (first_n + n)[None, :]
    tl.store(out_at, tile.to(out_ptr.dtype.element_ty), mask=(m < M)[:, None] & (first_n + n < N)[None, :])


@dataclass(frozen=True)
class GemvConfig:
    """How a product is cut into programs: ceil(N / block_n) · splits of them."""

    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int


@cache
def gemv_config(m: int, n: int, k: int, processors: int = 132) -> GemvConfig:
    """For x [m, k] and W [n, k] on a GPU of so many multiprocessors (132: H100).

    High strips of W ask for x less often, low ones give more programs. One row: as high as leaves four programs for each
    multiprocessor, so that enough loads are in flight. More rows: the pipeline sees to that, and about one each will do.
    Split-K only where even the lowest strips leave multiprocessors idle, since it costs a second launch.
    """
    if m == 1:
        block_n, num_warps, num_stages = 16, 4, 3
        while block_n > 2 and triton.cdiv(n, block_n) < 4 * processors:
            block_n //= 2
        block_k = min(next_power_of_2(k), 4096 // block_n)  # 32 sums a thread: with more, registers would leave few programs
    else:
        block_n, block_k, num_warps, num_stages = 64, 128, 4, 4
        while block_n > 16 and 4 * triton.cdiv(n, block_n) < 3 * processors:
            block_n //= 2
        if block_n == 16:  # two of the tensor cores' smallest tiles: no work for more warps
            block_k, num_warps = 256, 2
    splits = 1
    while 4 * triton.cdiv(n, block_n) * splits < 3 * processors and k >= 2 * splits * 2 * block_k:
        splits *= 2  # at least two turns of the loop in each part
    return GemvConfig(block_n, block_k, splits, num_warps, num_stages)


def gemv(x: Tensor, w: Tensor, bias: Tensor | None = None, config: GemvConfig | None = None) -> Tensor:
    """x · Wᵀ + bias for few rows. x [M, K] with M ≤ 16, w [N, K], bias [N]; returns [M, N]. config: gemv_config's if left out."""
    tensors = {"x": x, "w": w} | ({} if bias is None else {"bias": bias})
    check_tensors(**tensors)
    check_same_dtype(**tensors)
    check_shape((None, None), x=x)
    m, k = x.shape
    require(m <= MAX_ROWS, f"x has {m} rows, this kernel takes up to {MAX_ROWS}: use minillm.kernels.gemm")
    check_shape((None, k), w=w)
    n = w.shape[0]
    if bias is not None:
        check_shape((n,), bias=bias)
    refuse_negative_strides(**tensors)
    check_last_dim_contiguous(**tensors)
    rows_fit_int32(64, x=x, w=w)
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if m == 0 or n == 0:
        return out
    config = config or gemv_config(m, n, k, _processors(x.device))
    splits = config.splits
    require(splits * m * n < 2**31, f"{splits} splits of {m} × {n} sums pass 2**31: use fewer")
    parts = out if splits == 1 else torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(n, config.block_n), splits)
    part = triton.cdiv(triton.cdiv(k, splits), config.block_k) * config.block_k  # whole blocks; the last parts may be empty
    blocks = {"BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    launch = {"num_warps": config.num_warps, "num_stages": config.num_stages, "HAS_BIAS": bias is not None and splits == 1}
    if m == 1:
        gemv_kernel[grid](x, w, bias, parts, n, k, w.stride(0), part, **blocks, **launch)
    else:
        gemv_rows_kernel[grid](x, w, bias, parts, m, n, k, x.stride(0), w.stride(0), part, BLOCK_M=MAX_ROWS, **blocks, **launch)
    return out if splits == 1 else sum_splits(parts, bias, out)


@cache
def _processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; an H100's on the CPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


def gemv_torch(x: Tensor, w: Tensor, bias: Tensor | None = None, config: GemvConfig | None = None) -> Tensor:
    """The same in plain torch."""
    y = x.float() @ w.float().T
    return (y if bias is None else y + bias.float()).to(x.dtype)


def gemv_bytes(m: int, n: int, k: int, dtype: torch.dtype, splits: int = 1) -> int:
    """Bytes that must cross HBM, without bias: W, x and out once, and the parts out and in again."""
    return (n * k + m * k + m * n) * dtype.itemsize + (8 * splits * m * n if splits > 1 else 0)


def _shipped(name: str, m: int, n: int, k: int, pointer: str) -> Shipped:
    config = gemv_config(m, n, k)
    pointers, numbers = ("x_ptr", "w_ptr", "out_ptr"), ("N", "K", "w_stride", "part")
    blocks = {"BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    if m > 1:
        numbers, blocks = (*numbers, "x_stride"), blocks | {"BLOCK_M": MAX_ROWS}
    return Shipped(
        name=name,
        kernel=f"minillm.kernels.gemv:{'gemv_kernel' if m == 1 else 'gemv_rows_kernel'}",
        signature=dict.fromkeys(pointers, pointer) | dict.fromkeys(numbers, "i32") | ({"M": "i32"} if m > 1 else {}),
        constexprs={"bias_ptr": None, "HAS_BIAS": False, **blocks},
        aligned=(*pointers, *numbers),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        has_dot=m > 1,
    )


SHIPPED = (
    _shipped("gemv.bf16.1x4096x4096", 1, 4096, 4096, "*bf16"),
    _shipped("gemv.fp16.1x4096x4096", 1, 4096, 4096, "*fp16"),
    _shipped("gemv.bf16.16x4096x4096", 16, 4096, 4096, "*bf16"),
    _shipped("gemv.bf16.16x1024x4096", 16, 1024, 4096, "*bf16"),
)
