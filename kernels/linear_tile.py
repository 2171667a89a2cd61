"""What the matrix products with quantised weights share: the order of their tiles, the epilogue, and split-K.

They compute the tile of out = x · Wᵀ transposed, [BLOCK_N, BLOCK_M]: W stands left in tl.dot. Hopper's tensor cores multiply 64
rows at least, and while decoding x has fewer; the output channels are always enough. And the left operand may come from
registers there, where a quantised weight has just been converted, while the right one must lie in shared memory. (On sm_90,
Triton copies such a weight to shared memory 64 bits a thread at a time, on other GPUs 128: of the same sectors, in twice the
instructions.)

Split-K: with few rows, the tiles of one matrix do not fill a GPU. So each tile's sum over K is cut into S parts, one program
each, which write float32 [S, M, N] for a second kernel to add, always in the same order: no atomics, the same bits every time.
This costs 4·S·M·N bytes written and read once more; for M ≤ 64 rows that is little beside the N·K weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from minillm.kernels.checks import check_last_dim_contiguous, check_shape, check_tensors, refuse_negative_strides
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

PROGRAMS = 256  # about two for each multiprocessor of the large GPUs (H100: 132, RTX 4090: 128, A100: 108)


@dataclass(frozen=True)
class TileConfig:
    """How a launcher cuts a product into programs."""

    block_m: int
    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int


def tile_config(m: int, n: int, k: int, block_k: int) -> TileConfig:
    """The tile for x [m, k] and W [n, k]. block_k: of the small tiles, a power of two; the large tile takes 64 if it can."""
    if m <= 64:
        block_m, block_n, warps, stages = max(16, next_power_of_2(m)), 64, 4, 4 if m <= 16 else 3
        tiles, steps = triton.cdiv(n, block_n), triton.cdiv(k, block_k)
        # a part shorter than four steps would be over before its pipeline of loads has filled
        splits = max(1, min(PROGRAMS // tiles, steps // 4))
        splits = 1 << (splits.bit_length() - 1)
        return TileConfig(block_m, block_n, block_k, splits, warps, stages)
    return TileConfig(128, 128, block_k, 1, 8, 3 if block_k <= 64 else 2)


@triton.jit
def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    """(row tile, column tile) of a program. GROUP row tiles walk along the columns together: a strip of W is fetched once for
    all of them, and their own rows of x stay in the L2 cache meanwhile."""
    strip = program // (GROUP * tiles_n)
    height = min(tiles_m - strip * GROUP, GROUP)
    place = program % (GROUP * tiles_n)
    return strip * GROUP + place % height, place // height


@triton.jit
def store_tile(out_ptr, bias_ptr, tile, m, n, M, N, split, HAS_BIAS: tl.constexpr):
    """tile [BLOCK_N, BLOCK_M] float32 into out [M, N], or into part `split` of [S, M, N]. m, n: the tile's indices."""
    if HAS_BIAS:
        tile += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    row = split.to(tl.int64) * M + m
    place = out_ptr + row[None, :] * N + n[:, None]
    tl.store(place, tile.to(out_ptr.dtype.element_ty), mask=(m < M)[None, :] & (n < N)[:, None])


@triton.jit
def sum_splits_kernel(parts_ptr, bias_ptr, out_ptr, N, size, SPLITS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """out [M·N] = the sum of parts [SPLITS, M·N], from the first to the last, plus bias [N]. size = M·N."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts_ptr + split * size + i, mask=inside, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias_ptr + i % N, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, total.to(out_ptr.dtype.element_ty), mask=inside)


def sum_splits(parts: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """parts [S, M, N] float32, bias [N] or None -> out [M, N]."""
    size, block = out.numel(), 1024
    sum_splits_kernel[(triton.cdiv(size, block),)](
        parts,
        parts if bias is None else bias,
        out,
        out.shape[1],
        size,
        SPLITS=parts.shape[0],
        HAS_BIAS=bias is not None,
        BLOCK=block,
    )
    return out


def check_linear(x: Tensor, bias: Tensor | None, in_features: int, out_features: int) -> None:
    """x [M, in_features] and bias [out_features], of one of three dtypes, on one device, x's rows contiguous."""
    tensors = {"x": x} if bias is None else {"x": x, "bias": bias}
    check_tensors(**tensors)
    check_shape((None, in_features), x=x)
    if bias is not None:
        check_shape((out_features,), bias=bias)
    refuse_negative_strides(**tensors)
    check_last_dim_contiguous(**tensors)


def parts_bytes(splits: int, m: int, n: int) -> int:
    """Bytes that split-K adds: each part written and read once, as float32."""
    return 0 if splits == 1 else 2 * 4 * splits * m * n


def new_output(x: Tensor, out_features: int, splits: int) -> tuple[Tensor, Tensor]:
    """(out [M, N] in x's dtype, what the product's kernel writes: out itself, or parts [S, M, N])."""
    out = torch.empty(x.shape[0], out_features, dtype=x.dtype, device=x.device)
    if splits == 1:
        return out, out
    return out, torch.empty(splits, *out.shape, dtype=torch.float32, device=x.device)
