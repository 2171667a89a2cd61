"""FlashAttention, forward: softmax(Q·Kᵀ·scale)·V without ever writing the scores to memory.

Mathematics. For every query the kernel walks along the keys in tiles of BLOCK_N and keeps a running maximum, sum and output (see
minillm.kernels.online_softmax). Scores of S queries and S keys live in registers, BLOCK_M × BLOCK_N at a time. Causal attention
is aligned at the end: the last query sees the last key, query i of Sq sees keys up to i + Sk − Sq. Tiles above the diagonal are
skipped, tiles below it need no mask. With a sliding window W each query sees itself and W − 1 tokens before.

Shapes. q [B, Sq, H, D], k and v [B, Sk, KV, D]; or, of sequences of many lengths without padding, q [Tq, H, D] and k, v [Tk, KV,
D] with cu_seqlens [B + 1] int32, where each begins and the last ends. Query head h reads key-value head h // (H / KV). Any
strides but in the last dimension, whose neighbours must be neighbours in memory. D: any; a multiple of 16 that is a power of two
is fastest. Dtypes. bfloat16, float16, float32. Both products accumulate in float32; the weights are rounded to the dtype before
they meet V.

Bytes moved. Unfused attention writes and reads back the scores: 4·S·D + 4·S² elements a head, as Dao et al. count them. Here Q is
read and O written once, S·D elements each, and K and V once *for each tile of queries*: S / BLOCK_M times, causal about half.
That is

    2·S·D + 2·S·D · S / BLOCK_M   elements a head, from a square of S; exactly: `flash_attention_bytes`

of requests. Tiles of one head run side by side and share K and V in the L2 cache, so that HBM sees close to 4·S·D: requests say
how much the cache has to deliver, not how much it cannot hold.

Sources: Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691 (the order of the loops, one division at the end).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from minillm.kernels.attention_checks import GRID_LIMIT, check_heads, check_near, check_score
from minillm.kernels.attention_tiles import Tiles, compute_capability, dot_precision, flash_attention_tiles
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    require,
)
from minillm.kernels.online_softmax import LOG2_E, finish, key_range, update
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def walk(
    acc, peak, total, q, k_ptr, v_ptr, start, end, num_keys, positions, scale_log2, stride_kt, stride_vt,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take in the keys [start, end). MASKED: not every query at `positions` sees all of them, or they end within a tile."""
    d = tl.arange(0, BLOCK_D)
    in_tile = tl.arange(0, BLOCK_N)
    # one scalar of 64 bits moves along the keys; offsets within a tile stay in 32 bits
    k_ptr += tl.cast(start, tl.int64) * stride_kt
    v_ptr += tl.cast(start, tl.int64) * stride_vt
    for first in range(start, end, BLOCK_N):
        keys = first + in_tile
        there = d[None, :] < HEAD_DIM
        if MASKED:
            there = there & (keys[:, None] < num_keys)
        if MASKED or BLOCK_D != HEAD_DIM:
            k = tl.load(k_ptr + in_tile[:, None] * stride_kt + d[None, :], mask=there, other=0.0)
        else:
            k = tl.load(k_ptr + in_tile[:, None] * stride_kt + d[None, :])
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if MASKED:
            visible = keys[None, :] < num_keys
            if CAUSAL:
                visible = visible & (keys[None, :] <= positions[:, None])
            if WINDOW > 0:
                visible = visible & (keys[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        weights, correction, peak, total = update(scores, scale_log2, peak, total)
        if MASKED or BLOCK_D != HEAD_DIM:
            v = tl.load(v_ptr + in_tile[:, None] * stride_vt + d[None, :], mask=there, other=0.0)
        else:
            v = tl.load(v_ptr + in_tile[:, None] * stride_vt + d[None, :])
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)
        k_ptr += BLOCK_N * stride_kt
        v_ptr += BLOCK_N * stride_vt
    return acc, peak, total


@triton.jit
def flash_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, cu_q_ptr, cu_k_ptr, num_queries, num_keys, scale_log2,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_kt, stride_kh, stride_vb, stride_vt, stride_vh,
    stride_ob, stride_ot, stride_oh, stride_lb, stride_lh,
    GROUP: tl.constexpr, VARLEN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M queries of one head of one sequence. Grid (tiles of queries, query heads, sequences)."""
    tile = tl.program_id(0)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # the longest rows first, so that short ones fill the gaps at the end
    head = tl.program_id(1).to(tl.int64)  # heads may lie outermost, 2³¹ elements apart and more
    sequence = tl.program_id(2).to(tl.int64)
    q_start = sequence * 0
    k_start = sequence * 0
    if VARLEN:
        q_start = tl.load(cu_q_ptr + sequence).to(tl.int64)
        k_start = tl.load(cu_k_ptr + sequence).to(tl.int64)
        num_queries = (tl.load(cu_q_ptr + sequence + 1) - q_start).to(tl.int32)
        num_keys = (tl.load(cu_k_ptr + sequence + 1) - k_start).to(tl.int32)
    first_row = tile * BLOCK_M
    if first_row >= num_queries:  # this sequence is shorter than the longest
        return

    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    rows_there = first_row + row < num_queries
    there = rows_there[:, None] & (d[None, :] < HEAD_DIM)
    q_ptr += sequence * stride_qb + (q_start + first_row) * stride_qt + head * stride_qh
    q = tl.load(q_ptr + row[:, None] * stride_qt + d[None, :], mask=there, other=0.0)
    kv_head = head // GROUP
    k_ptr += sequence * stride_kb + k_start * stride_kt + kv_head * stride_kh
    v_ptr += sequence * stride_vb + k_start * stride_vt + kv_head * stride_vh

    first = first_row + num_keys - num_queries  # positions among the keys, aligned at the end
    last = tl.minimum(first_row + BLOCK_M, num_queries) - 1 + num_keys - num_queries
    positions = first + row
    start, full_start, full_end, end = key_range(first, last, num_keys, CAUSAL, WINDOW, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if WINDOW > 0:  # the window's far edge
        acc, peak, total = walk(
            acc, peak, total, q, k_ptr, v_ptr, start, full_start, num_keys, positions, scale_log2, stride_kt, stride_vt,
            True, CAUSAL, WINDOW, HEAD_DIM, BLOCK_D, BLOCK_N, PRECISION,
        )  # fmt: skip
    acc, peak, total = walk(
        acc, peak, total, q, k_ptr, v_ptr, full_start, full_end, num_keys, positions, scale_log2, stride_kt, stride_vt,
        False, CAUSAL, WINDOW, HEAD_DIM, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip
    acc, peak, total = walk(
        acc, peak, total, q, k_ptr, v_ptr, full_end, end, num_keys, positions, scale_log2, stride_kt, stride_vt,
        True, CAUSAL, WINDOW, HEAD_DIM, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip

    out, lse = finish(acc, peak, total)
    out_ptr += sequence * stride_ob + (q_start + first_row) * stride_ot + head * stride_oh
    tl.store(out_ptr + row[:, None] * stride_ot + d[None, :], out.to(out_ptr.dtype.element_ty), mask=there)
    lse_ptr += sequence * stride_lb + head * stride_lh + q_start + first_row
    tl.store(lse_ptr + row, lse, mask=rows_there)


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None, sliding_window: int | None = None,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of B sequences of one length. q [B, Sq, H, D]; k, v [B, Sk, KV, D]; H a multiple of KV.

    scale: the factor on q·k, positive; None: D ** -0.5. sliding_window: how many tokens back each sees, itself included; causal
    only. tiles: None: flash_attention_tiles'. Returns the output [B, Sq, H, D] in q's dtype and the log-sum-exp of each row of
    scaled scores, natural, [B, H, Sq] float32; a query that sees no key has 0 and −inf. Raises ValueError, TypeError."""
    require(q.ndim == 4, f"q has {q.ndim} dimensions; [sequences, queries, heads, head_dim] are needed")
    batch, num_queries, num_heads, head_dim = q.shape
    check_shape([batch, None, None, head_dim], k=k)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, num_heads, num_queries, dtype=torch.float32, device=q.device)
    _launch(q, k, v, out, lse, None, (num_queries, k.shape[1]), batch, causal, scale, sliding_window, tiles)
    return out, lse


def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, *, causal: bool = True,
    scale: float | None = None, sliding_window: int | None = None, tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As flash_attention, of B sequences of any lengths, one after the other: q [Tq, H, D]; k, v [Tk, KV, D].

    cu_seqlens_q, cu_seqlens_k [B + 1] int32: 0, then where each sequence ends. max_seqlen_q: the longest sequence of queries; a
    number, so that nothing waits for the GPU: rows beyond it would not be computed. Returns [Tq, H, D] and [H, Tq] float32."""
    require(q.ndim == 3, f"q has {q.ndim} dimensions; [tokens, heads, head_dim] are needed")
    check_tensors((torch.int32,), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    check_shape([len(cu_seqlens_q)], cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    require(len(cu_seqlens_q) > 0, "cu_seqlens must hold B + 1 numbers, at least the first: 0")
    num_tokens, num_heads, head_dim = q.shape
    check_shape([None, None, head_dim], k=k)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(num_heads, num_tokens, dtype=torch.float32, device=q.device)
    cu_seqlens = cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    flat = (x[None] for x in (q, k, v, out, lse))  # the sequences lie in one row: no stride from one to the next
    _launch(*flat, cu_seqlens, (max_seqlen_q, 0), len(cu_seqlens_q) - 1, causal, scale, sliding_window, tiles)
    return out, lse


def _launch(q, k, v, out, lse, cu_seqlens, lengths, batch, causal, scale, sliding_window, tiles) -> None:
    """q, k, v, out [B or 1, tokens, heads, D]; lse [B or 1, H, tokens]. lengths: of queries and keys, longest and unused in
    varlen."""
    check_tensors(q=q, k=k, v=v)
    check_same_dtype(q=q, k=k, v=v)
    check_shape(k.shape, v=v)
    check_last_dim_contiguous(q=q, k=k, v=v)
    refuse_negative_strides(q=q, k=k, v=v)
    check_score(scale, sliding_window, causal)
    (num_heads, head_dim), num_kv_heads = q.shape[2:], k.shape[2]
    check_heads(num_heads, num_kv_heads)
    require(batch < GRID_LIMIT, f"{batch} sequences: a launch takes at most {GRID_LIMIT - 1}; split them")
    tiles = tiles or flash_attention_tiles(head_dim, q.element_size(), compute_capability(q.device))
    check_near(tiles.BLOCK_M, **{"tokens of q": q.stride(1)})
    check_near(tiles.BLOCK_N, **{"tokens of k": k.stride(1), "tokens of v": v.stride(1)})
    if 0 in (batch, lengths[0], num_heads):
        return
    grid = (triton.cdiv(lengths[0], tiles.BLOCK_M), num_heads, batch)
    strides = [x.stride(0) if cu_seqlens is None else 0 for x in (q, k, v, out, lse)]
    flash_attention_kernel[grid](
        q, k, v, out, lse, *(cu_seqlens or (q, q)), *lengths, (scale or head_dim**-0.5) * LOG2_E,
        strides[0], *q.stride()[1:3], strides[1], *k.stride()[1:3], strides[2], *v.stride()[1:3], strides[3], *out.stride()[1:3],
        strides[4], lse.stride(1),
        GROUP=num_heads // num_kv_heads, VARLEN=cu_seqlens is not None, CAUSAL=causal, WINDOW=sliding_window or 0,
        HEAD_DIM=head_dim, BLOCK_D=max(16, triton.next_power_of_2(head_dim)), BLOCK_M=tiles.BLOCK_M, BLOCK_N=tiles.BLOCK_N,
        PRECISION=dot_precision(q.dtype), num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip


def flash_attention_torch(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None, sliding_window: int | None = None,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """flash_attention in plain torch, with all scores in memory; weights are rounded where the kernel rounds them. `tiles`:
    unused."""
    num_queries, num_heads, head_dim = q.shape[1:]
    group = num_heads // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=2).float() for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), keys) * (scale or head_dim**-0.5)
    if causal:
        key = torch.arange(k.shape[1], device=q.device)
        position = torch.arange(num_queries, device=q.device)[:, None] + k.shape[1] - num_queries
        visible = key <= position if sliding_window is None else (key <= position) & (key > position - sliding_window)
        scores = scores.masked_fill(~visible, -torch.inf)
    lse = scores.logsumexp(-1)
    largest = scores.amax(-1, keepdim=True) if k.shape[1] else torch.zeros_like(lse)[..., None]
    weights = torch.exp(scores - largest.masked_fill(largest == -torch.inf, 0.0))
    total = weights.sum(-1).masked_fill(lse == -torch.inf, 1.0)
    out = torch.einsum("bhqk,bkhd->bqhd", weights.to(q.dtype).float(), values)
    return (out / total.transpose(1, 2)[..., None]).to(q.dtype), lse


def flash_attention_varlen_torch(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, *, causal: bool = True,
    scale: float | None = None, sliding_window: int | None = None, tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """flash_attention_varlen in plain torch, one sequence at a time. `max_seqlen_q` and `tiles`: unused."""
    out, lse = torch.empty_like(q), q.new_empty(q.shape[1], len(q), dtype=torch.float32)
    for (q0, q1), (k0, k1) in zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True):
        one = (x[None, i:j] for x, i, j in ((q, q0, q1), (k, k0, k1), (v, k0, k1)))
        o, s = flash_attention_torch(*one, causal=causal, scale=scale, sliding_window=sliding_window)
        out[q0:q1], lse[:, q0:q1] = o[0], s[0]
    return out, lse


def keys_read(first: int, last: int, num_keys: int, block_n: int, sliding_window: int | None = None, causal: bool = True) -> int:
    """Keys that a tile of queries at positions first … last reads, of num_keys there are: in whole tiles of block_n."""
    start = 0 if sliding_window is None else max(first - sliding_window + 1, 0) // block_n * block_n
    end = min(last + 1, num_keys) if causal else num_keys
    return max(0, min(triton.cdiv(end, block_n) * block_n, num_keys) - start)


def flash_attention_bytes(
    query_lens: Sequence[int], key_lens: Sequence[int], num_heads: int, head_dim: int, itemsize: int, tiles: Tiles, *,
    causal: bool = True, sliding_window: int | None = None,
) -> dict[str, int]:  # fmt: skip
    """Bytes that a launch over these sequences requests, by tensor; of cu_seqlens, four numbers a program, nothing is counted."""
    keys = 0  # read for one head
    for num_queries, num_keys in zip(query_lens, key_lens, strict=True):
        for first in range(0, num_queries, tiles.BLOCK_M):
            last = min(first + tiles.BLOCK_M, num_queries) - 1
            shift = num_keys - num_queries
            keys += keys_read(first + shift, last + shift, num_keys, tiles.BLOCK_N, sliding_window, causal)
    rows, kv = (n * num_heads * head_dim * itemsize for n in (sum(query_lens), keys))
    return {"q": rows, "k": kv, "v": kv, "out": rows, "lse": sum(query_lens) * num_heads * 4}


def _shipped(model: str, head_dim: int, group: int, sm: int = 0) -> Shipped:
    """Causal prompts of several lengths, as flash_attention_varlen launches them."""
    tiles = flash_attention_tiles(head_dim, 2, sm)
    strides = [f"stride_{name}" for name in ["qb", "qt", "qh", "kb", "kt", "kh", "vb", "vt", "vh", "ob", "ot", "oh", "lb", "lh"]]
    pointers = {f"{name}_ptr": "*bf16" for name in ("q", "k", "v", "out")} | {"lse_ptr": "*fp32"}
    indices = {"cu_q_ptr": "*i32", "cu_k_ptr": "*i32"}
    numbers = {"num_queries": "i32", "num_keys": "i32", "scale_log2": "fp32"}
    return Shipped(
        name=f"flash_attention.bf16.{model}" + (f".sm{sm}" if sm else ""),
        kernel="minillm.kernels.flash_attention:flash_attention_kernel",
        signature=pointers | indices | numbers | dict.fromkeys(strides, "i32"),
        constexprs={
            "GROUP": group, "VARLEN": True, "CAUSAL": True, "WINDOW": 0, "HEAD_DIM": head_dim, "BLOCK_D": head_dim,
            "BLOCK_M": tiles.BLOCK_M, "BLOCK_N": tiles.BLOCK_N, "PRECISION": dot_precision(torch.bfloat16),
        },
        aligned=(*pointers, *indices, *(name for name in strides if name != "stride_lh")),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        has_dot=True,
        min_sm=sm or 80,
        max_sm=sm or None,
    )  # fmt: skip


SHIPPED = (
    _shipped("llama-3.1-8b", 128, 4),
    _shipped("llama-3.1-8b", 128, 4, sm=90),  # more shared memory than other cards have
    _shipped("smollm2-135m", 64, 3),
)
