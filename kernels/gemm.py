"""Matrix product of activations and a weight as checkpoints store it, tile by tile.

    out[m, n] = Σ_k x[m, k] · W[n, k] + bias[n]

x [M, K], W [N, K], bias [N], out [M, N]; one dtype: bfloat16 or float16 on tensor cores, or float32 with full precision, without
them. Sums in float32, rounded once, after the bias; a sum beyond float16's 65,504 becomes infinite.

Bytes, elements of s bytes, tiles of BLOCK_M × BLOCK_N: the tile's program asks for BLOCK_M rows of x and BLOCK_N rows of W, so
all programs for **⌈M/BLOCK_M⌉ · ⌈N/BLOCK_N⌉ · (BLOCK_M + BLOCK_N) · K · s**, and M·N·s are written. For M = N = K = n and
square tiles of t this is 2·n³·s/t (8·n³/t in float32): a tile twice as large halves it. At the edge, rows that do not exist
are replaced by the last one, so that the loop needs no mask: they are asked for, and their results are not stored. HBM
delivers at least (M·K + N·K)·s; how much more depends on what the L2 cache still holds. So programs do not walk along whole
rows of tiles: GROUP_M rows of tiles go along the columns together (tile_of), and for each strip of W that is fetched GROUP_M
tiles are computed.

Block sizes: `triton.autotune` measures CONFIGS at the first call for each (N, K) and power of two of M, and keeps the result on
disk. Call each shape once before a CUDA graph is captured: nothing can be measured during a capture. The interpreter takes
`default_config`, and so does float32, for whose tiles of twice the bytes CONFIGS leave neither registers nor shared memory.

Source: Tillet, Kung & Cox 2019, "Triton: an intermediate language and compiler for tiled neural network computations", section 6.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    refuse_overlap,
    rows_fit_int32,
)
from minillm.kernels.linear_tile import tile_of
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import INTERPRETED, tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

LARGEST_BLOCK_K = 64  # every BLOCK_K divides it


@triton.jit(do_not_specialize=["m_bucket"])
def gemm_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, out_stride, m_bucket,
    HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program, one tile [BLOCK_M, BLOCK_N] of out. m_bucket is only the autotuner's."""
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    first_m, first_n = tile_m * BLOCK_M, tile_n * BLOCK_N
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    # The tile's origin in 64 bits, since it may lie beyond 2³¹; offsets within the tile in 32.
    x_ptr += first_m.to(tl.int64) * x_stride
    w_ptr += first_n.to(tl.int64) * w_stride
    x_at = x_ptr + tl.minimum(m, M - 1 - first_m)[:, None] * x_stride + k[None, :]
    w_at = w_ptr + tl.minimum(n, N - 1 - first_n)[None, :] * w_stride + k[:, None]

    tile = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            x, w = tl.load(x_at), tl.load(w_at)
        else:
            x = tl.load(x_at, mask=k[None, :] < K - start, other=0.0)
            w = tl.load(w_at, mask=k[:, None] < K - start, other=0.0)
        tile = tl.dot(x, w, tile, input_precision="ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K

    if HAS_BIAS:
        tile += tl.load(bias_ptr + first_n + n, mask=first_n + n < N, other=0.0).to(tl.float32)[None, :]
    out_at = out_ptr + first_m.to(tl.int64) * out_stride + first_n + m[:, None] * out_stride + n[None, :]
    inside = (first_m + m < M)[:, None] & (first_n + n < N)[None, :]
    tl.store(out_at, tile.to(out_ptr.dtype.element_ty), mask=inside)


def _config(block_m: int, block_n: int, block_k: int, num_warps: int, num_stages: int) -> triton.Config:
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


# Tiles in flight take (num_stages - 1) · (BLOCK_M + BLOCK_N) · BLOCK_K elements of shared memory, on Hopper num_stages times that
# sum: in 16 bits 96 KiB at most, of the 99 KiB that a program may have on RTX 30, RTX 40 and L4, and 144 KiB of an H100's 227.
CONFIGS = (
    _config(128, 256, 64, 8, 3),
    _config(256, 128, 64, 8, 3),
    _config(128, 128, 64, 8, 3),
    _config(128, 128, 32, 4, 4),
    _config(128, 64, 64, 4, 3),
    _config(64, 128, 64, 4, 3),
    _config(64, 64, 64, 4, 4),
    _config(32, 64, 64, 4, 5),
    _config(16, 64, 64, 4, 5),
)
_tuned = triton.autotune(list(CONFIGS), key=["m_bucket", "N", "K", "HAS_BIAS"], cache_results=True)(gemm_kernel)


def default_config(m: int, dtype: torch.dtype = torch.bfloat16) -> triton.Config:
    """A configuration that fits every GPU from RTX 30 on and suits m rows, for where nothing can be measured."""
    if dtype == torch.float32:  # no tensor cores: the tile and its operands compete for registers
        return _config(max(16, min(64, next_power_of_2(m))), 64, 32, 4, 3)
    if m <= 64:
        return _config(max(16, next_power_of_2(m)), 64, 64, 4, 4)
    return _config(128, 128, 64, 8, 3)


def gemm(
    x: Tensor, w: Tensor, bias: Tensor | None = None, out: Tensor | None = None, config: triton.Config | None = None
) -> Tensor:
    """x · Wᵀ + bias. x [M, K], w [N, K], bias [N]; returns [M, N], in `out` if given.

    config: block sizes as in CONFIGS, with a power of two up to 64 as BLOCK_K; chosen by measurement if left out. For up to 16
    rows, minillm.kernels.gemv is made for them.
    """
    check_tensors(x=x, w=w)
    check_shape((None, None), x=x)
    m, k = x.shape
    check_shape((None, k), w=w)
    n = w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device) if out is None else out
    tensors = {"x": x, "w": w, "out": out} | ({} if bias is None else {"bias": bias})
    check_tensors(**tensors)
    check_same_dtype(**tensors)
    check_shape((m, n), out=out)
    if bias is not None:
        check_shape((n,), bias=bias)
    refuse_negative_strides(**tensors)
    check_last_dim_contiguous(**tensors)
    refuse_overlap(out=out)
    rows_fit_int32(256, x=x, w=w, out=out)
    if m == 0 or n == 0:
        return out
    if config is None and (INTERPRETED or x.dtype == torch.float32):
        config = default_config(m, x.dtype)
    arguments = (x, w, bias, out, m, n, k, x.stride(0), w.stride(0), out.stride(0), next_power_of_2(m))
    flags = {"HAS_BIAS": bias is not None, "EVEN_K": k % LARGEST_BLOCK_K == 0}
    if config is None:
        _tuned[lambda meta: (_programs(m, n, meta),)](*arguments, **flags)
    else:
        chosen = dict(config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages)
        gemm_kernel[(_programs(m, n, config.kwargs),)](*arguments, **flags, **chosen)
    return out


def _programs(m: int, n: int, blocks: dict[str, int]) -> int:
    return triton.cdiv(m, blocks["BLOCK_M"]) * triton.cdiv(n, blocks["BLOCK_N"])


def gemm_torch(
    x: Tensor, w: Tensor, bias: Tensor | None = None, out: Tensor | None = None, config: triton.Config | None = None
) -> Tensor:
    """The same in plain torch."""
    y = x.float() @ w.float().T
    y = (y if bias is None else y + bias.float()).to(x.dtype)
    return y if out is None else out.copy_(y)


def gemm_bytes(m: int, n: int, k: int, dtype: torch.dtype, block_m: int, block_n: int) -> int:
    """Bytes that the programs ask for and write, without bias. A tile of (m, n) gives what HBM must move at least."""
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    return (tiles * (block_m + block_n) * k + m * n) * dtype.itemsize


def _shipped(name: str, pointer: str, config: triton.Config) -> Shipped:
    pointers, numbers = ("x_ptr", "w_ptr", "out_ptr"), ("N", "K", "x_stride", "w_stride", "out_stride")
    return Shipped(
        name=name,
        kernel="minillm.kernels.gemm:gemm_kernel",
        signature=dict.fromkeys(pointers, pointer) | dict.fromkeys(("M", *numbers, "m_bucket"), "i32"),
        constexprs={"bias_ptr": None, "HAS_BIAS": False, "EVEN_K": True, **config.kwargs},
        aligned=(*pointers, *numbers),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        has_dot=True,
    )


SHIPPED = (
    _shipped("gemm.bf16.128x128", "*bf16", default_config(4096)),
    _shipped("gemm.fp16.128x128", "*fp16", default_config(4096)),
    _shipped("gemm.bf16.64x64", "*bf16", default_config(64)),
)
