"""One matrix product for each group of rows, all in one launch: the experts of a mixture, or the LoRA adapters of a batch.

    out[t, n] = Σ_k x[t, k] · W[g, n, k]        for offsets[g] ≤ t < offsets[g + 1]

x [T, K], rows sorted by group; W [G, N, K]; offsets [G + 1] int32 or int64, ascending, on the GPU; out [T, N]. One dtype:
bfloat16, float16 or float32; sums in float32, rounded once. Groups may be empty, and rows before offsets[0] or from offsets[G]
on belong to none: tokens without an adapter.

How many tiles each group has is known only on the GPU, and the launch must not wait for it (nor can a captured graph). So the
grid is as large as any offsets can need: T rows in G groups make at most ⌈T/BLOCK_M⌉ + G row tiles, and at most T. Each
program counts the tiles of all groups, finds its own, or finds none and ends.

Bytes, elements of s bytes, the groups having τ = Σ ⌈rows/BLOCK_M⌉ row tiles together: **τ · ⌈N/BLOCK_N⌉ · (BLOCK_M + BLOCK_N)
· K · s** asked for, R·N·s written for the R rows that have a group, and offsets by each program. HBM delivers the weights of
every group that has rows, N·K·s, at least once: at few rows a group, this is all that counts. Programs with the same columns
follow one another, so the row tiles of a group share its weights through the L2 cache.

Sources: Gale et al. 2022, "MegaBlocks", arXiv 2211.15841; Chen et al. 2023, "Punica", arXiv 2310.18547 (the adapters' case).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minillm.kernels.checks import (
    INDICES,
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    refuse_overlap,
    require,
    rows_fit_int32,
)
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def grouped_gemm_kernel(
    x_ptr, w_ptr, offsets_ptr, out_ptr, G, N, K, x_stride, w_group_stride, w_stride, out_stride,
    ADD: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (row tile, column tile)."""
    program = tl.program_id(0)
    g = tl.arange(0, BLOCK_G)
    begin = tl.load(offsets_ptr + g, mask=g < G, other=0)
    rows = tl.load(offsets_ptr + 1 + g, mask=g < G, other=0) - begin
    tiles = ((rows + BLOCK_M - 1) // BLOCK_M).to(tl.int32)
    past = tl.cumsum(tiles, axis=0)  # tiles of all groups up to and including g
    group = tl.sum((past <= program).to(tl.int32), axis=0)
    if group < G:
        mine = g == group
        first_m = tl.sum(tl.where(mine, begin.to(tl.int64) + (program - past + tiles) * BLOCK_M, 0), axis=0)
        end_m = tl.sum(tl.where(mine, (begin + rows).to(tl.int64), 0), axis=0)
        height = (end_m - first_m).to(tl.int32)  # rows left in the group: BLOCK_M of them or fewer are this tile's
        first_n = tl.program_id(1) * BLOCK_N
        m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
        # Rows and columns that do not exist are replaced by the last one, so that the loop needs no mask for them.
        x_at = x_ptr + first_m * x_stride + tl.minimum(m, height - 1)[:, None] * x_stride + k[None, :]
        w_ptr += group.to(tl.int64) * w_group_stride + first_n.to(tl.int64) * w_stride
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
        out_at = out_ptr + first_m * out_stride + m[:, None] * out_stride + first_n + n[None, :]
        inside = (m < height)[:, None] & (first_n + n < N)[None, :]
        if ADD:
            tile += tl.load(out_at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_at, tile.to(out_ptr.dtype.element_ty), mask=inside)


def grouped_gemm(x: Tensor, w: Tensor, offsets: Tensor, out: Tensor | None = None, add: bool = False) -> Tensor:
    """Rows offsets[g] to offsets[g + 1] of x times w[g], transposed. x [T, K], w [G, N, K], offsets [G + 1]; returns [T, N].

    In `out` if given, where rows without a group stay as they are; they are 0 in a new one. With add=True the products are added
    to what `out` holds, before the one rounding: base weights' outputs, plus LoRA. Offsets out of order or beyond T are not
    noticed (a check would wait for the GPU).
    """
    require(out is not None or not add, "add=True adds to out, which was not given")
    check_tensors(x=x, w=w)
    check_tensors(INDICES, offsets=offsets)
    check_shape((None, None), x=x)
    rows, k = x.shape
    check_shape((None, None, k), w=w)
    groups, n = w.shape[:2]
    require(groups <= 4096, f"{groups} groups; a program counts at most 4096: split the weights")
    check_shape((groups + 1,), offsets=offsets)
    require(offsets.device == x.device, f"offsets is on {offsets.device}, x on {x.device}: move them to one device")
    out = torch.zeros(rows, n, dtype=x.dtype, device=x.device) if out is None else out
    check_tensors(x=x, w=w, out=out)
    check_same_dtype(x=x, w=w, out=out)
    check_shape((rows, n), out=out)
    refuse_negative_strides(x=x, w=w, out=out, offsets=offsets)
    check_last_dim_contiguous(x=x, w=w, out=out, offsets=offsets)
    refuse_overlap(out=out)
    blocks = grouped_gemm_blocks(rows, groups)
    rows_fit_int32(blocks["BLOCK_M"], x=x, out=out)
    rows_fit_int32(blocks["BLOCK_N"], 1, w=w)
    row_tiles = min(rows, triton.cdiv(rows, blocks["BLOCK_M"]) + groups)
    if row_tiles == 0 or n == 0 or groups == 0:
        return out
    grouped_gemm_kernel[(row_tiles, triton.cdiv(n, blocks["BLOCK_N"]))](
        x, w, offsets, out, groups, n, k, x.stride(0), w.stride(0), w.stride(1), out.stride(0),
        ADD=add, EVEN_K=k % blocks["BLOCK_K"] == 0, BLOCK_G=next_power_of_2(groups), **blocks,
        num_warps=grouped_gemm_warps(blocks), num_stages=3,
    )  # fmt: skip
    return out


def grouped_gemm_blocks(rows: int, groups: int) -> dict[str, int]:
    """Block sizes for so many rows: a tile about as high as the average group, 16 to 128 rows."""
    height = max(16, min(128, next_power_of_2(triton.cdiv(rows, max(1, groups)))))
    return {"BLOCK_M": height, "BLOCK_N": 128 if height == 128 else 64, "BLOCK_K": 64}


def grouped_gemm_warps(blocks: dict[str, int]) -> int:
    return 8 if blocks["BLOCK_M"] == 128 else 4


def grouped_gemm_torch(x: Tensor, w: Tensor, offsets: Tensor, out: Tensor | None = None, add: bool = False) -> Tensor:
    """The same in plain torch."""
    out = x.new_zeros(x.shape[0], w.shape[1]) if out is None else out
    for g, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        y = x[begin:end].float() @ w[g].float().T
        out[begin:end] = (y + out[begin:end].float() if add else y).to(x.dtype)
    return out


def grouped_gemm_bytes(group_rows: Sequence[int], n: int, k: int, dtype: torch.dtype, blocks: dict[str, int]) -> int:
    """Bytes that the programs ask for and write, for groups of so many rows, without the offsets."""
    row_tiles = sum(triton.cdiv(rows, blocks["BLOCK_M"]) for rows in group_rows)
    column_tiles = triton.cdiv(n, blocks["BLOCK_N"])
    return (row_tiles * column_tiles * (blocks["BLOCK_M"] + blocks["BLOCK_N"]) * k + sum(group_rows) * n) * dtype.itemsize


def _shipped(name: str, rows: int, groups: int, pointer: str) -> Shipped:
    blocks = grouped_gemm_blocks(rows, groups)
    pointers = ("x_ptr", "w_ptr", "out_ptr")
    numbers = ("N", "K", "x_stride", "w_group_stride", "w_stride", "out_stride")
    return Shipped(
        name=name,
        kernel="minillm.kernels.grouped_gemm:grouped_gemm_kernel",
        signature=dict.fromkeys(pointers, pointer) | {"offsets_ptr": "*i32"} | dict.fromkeys(("G", *numbers), "i32"),
        constexprs={"ADD": False, "EVEN_K": True, "BLOCK_G": next_power_of_2(groups), **blocks},
        aligned=(*pointers, "offsets_ptr", *numbers),
        num_warps=grouped_gemm_warps(blocks),
        num_stages=3,
        has_dot=True,
    )


SHIPPED = (
    _shipped("grouped_gemm.bf16.prefill", 8192, 8, "*bf16"),
    _shipped("grouped_gemm.bf16.decode", 64, 128, "*bf16"),
)
