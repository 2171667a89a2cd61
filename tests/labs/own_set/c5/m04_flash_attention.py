"""Answers to labs/c5/m04_flash_attention.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.attention_checks import GRID_LIMIT, check_heads, check_near, check_same_device, check_score
from minillm.kernels.attention_tiles import Tiles, compute_capability, dot_precision, flash_attention_tiles
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    require,
)
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise


@triton.jit
def sequence_of(cu_ptr, sequence):
    """Given. (the token at which the sequence begins, an int64; how many tokens it has, an int32)."""
    start = tl.load(cu_ptr + sequence).to(tl.int64)
    return start, (tl.load(cu_ptr + sequence + 1) - start).to(tl.int32)


@triton.jit
def rows_at(ptr, stride, first, count, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Given. Addresses [ROWS, BLOCK_D] of rows first … first + ROWS - 1 of a matrix at `ptr`, and which of them are inside of its
    `count` rows and HEAD_DIM columns: the mask that every load and store needs. Loads take other=0.0 with it."""
    row, d = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    inside = (first + row[:, None] < count) & (d[None, :] < HEAD_DIM)
    return ptr + tl.cast(first, tl.int64) * stride + row[:, None] * stride + d[None, :], inside


@triton.jit
def flash_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, cu_q_ptr, cu_k_ptr, scale,
    stride_qt, stride_qh, stride_kt, stride_kh, stride_vt, stride_vh, stride_ot, stride_oh, stride_lh,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile, head, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    q_start, q_len = sequence_of(cu_q_ptr, sequence)
    k_start, k_len = sequence_of(cu_k_ptr, sequence)
    first = tile * BLOCK_M
    if first >= q_len:
        return
    ahead = k_len - q_len  # query i stands at key i + ahead
    q_at, q_inside = rows_at(q_ptr + q_start * stride_qt + head * stride_qh, stride_qt, first, q_len, BLOCK_M, HEAD_DIM, BLOCK_D)
    q = tl.load(q_at, mask=q_inside, other=0.0)
    kv_head = head // GROUP
    k_ptr += k_start * stride_kt + kv_head * stride_kh
    v_ptr += k_start * stride_vt + kv_head * stride_vh

    begin, end = 0, k_len
    if CAUSAL:
        end = tl.minimum(k_len, tl.minimum(first + BLOCK_M, q_len) + ahead)
    if WINDOW > 0:
        begin = tl.maximum(first + ahead - WINDOW + 1, 0) // BLOCK_N * BLOCK_N

    place = first + ahead + tl.arange(0, BLOCK_M)
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        k_at, k_inside = rows_at(k_ptr, stride_kt, start, k_len, BLOCK_N, HEAD_DIM, BLOCK_D)
        k = tl.load(k_at, mask=k_inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        key = start + tl.arange(0, BLOCK_N)
        seen = (key < k_len)[None, :]
        if CAUSAL:
            seen = seen & (key[None, :] <= place[:, None])
        if WINDOW > 0:
            seen = seen & (key[None, :] > place[:, None] - WINDOW)
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # nothing seen yet: exp(-inf - 0) = 0
        weights = tl.exp(scores - base[:, None])
        correction = tl.exp(peak - base)
        v_at, v_inside = rows_at(v_ptr, stride_vt, start, k_len, BLOCK_N, HEAD_DIM, BLOCK_D)
        v = tl.load(v_at, mask=v_inside, other=0.0)
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)
        peak = higher

    empty = total == 0.0
    out = acc / tl.where(empty, 1.0, total)[:, None]
    lse = tl.where(empty, -float("inf"), peak + tl.log(tl.where(empty, 1.0, total)))
    o_at, o_inside = rows_at(
        out_ptr + q_start * stride_ot + head * stride_oh, stride_ot, first, q_len, BLOCK_M, HEAD_DIM, BLOCK_D
    )
    tl.store(o_at, out.to(out_ptr.dtype.element_ty), mask=o_inside)
    row = first + tl.arange(0, BLOCK_M)
    tl.store(lse_ptr + head * stride_lh + q_start + row, lse, mask=row < q_len)


def launch_flash_attention(
    kernel, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, causal, scale, sliding_window, tiles
) -> tuple[Tensor, Tensor]:
    """Given: checks, makes the results, starts a program for each tile of queries, query head and sequence."""
    require(q.ndim == 3, f"q has {q.ndim} dimensions; [tokens, heads, head_dim] are needed")
    check_tensors(q=q, k=k, v=v)
    check_same_dtype(q=q, k=k, v=v)
    check_tensors((torch.int32,), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    check_same_device(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    require(len(cu_seqlens_q) > 0, "cu_seqlens must hold B + 1 numbers, at least the first: 0")
    check_shape([len(cu_seqlens_q)], cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    (num_tokens, num_heads, head_dim), num_kv_heads = q.shape, k.shape[1]
    check_shape([None, None, head_dim], k=k)
    check_shape(k.shape, v=v)
    check_last_dim_contiguous(q=q, k=k, v=v)
    refuse_negative_strides(q=q, k=k, v=v)
    check_heads(num_heads, num_kv_heads)
    check_score(scale, sliding_window, causal)
    batch = len(cu_seqlens_q) - 1
    require(batch < GRID_LIMIT, f"{batch} sequences: a launch takes at most {GRID_LIMIT - 1}; split them")
    tiles = tiles or flash_attention_tiles(head_dim, q.element_size(), compute_capability(q.device))
    check_near(tiles.BLOCK_M, **{"tokens of q": q.stride(0)})
    check_near(tiles.BLOCK_N, **{"tokens of k": k.stride(0), "tokens of v": v.stride(0)})
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(num_heads, num_tokens, dtype=torch.float32, device=q.device)
    if batch and max_seqlen_q and num_heads:
        kernel[(triton.cdiv(max_seqlen_q, tiles.BLOCK_M), num_heads, batch)](
            q, k, v, out, lse, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous(), scale or head_dim**-0.5,
            *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *out.stride()[:2], lse.stride(0),
            GROUP=num_heads // num_kv_heads, CAUSAL=causal, WINDOW=sliding_window or 0,
            HEAD_DIM=head_dim, BLOCK_D=max(16, triton.next_power_of_2(head_dim)), BLOCK_M=tiles.BLOCK_M, BLOCK_N=tiles.BLOCK_N,
            PRECISION=dot_precision(q.dtype), num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip
    return out, lse


@exercise(reference="minillm.kernels.flash_attention:flash_attention_varlen", part="kernels.flash_attention")
def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, *, causal: bool = True,
    scale: float | None = None, sliding_window: int | None = None, tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return launch_flash_attention(
        flash_attention_kernel, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, causal, scale, sliding_window, tiles
    )
