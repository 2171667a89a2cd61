"""Linear layer with int8 weights and one scale an output channel; x and the arithmetic stay 16 bits wide ("W8A16").

    out[m, n] = scale[n] · Σ_k x[m, k] · q[n, k]  (+ bias[n])

x [M, K] in bfloat16, float16 or float32; q [N, K] int8; scale [N] float32, bfloat16 or float16 (as minillm.quant.linear's
Int8Linear packs both); out [M, N] in x's dtype. An int8 is exact in each of these dtypes, so that the tensor cores multiply q as
it is; sums are float32, the scale comes once at the end, and there is one rounding, to x's dtype.

Two kernels. One row of x (decoding for one user) is a matrix-vector product: two operations for each byte of q, limited by
memory on every GPU, done without tensor cores. From two rows on, a tiled product (minillm.kernels.linear_tile), with tiles of 16
rows up to M = 16: 16 multiply-adds a weight are too many for the CUDA cores (H100: 33.5 T/s of them, at 3.35 TB/s 10 a byte).

Bytes, with s of x's dtype, one row: x is requested by each of the N / BLOCK_N programs, and answered by the caches: **N·K +
s·K·⌈N / BLOCK_N⌉ + t·N + s·N**, t bytes a scale. A tile, likewise: **⌈M / BLOCK_M⌉·(N·K + t·N) + ⌈N / BLOCK_N⌉·s·M·K + s·M·N**,
plus 8·S·M·N if K is split in S parts, when t·N counts S times. From memory: N·K, and little else, half of bfloat16's 2·N·K.

Source: Dettmers et al. 2022, "LLM.int8()", arXiv 2208.07339, section 2.1 (scales for each channel), without its int8
activations.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import FLOATS, check_last_dim_contiguous, check_shape, check_tensors, refuse_negative_strides
from minillm.kernels.linear_tile import (
    TileConfig,
    check_linear,
    new_output,
    parts_bytes,
    store_tile,
    sum_splits,
    tile_config,
    tile_of,
)
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

GEMV_BLOCK_N = 4
GEMV_BLOCK_K = 2048  # 4 × 2048 bytes by 128 threads: four 128-bit loads each in flight


@triton.jit
def w8a16_gemv_kernel(
    x_ptr,
    q_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    N,
    K,
    q_stride,
    HAS_BIAS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program, BLOCK_N output channels, one row of x."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    q_ptr += n.to(tl.int64)[:, None] * q_stride + k[None, :]
    # A sum for each place of the block, added up once after the loop: within it, no thread waits for another.
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = start + k < K
        # each weight is read once: let x, not the weights, stay in the cache
        q = tl.load(q_ptr + start, mask=inside[None, :] & (n < N)[:, None], other=0, eviction_policy="evict_first")
        x = tl.load(x_ptr + start + k, mask=inside, other=0.0)
        total += q.to(tl.float32) * x.to(tl.float32)[None, :]
    scale = tl.load(scale_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    out = tl.sum(total, axis=1) * scale
    if HAS_BIAS:
        out += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + n, out.to(out_ptr.dtype.element_ty), mask=n < N)


@triton.jit
def w8a16_gemm_kernel(
    x_ptr, q_ptr, scale_ptr, bias_ptr, out_ptr, M, N, K, x_stride, q_stride,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """One program, one tile of out, its part of K."""
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP=8)
    split = tl.program_id(1)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptr += m.to(tl.int64)[:, None] * x_stride + k[None, :]
    q_ptr += n.to(tl.int64)[:, None] * q_stride + k[None, :]
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K  # of a part; the last one may be shorter, or empty
    first = split * length
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for start in range(first, min(first + length, K), BLOCK_K):
        inside = (start + k < K)[None, :]
        q = tl.load(q_ptr + start, mask=inside & (n < N)[:, None], other=0)
        x = tl.load(x_ptr + start, mask=inside & (m < M)[:, None], other=0.0)
        acc = tl.dot(q.to(x.dtype), tl.trans(x), acc, input_precision="ieee")
    acc *= tl.load(scale_ptr + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    store_tile(out_ptr, bias_ptr, acc, m, n, M, N, split, HAS_BIAS)


def w8a16(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [M, K] (bfloat16, float16, float32) · (scale [N] · qweight [N, K] int8)ᵀ + bias [N] -> [M, N] in x's dtype.

    scale and bias in any of the three dtypes. TypeError, ValueError for what does not fit together.
    """
    check_tensors((torch.int8,), qweight=qweight)
    check_shape((None, None), qweight=qweight)
    out_features, in_features = qweight.shape
    check_tensors((*FLOATS, torch.int8), x=x, qweight=qweight, scale=scale)
    check_tensors(scale=scale)
    check_shape((out_features,), scale=scale)
    check_linear(x, bias, in_features, out_features)
    refuse_negative_strides(qweight=qweight, scale=scale)
    check_last_dim_contiguous(qweight=qweight, scale=scale)

    rows = x.shape[0]
    has_bias = bias is not None
    bias_or_any = bias if has_bias else scale  # a kernel's pointer must point somewhere
    if rows == 0 or out_features == 0:
        return x.new_empty(rows, out_features)
    if rows == 1:
        out = x.new_empty(1, out_features)
        grid = (triton.cdiv(out_features, GEMV_BLOCK_N),)
        w8a16_gemv_kernel[grid](
            x, qweight, scale, bias_or_any, out, out_features, in_features, qweight.stride(0),
            HAS_BIAS=has_bias, BLOCK_N=GEMV_BLOCK_N, BLOCK_K=gemv_block_k(in_features), num_warps=4,
        )  # fmt: skip
        return out
    tile = w8a16_tile(rows, out_features, in_features, x.dtype)
    out, target = new_output(x, out_features, tile.splits)
    grid = (triton.cdiv(rows, tile.block_m) * triton.cdiv(out_features, tile.block_n), tile.splits)
    w8a16_gemm_kernel[grid](
        x, qweight, scale, bias_or_any, target, rows, out_features, in_features, x.stride(0), qweight.stride(0),
        HAS_BIAS=has_bias and tile.splits == 1, BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k,
        SPLITS=tile.splits, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out if tile.splits == 1 else sum_splits(target, bias, out)


def gemv_block_k(in_features: int) -> int:
    return min(GEMV_BLOCK_K, next_power_of_2(in_features))


def w8a16_tile(rows: int, out_features: int, in_features: int, dtype: torch.dtype = torch.bfloat16) -> TileConfig:
    # x must fit the shared memory of an RTX card (99 KiB) two or three times
    return tile_config(rows, out_features, in_features, (256 if rows <= 64 else 128) // dtype.itemsize)


def w8a16_torch(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same in plain torch, in float32, rounded once."""
    out = (x.float() @ qweight.float().T) * scale.float()
    return (out if bias is None else out + bias.float()).to(x.dtype)


def w8a16_bytes(m: int, n: int, k: int, dtype: torch.dtype, scale_dtype: torch.dtype | None = None) -> int:
    """Bytes that w8a16 requests without a bias, as derived above; scale_dtype: dtype if None."""
    s, t = dtype.itemsize, (scale_dtype or dtype).itemsize
    if m == 1:
        return n * k + s * k * triton.cdiv(n, GEMV_BLOCK_N) + t * n + s * n
    tile = w8a16_tile(m, n, k, dtype)
    weights = triton.cdiv(m, tile.block_m) * (n * k + tile.splits * t * n)
    return weights + triton.cdiv(n, tile.block_n) * s * m * k + s * m * n + parts_bytes(tile.splits, m, n)


def _shipped(name: str, m: int, n: int, k: int, dtype: str) -> Shipped:
    pointers = dict.fromkeys(("x_ptr", "scale_ptr", "bias_ptr", "out_ptr"), f"*{dtype}") | {"q_ptr": "*i8"}
    integers = dict.fromkeys(("M", "N", "K", "x_stride", "q_stride"), "i32")
    aligned = ("x_ptr", "q_ptr", "scale_ptr", "bias_ptr", "out_ptr", "N", "K", "x_stride", "q_stride")
    if m == 1:
        signature = pointers | {name: integers[name] for name in ("N", "K", "q_stride")}
        constexprs = {"HAS_BIAS": False, "BLOCK_N": GEMV_BLOCK_N, "BLOCK_K": gemv_block_k(k)}
        aligned = tuple(name for name in aligned if name in signature)
        return Shipped(name, "minillm.kernels.w8a16:w8a16_gemv_kernel", signature, constexprs, aligned)
    tile = w8a16_tile(m, n, k)
    constexprs = {
        "HAS_BIAS": False, "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "SPLITS": tile.splits,
    }  # fmt: skip
    signature = pointers | integers | ({"out_ptr": "*fp32"} if tile.splits > 1 else {})
    return Shipped(
        name,
        "minillm.kernels.w8a16:w8a16_gemm_kernel",
        signature,
        constexprs,
        aligned,
        tile.num_warps,
        tile.num_stages,
        has_dot=True,
    )


SHIPPED = (
    _shipped("w8a16.gemv.bf16.4096", 1, 4096, 4096, "bf16"),
    _shipped("w8a16.tile16.bf16.4096", 16, 4096, 4096, "bf16"),
    _shipped("w8a16.tile128.bf16.4096", 512, 4096, 4096, "bf16"),
    _shipped("w8a16.gemv.fp16.576", 1, 576, 576, "fp16"),
)
