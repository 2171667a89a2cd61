"""5.5 Paged attention: one new token's attention over blocks wherever they lie, with the whole card at work on it.

Three exercises: into how many pieces to cut a sequence, how to put the pieces' answers together, and the kernel that reads the
cache. Each stands alone; where one needs another, the launcher below uses minillm's. Then run `labs check 5.5` (or
`pytest labs/c5/test_m05_paged_attention.py`). Stuck? `labs hint 5.5` shows one more each time. No GPU is needed.

Names. B sequences, H query heads, KV key-value heads, GROUP = H / KV query heads share each of them; D numbers a head, s bytes a
number. Query head h uses key-value head h // GROUP. A sequence's token n lies in block block_tables[sequence, n // block_size],
slot n % block_size.
"""

from __future__ import annotations

import torch
from minillm.kernels.attention_tiles import Tiles, dot_precision, num_sms, paged_decode_tiles
from minillm.kernels.online_softmax import LOG2_E, finish, update  # noqa: F401, finish and update are for your kernel
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
    """Into how many pieces to cut each sequence. Plain Python.

    num_groups: sequences × key-value heads, the programs that there are without a cut; context: tokens that the longest sequence
    may have; sms: the card's multiprocessors. 0 is possible for the first two.

    The largest number of pieces of which all of this is true:
    - num_groups × pieces programs are at most 2 · sms: two for each multiprocessor, one of which computes while the other waits
      for memory. One program more than fits is a second round, so it is never exceeded;
    - context // pieces is at least SHORTEST_SPLIT;
    - it is at most MAX_SPLITS.
    1 if there is none, and for no context at all. (num_groups 0 counts as 1.)
    """
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------- merge_splits


@triton.jit
def merge_kernel(
    partial_ptr, lse_ptr, out_ptr, num_pieces, stride_ob, stride_oh, num_heads,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Yours. Program (sequence, head): all pieces of one head of one sequence, [BLOCK_S, BLOCK_D], both powers of two.

    partial [B, H, num_pieces, HEAD_DIM] and lse [B, H, num_pieces] are contiguous; out's last dimension is."""


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
    """Attention over pieces of the keys, merged into attention over all of them.

        L = ln Σ exp(lse_s),     out = Σ exp(lse_s − L) · partial_s

    partial [B, H, S, D] float32: what attention over each of S <= MAX_SPLITS pieces gave. lse [B, H, S] float32: the piece's
    log-sum-exp, ln Σ exp(score) over its keys. Any D, any S from 1. out [B, H, D], in any float dtype and with any strides
    but the last; None: a new one in float32. Weights, products and sums are float32, rounded once, when stored. Returns it.

    An lse may be a thousand, whose exp is infinite in float32; the formula above is not. lse_s = −inf marks a piece that has no
    keys: it weighs nothing, nothing was written to its partial_s, which may hold NaN, and it must not be read. Where all pieces
    are empty the result is 0.

    Bytes: each lse and each row of a piece that is not empty once, 4·(D + 1) for each head and piece, and the result once.

    Body: `return launch_merge(merge_kernel, partial, lse, out)`.

    Source: Dao, Haziza, Massa & Sizov 2023, "Flash-Decoding for long-context inference".
    """
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------- paged_decode


@triton.jit
def paged_decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table_ptr, seq_lens_ptr, scale_log2,
    stride_qb, stride_qh, stride_ob, stride_oh, stride_os, stride_kb, stride_kh, stride_kd, stride_ks,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_table,
    GROUP: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Yours. Program (sequence, key-value head, piece): the GROUP query heads of that head over one piece of that sequence.

    A tile is q [BLOCK_M, BLOCK_D] of which GROUP rows and HEAD_DIM columns exist, keys [BLOCK_D, BLOCK_N], values [BLOCK_N,
    BLOCK_D]. Strides count elements: b a sequence (a block, of k and v), h a head, d and s a dimension and a slot, os a piece.

    Tokens that count: the last WINDOW of seq_len, all if WINDOW is 0. Cut the tiles that hold any of them evenly: with t tiles
    in num_programs(2) pieces, piece p has tiles p·c to (p + 1)·c − 1 of them, c = cdiv(t, pieces), if they exist.

    Without SPLIT there is one piece: its output goes to out [B, H, D]. With SPLIT a piece writes its output to out [B, H, pieces,
    D], float32, and its log-sum-exp to lse [B, H, pieces], float32, contiguous. An empty piece writes −inf there, and no output.

    A tile of BLOCK_N tokens begins at a multiple of BLOCK_N; a block may be longer than it, or end within it.

    Loop over tiles with a running softmax. update and finish are 5.4's: given scores [BLOCK_M, BLOCK_N], not scaled, −inf where
    unseen, peak from −inf and total from 0 [BLOCK_M], float32,
        weights, correction, peak, total = update(scores, scale_log2, peak, total)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)
        out, lse = finish(acc, peak, total)          0 and −inf for a row that has seen no key
    Scores are tl.dot(q, k, input_precision=PRECISION), [BLOCK_M, BLOCK_N]."""


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
    """softmax(q·kᵀ·scale)·v for the newest token of each of B sequences, over a paged cache.

    q [B, H, D], a head's D numbers side by side, other strides any. k_cache [blocks, KV, D, block_size] and v_cache
    [blocks, KV, block_size, D], of any strides: the engine's keys lie with the slots of a block side by side. block_tables [B, W]
    int32 or int64, seq_lens [B] int32. A query sees all tokens of its sequence, itself included, or with sliding_window=W the
    last W. seq_len 0, of a row that only pads a batch, gives 0. Entries of block_tables past a sequence's last block are
    somebody else's or nonsense, and not to be used. The slots of its last block past its end are finite and do not count.
    bfloat16, float16 or float32; scores, sums and pieces in float32. Returns [B, H, D] in q's dtype, in `out` if given.

    A cache may hold more than 2³¹ elements: a block's number times its stride is an int64.

    Bytes, n tokens in use: keys and values once each for all GROUP heads together, 2·KV·D·s·n (n rounded up to whole blocks at
    the end, and to a whole tile at the far edge of a window, at most), block_tables' number once for each token and key-value
    head at most, q once for each piece, the result once, and if cut 4·(D + 1) for each head and piece, written here and read by
    the merge. A program for each *query* head would read keys and values GROUP times.

    Loads stay wide: 8 slots of a key's dimension are one load of 128 bits only if the compiler sees that all 8 are wanted. So
    mask keys and values by block (is this block in use?), which all slots of a block agree on, and set scores of tokens past the
    end to −inf afterwards.

    Body: `return launch_paged_decode(paged_decode_kernel, q, k_cache, v_cache, block_tables, seq_lens, max_seq_len, scale,
    sliding_window, num_splits, out, tiles)`.

    Sources: Kwon et al. 2023, arXiv 2309.06180; Dao et al. 2023, "Flash-Decoding"; Ainslie et al. 2023, arXiv 2305.13245.
    """
    raise NotImplementedError
