"""5.4 FlashAttention: softmax(Q·Kᵀ·scale)·V, exactly, without a matrix of scores in memory.

Write the body of the Triton kernel, and let the function at the end call the launcher that is given. Then run `labs check 5.4`
(or `pytest labs/c5/test_m04_flash_attention.py`): its checks come in the order in which one would write the kernel, from one tile
of keys to everything. Stuck? `labs hint 5.4` shows one more each time. No GPU is needed: without one the kernel runs in Triton's
interpreter, and the checks count the bytes it asks for and compile it for an RTX 4090.

`stride_kt` and the like count elements, from one token (t) or one head (h) to the next; a head's D numbers are neighbours.
"""

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
    """Yours. Program (tile, head, sequence): BLOCK_M queries of one query head of one sequence, walking along its keys in tiles
    of BLOCK_N. GROUP = H / KV; WINDOW: 0 means none; BLOCK_D: a power of two, >= HEAD_DIM. Sequences shorter than the longest
    have programs with nothing to do: return. `head` in int64 before it meets a stride. Products: tl.dot(…, input_precision=
    PRECISION), of two operands of the tensors' dtype; the sum comes out in float32. What a loop assigns keeps its type and shape
    for the compiler, which the interpreter does not mind: a name is either q's or k's."""


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
    """Attention of B sequences of any lengths, one after the other in the same tensors. For each of them, and each head:

        s = q · k * scale        o = softmax(s) · v        lse = ln Σ exp(s)        over the keys that the query sees

    q [Tq, H, D]; k, v [Tk, KV, D], bfloat16, float16 or float32 of one dtype, any strides but the last dimension's. Sequence b
    has the queries cu_seqlens_q[b] … cu_seqlens_q[b + 1] - 1, and the keys that cu_seqlens_k [B + 1] says, int32 both; there may
    be more keys than queries (a cache), or fewer, or none. max_seqlen_q: queries of the longest. scale: None is D ** -0.5.

    Heads: H is a multiple of KV, and query head h reads key-value head h // (H / KV).
    Causal: aligned at the end. The last query sees the last key; query i of Sq sees the keys up to i + Sk - Sq.
    sliding_window W: of those only the last W. A query that sees no key at all has o = 0 and lse = -inf.

    Returns (o [Tq, H, D] in q's dtype, lse [H, Tq] float32, natural logarithm). Scores, maximum, sum and output are accumulated
    in float32; weights exp(s - m) are rounded to the dtype where they meet v, and only there. Scores of any finite size.

    Bytes, a sequence of S queries and S keys, elements a head: q read and o written once, 2·S·D. Each of the S / BLOCK_M programs
    walks along k and v, S·D each, at most once: no second pass for the softmax. Without causal that makes
        2·S·D + 2·S·D · S / BLOCK_M.
    Causal, n = S / BLOCK_M, tile i needs i + 1 of n stretches of keys: n(n+1)/2 of n², so nothing is loaded that no query of the
    program sees, except to fill the last tile of BLOCK_N keys; the same at the far edge of a window. Rows past a sequence's end
    are not loaded: they are the next one's. lse is written once, 4 bytes a query and head. Nothing else is read or written.

    tiles: BLOCK_M, BLOCK_N, warps and stages; None: chosen for the card. Body: `return launch_flash_attention(
    flash_attention_kernel, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, causal, scale, sliding_window, tiles)`.

    Sources: Dao et al. 2022, arXiv 2205.14135, algorithm 1; Dao 2023, arXiv 2307.08691; Milakov & Gimelshein 2018, arXiv
    1805.02867.
    """
    raise NotImplementedError
