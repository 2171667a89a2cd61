"""Answers to labs/c5/m05_paged_attention.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.attention_tiles import Tiles, dot_precision, num_sms, paged_decode_tiles
from minillm.kernels.online_softmax import LOG2_E, finish, update
from minillm.kernels.paged_decode import choose_num_splits as minillms_choice
from minillm.kernels.paged_decode import merge_splits as minillms_merge
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

MAX_SPLITS = 128  # pieces of a sequence, at most
SHORTEST_SPLIT = 256  # tokens: the shorter the pieces, the more of what moves is merging

# ----------------------------------------------------------------------------------------------------------- choose_num_splits


@exercise(reference="minillm.kernels.paged_decode:choose_num_splits")
def choose_num_splits(num_groups: int, context: int, sms: int) -> int:
    most = 2 * sms // max(1, num_groups)
    return max(1, min(most, context // SHORTEST_SPLIT, MAX_SPLITS))


# ---------------------------------------------------------------------------------------------------------------- merge_splits


@triton.jit
def merge_kernel(
    partial_ptr, lse_ptr, out_ptr, num_pieces, stride_ob, stride_oh, num_heads,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    piece = (sequence * num_heads + head) * num_pieces + s
    lse = tl.load(lse_ptr + piece, mask=s < num_pieces, other=-float("inf"))
    used = lse != -float("inf")  # of the others nothing was written
    peak = tl.max(lse, axis=0)
    weight = tl.exp(lse - tl.where(peak == -float("inf"), 0.0, peak))
    real = used[:, None] & (d < HEAD_DIM)[None, :]
    partial = tl.load(partial_ptr + piece[:, None] * HEAD_DIM + d[None, :], mask=real, other=0.0)
    total = tl.sum(weight, axis=0)
    out = tl.sum(weight[:, None] * partial, axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + sequence * stride_ob + head * stride_oh + d, out.to(out_ptr.dtype.element_ty), mask=d < HEAD_DIM)


def launch_merge(kernel, partial: Tensor, lse: Tensor, out: Tensor | None) -> Tensor:
    """Given: makes the result where it is None, and starts one program for each head of each sequence."""
    batch, num_heads, pieces, head_dim = partial.shape
    out = torch.empty(batch, num_heads, head_dim, device=partial.device) if out is None else out
    if batch and num_heads:
        kernel[batch, num_heads](
            partial.contiguous(), lse.contiguous(), out, pieces, *out.stride()[:2], num_heads,
            HEAD_DIM=head_dim, BLOCK_D=next_power_of_2(head_dim), BLOCK_S=next_power_of_2(pieces),
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.paged_decode:merge_splits")
def merge_splits(partial: Tensor, lse: Tensor, *, out: Tensor | None = None) -> Tensor:
    return launch_merge(merge_kernel, partial, lse, out)


# ---------------------------------------------------------------------------------------------------------------- paged_decode


@triton.jit
def paged_decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table_ptr, seq_lens_ptr, scale_log2,
    stride_qb, stride_qh, stride_ob, stride_oh, stride_os, stride_kb, stride_kh, stride_kd, stride_ks,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_table,
    GROUP: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, kv_head, piece = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2)
    length = tl.load(seq_lens_ptr + sequence)
    oldest = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0
    first_tile, last_tile = oldest // BLOCK_N, tl.cdiv(length, BLOCK_N)
    each = tl.cdiv(last_tile - first_tile, tl.num_programs(2))
    begin = first_tile + piece * each
    end = tl.minimum(begin + each, last_tile)

    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    head = kv_head * GROUP + m
    real = (m < GROUP)[:, None] & (d < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + sequence * stride_qb + head[:, None] * stride_qh + d[None, :], mask=real, other=0.0)
    k_ptr += kv_head * stride_kh + d[:, None] * stride_kd
    v_ptr += kv_head * stride_vh + d[None, :] * stride_vd
    table_ptr += sequence * stride_table

    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for tile in range(begin, end):
        token = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        index, slot = token // BLOCK_SIZE, token % BLOCK_SIZE
        in_use = (index >= oldest // BLOCK_SIZE) & (index < tl.cdiv(length, BLOCK_SIZE))
        block = tl.load(table_ptr + index, mask=in_use, other=0).to(tl.int64)
        k_mask, v_mask = in_use[None, :] & (d < HEAD_DIM)[:, None], in_use[:, None] & (d < HEAD_DIM)[None, :]
        k = tl.load(k_ptr + (block * stride_kb + slot * stride_ks)[None, :], mask=k_mask, other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION)
        counts = (token >= oldest) & (token < length)
        scores = tl.where(counts[None, :], scores, -float("inf"))
        v = tl.load(v_ptr + (block * stride_vb + slot * stride_vs)[:, None], mask=v_mask, other=0.0)
        weights, correction, peak, total = update(scores, scale_log2, peak, total)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)

    out, lse = finish(acc, peak, total)
    out_ptr += sequence * stride_ob + head[:, None] * stride_oh + d[None, :]
    if SPLIT:
        lse = tl.where(begin < end, lse, -float("inf"))
        num_heads = tl.num_programs(1) * GROUP
        tl.store(lse_ptr + (sequence * num_heads + head) * tl.num_programs(2) + piece, lse, mask=m < GROUP)
        if begin < end:
            tl.store(out_ptr + piece * stride_os, out, mask=real)
    else:
        tl.store(out_ptr, out.to(out_ptr.dtype.element_ty), mask=real)


def launch_paged_decode(
    kernel, q, k_cache, v_cache, block_tables, seq_lens, max_seq_len, scale, sliding_window, num_splits, out, tiles
) -> Tensor:
    """Given: chooses the tile and the pieces, makes room for partial results, and merges them with minillm's merge_splits."""
    batch, num_heads, head_dim = q.shape
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[3]
    group = num_heads // num_kv_heads
    tiles = tiles or paged_decode_tiles(head_dim, q.element_size(), group)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    if batch == 0:
        return out
    if num_splits is None:
        context = max_seq_len if sliding_window is None else min(max_seq_len, sliding_window)
        num_splits = minillms_choice(batch * num_kv_heads, context, num_sms(q.device))
    partial, lse, strides = out, out, (*out.stride()[:2], 0)
    if num_splits > 1:
        partial = torch.empty(batch, num_heads, num_splits, head_dim, dtype=torch.float32, device=q.device)
        lse = torch.empty(batch, num_heads, num_splits, dtype=torch.float32, device=q.device)
        strides = partial.stride()[:3]
    kernel[batch, num_kv_heads, num_splits](
        q, k_cache, v_cache, partial, lse, block_tables, seq_lens, (scale or head_dim**-0.5) * LOG2_E,
        *q.stride()[:2], *strides, *k_cache.stride(), *v_cache.stride(), block_tables.stride(0),
        GROUP=group, SPLIT=num_splits > 1, WINDOW=sliding_window or 0, HEAD_DIM=head_dim, BLOCK_SIZE=block_size,
        BLOCK_D=max(16, next_power_of_2(head_dim)), BLOCK_M=tiles.BLOCK_M, BLOCK_N=tiles.BLOCK_N,
        PRECISION=dot_precision(q.dtype), num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out if num_splits == 1 else minillms_merge(partial, lse, out=out)


@exercise(reference="minillm.kernels.paged_decode:paged_decode", part="kernels.paged_decode")
def paged_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, max_seq_len: int, *,
    scale: float | None = None, sliding_window: int | None = None, num_splits: int | None = None, out: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    return launch_paged_decode(
        paged_decode_kernel,
        q,
        k_cache,
        v_cache,
        block_tables,
        seq_lens,
        max_seq_len,
        scale,
        sliding_window,
        num_splits,
        out,
        tiles,
    )
