"""Attention of one new token for each of B sequences over a paged key-value cache, the work of a decode step.

Mathematics. softmax(q·kᵀ·scale)·v, where each query is its sequence's newest token and sees all of it, or with a sliding window W
the last W tokens. There is one query, so B × KV programs would be all there is to do: at batch 1, Llama-3.1-8B would keep 8 of a
card's 100 or so multiprocessors busy. Therefore a sequence is cut into `num_splits` pieces of whole tiles, each program leaves
the output o_s of its piece and that piece's log-sum-exp L_s, and a second kernel merges (Flash-Decoding, Dao et al. 2023):

    L = ln Σ exp(L_s),     o = Σ exp(L_s − L)·o_s

A piece with no token in it, as when a sequence is short beside the longest, has L_s = −inf: it weighs nothing, and its o_s is
neither written nor read. The heads that share a key-value head share a tile, so that K and V are read once for them all.

Shapes. q [B, H, D]; k_cache [blocks, KV, D, block_size] and v_cache [blocks, KV, block_size, D], of any strides: the engine's
cache is minillm.kv.storage.keys(layer) and values(layer). block_tables [B, W] int32 or int64; seq_lens [B] int32, the new token
included and its key and value in the cache; 0, of a row that only pads a batch, gives 0. Dtypes. bfloat16, float16, float32;
float32 accumulation, partial outputs in float32.

Bytes moved. Each key and value in use once, in whole blocks, 2·KV·D elements a token: memory-bound, 1 multiplication and addition
for each element and query head of the group. Besides 2·B·H·D for q and the output, block_tables' number once a token, and if
split, 2·4·(D + 1) bytes a head and piece for what is written to be merged. `paged_decode_bytes` is exact.

Sources: Dao, Haziza, Massa & Sizov 2023, "Flash-Decoding for long-context inference"; Kwon et al. 2023, arXiv 2309.06180.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minillm.kernels.attention_checks import GRID_LIMIT, check_paged, check_score
from minillm.kernels.attention_tiles import Tiles, dot_precision, num_sms, paged_decode_tiles
from minillm.kernels.checks import check_last_dim_contiguous, check_shape, check_tensors, require
from minillm.kernels.online_softmax import LOG2_E, key_range
from minillm.kernels.paged_attention import paged_attention_torch
from minillm.kernels.paged_walk import attend_blocks
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

MAX_SPLITS = 128
SHORTEST_SPLIT = 256  # tokens; merging such a piece moves 3 % of what it reads. The limit itself has not been tuned on a GPU


@triton.jit
def paged_decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table_ptr, seq_lens_ptr, scale_log2,
    stride_qb, stride_qh, stride_ob, stride_oh, stride_os, stride_kb, stride_kh, stride_kd, stride_ks,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_table,
    GROUP: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: one group of heads, one piece of one sequence. Grid (sequences, key-value heads, pieces). With SPLIT it writes
    partial outputs [B, H, pieces, D] and log-sum-exps [B, H, pieces], else the result."""
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1).to(tl.int64)
    piece = tl.program_id(2)
    num_pieces = tl.num_programs(2)
    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    head = kv_head * GROUP + row
    there = (row < GROUP)[:, None] & (d[None, :] < HEAD_DIM)

    seq_len = tl.load(seq_lens_ptr + sequence)
    start, full_start, full_end, end = key_range(seq_len - 1, seq_len - 1, seq_len, True, WINDOW, BLOCK_N)
    tiles = tl.cdiv(end - start, BLOCK_N)
    if SPLIT:
        tiles_each = tl.cdiv(tiles, num_pieces)
        start += piece * tiles_each * BLOCK_N
        piece_end = start + tiles_each * BLOCK_N  # all but `end` stay multiples of BLOCK_N
        full_start = tl.minimum(tl.maximum(full_start, start), piece_end)
        full_end = tl.maximum(tl.minimum(full_end, piece_end), full_start)
        end = tl.minimum(end, piece_end)
        lse_ptr += (sequence * tl.num_programs(1) * GROUP + head) * num_pieces + piece
        if start >= end:
            tl.store(lse_ptr, tl.full([BLOCK_M], float("-inf"), tl.float32), mask=row < GROUP)
            return

    q = tl.load(q_ptr + sequence * stride_qb + (head * stride_qh)[:, None] + d[None, :], mask=there, other=0.0)
    table_ptr += sequence * stride_table
    positions = tl.zeros([BLOCK_M], tl.int32) + seq_len - 1
    out, lse = attend_blocks(
        q, k_ptr + kv_head * stride_kh, v_ptr + kv_head * stride_vh, table_ptr, start, full_start, full_end, end, seq_len,
        positions, scale_log2, stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
        WINDOW, HEAD_DIM, BLOCK_SIZE, BLOCK_M, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip
    at = out_ptr + sequence * stride_ob + (head * stride_oh)[:, None] + piece * stride_os + d[None, :]
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=there)
    if SPLIT:
        tl.store(lse_ptr, lse, mask=row < GROUP)


@triton.jit
def merge_kernel(
    partial_ptr, lse_ptr, out_ptr, num_pieces, stride_ob, stride_oh, num_heads,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One program: one head of one sequence, whose BLOCK_S pieces fit in registers. Grid (sequences, heads)."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    piece = tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    first = (sequence * num_heads + head) * num_pieces
    lse = tl.load(lse_ptr + first + piece, mask=piece < num_pieces, other=float("-inf"))
    peak = tl.max(lse, 0)
    weights = tl.exp(lse - tl.where(peak == float("-inf"), 0.0, peak))  # 0 for an empty piece, and all are where nothing is seen
    # NaN weighs nothing here, but in `total` and in its product with 0 it stays NaN: a wrong piece makes a wrong result
    there = (weights > 0)[:, None] & (d[None, :] < HEAD_DIM)
    partial = tl.load(partial_ptr + (first + piece)[:, None] * HEAD_DIM + d[None, :], mask=there, other=0.0)
    total = tl.sum(weights, 0)
    out = tl.sum(weights[:, None] * partial, 0) / tl.where(total == 0, 1.0, total)
    at = out_ptr + sequence * stride_ob + head * stride_oh + d
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=d < HEAD_DIM)


def choose_num_splits(num_groups: int, context: int, sms: int) -> int:
    """Into how many pieces to cut each sequence. num_groups: sequences × key-value heads, the programs there are without a cut.
    context: tokens that the longest sequence may have. sms: the card's multiprocessors.

    Enough pieces for two programs a multiprocessor, so that one computes while the other waits for memory, unless they would be
    shorter than SHORTEST_SPLIT. It rounds down: a few programs over would cost a second round."""
    enough = 2 * sms // max(1, num_groups)
    return max(1, min(enough, context // SHORTEST_SPLIT, MAX_SPLITS))


def paged_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, max_seq_len: int, *,
    scale: float | None = None, sliding_window: int | None = None, num_splits: int | None = None, out: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    """Attention of B sequences' newest tokens over their blocks. Shapes: see the module.

    max_seq_len: an upper limit of seq_lens, a number, so that nothing waits for the GPU; with it choose_num_splits says how far
    to cut, and the result is right whatever it is. Cache slots past a sequence's end must be finite. scale: None: D ** -0.5. out:
    where to write, or None. Returns [B, H, D] in q's dtype. Raises ValueError, TypeError; block ids outside the cache are not
    noticed."""
    require(q.ndim == 3, f"q has {q.ndim} dimensions; [sequences, heads, head_dim] are needed")
    require(k_cache.ndim == 4, f"k_cache has {k_cache.ndim} dimensions; [blocks, kv heads, head_dim, block_size] are needed")
    batch, num_heads, head_dim = q.shape
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[3]
    group = max(1, num_heads // max(1, num_kv_heads))
    tiles = tiles or paged_decode_tiles(head_dim, q.element_size(), group)
    out = check_paged(q, k_cache, v_cache, block_tables, seq_lens, out, 1)
    check_score(scale, sliding_window)
    check_shape([batch], seq_lens=seq_lens)
    require(tiles.BLOCK_M >= group, f"BLOCK_M {tiles.BLOCK_M} does not hold a group of {group} heads")
    require(num_splits is None or 0 < num_splits <= MAX_SPLITS, f"num_splits is {num_splits}; 1 to {MAX_SPLITS} are possible")
    if 0 in (batch, num_heads):
        return out
    if num_splits is None:
        context = max_seq_len if sliding_window is None else min(max_seq_len, sliding_window)
        num_splits = choose_num_splits(batch * num_kv_heads, context, num_sms(q.device))
    partial, lse, strides = out, out, (*out.stride()[:2], 0)
    if num_splits > 1:
        partial = torch.empty(batch, num_heads, num_splits, head_dim, dtype=torch.float32, device=q.device)
        lse = torch.empty(batch, num_heads, num_splits, dtype=torch.float32, device=q.device)
        strides = partial.stride()[:3]
    paged_decode_kernel[batch, num_kv_heads, num_splits](
        q, k_cache, v_cache, partial, lse, block_tables, seq_lens, (scale or head_dim**-0.5) * LOG2_E,
        *q.stride()[:2], *strides, *k_cache.stride(), *v_cache.stride(), block_tables.stride(0),
        GROUP=group, SPLIT=num_splits > 1, WINDOW=sliding_window or 0, HEAD_DIM=head_dim, BLOCK_SIZE=block_size,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)), BLOCK_M=tiles.BLOCK_M, BLOCK_N=tiles.BLOCK_N,
        PRECISION=dot_precision(q.dtype), num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out if num_splits == 1 else merge_splits(partial, lse, out=out)


def merge_splits(partial: Tensor, lse: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Merge attention over pieces of the keys into attention over all of them.

    partial [B, H, S, D] float32: outputs of S <= MAX_SPLITS pieces. lse [B, H, S] float32: their log-sum-exps, natural; −inf for
    a piece without keys, whose output may then be anything. out: [B, H, D] in any float dtype; None: a new one in float32."""
    check_tensors((torch.float32,), partial=partial, lse=lse)
    require(partial.ndim == 4, f"partial has {partial.ndim} dimensions; [sequences, heads, pieces, head_dim] are needed")
    batch, num_heads, pieces, head_dim = partial.shape
    check_shape([batch, num_heads, pieces], lse=lse)
    require(0 < pieces <= MAX_SPLITS, f"{pieces} pieces cannot be merged; 1 to {MAX_SPLITS} can")
    require(num_heads < GRID_LIMIT, f"{num_heads} heads: a launch takes at most {GRID_LIMIT - 1}; split them")
    out = torch.empty(batch, num_heads, head_dim, device=partial.device) if out is None else out
    check_tensors(partial=partial, out=out)
    check_shape([batch, num_heads, head_dim], out=out)
    check_last_dim_contiguous(out=out)
    if 0 in (batch, num_heads):
        return out
    block_d, block_s = triton.next_power_of_2(head_dim), triton.next_power_of_2(pieces)
    merge_kernel[batch, num_heads](
        partial.contiguous(), lse.contiguous(), out, pieces, *out.stride()[:2], num_heads,
        HEAD_DIM=head_dim, BLOCK_D=block_d, BLOCK_S=block_s, num_warps=4 if block_d * block_s <= 2**14 else 8,
    )  # fmt: skip
    return out


def merge_splits_torch(partial: Tensor, lse: Tensor, *, out: Tensor | None = None) -> Tensor:
    """merge_splits in plain torch."""
    peak = lse.amax(-1, keepdim=True)
    weights = torch.exp(lse - peak.masked_fill(peak == -torch.inf, 0.0))
    weights = weights / weights.sum(-1, keepdim=True).masked_fill(peak == -torch.inf, 1.0)
    merged = torch.where(weights[..., None] != 0, weights[..., None] * partial, 0.0).sum(-2)
    return merged if out is None else out.copy_(merged)


def paged_decode_torch(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, max_seq_len: int, *,
    scale: float | None = None, sliding_window: int | None = None, num_splits: int | None = None, out: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    """paged_decode in plain torch, one sequence at a time. `max_seq_len`, `num_splits` and `tiles` change nothing here."""
    starts = torch.arange(len(q) + 1)
    return paged_attention_torch(
        q, k_cache, v_cache, block_tables, starts, seq_lens, 1, scale=scale, sliding_window=sliding_window, out=out
    )


def paged_decode_bytes(
    seq_lens: Sequence[int], num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, itemsize: int, tiles: Tiles, *,
    num_splits: int = 1, sliding_window: int | None = None, index_itemsize: int = 8,
) -> dict[str, int]:  # fmt: skip
    """Bytes that both launches request, by tensor; of seq_lens, one number a program, nothing is counted. A piece reads q
    anew."""
    tokens = pieces = 0
    for seq_len in seq_lens:
        start = 0 if sliding_window is None else max(seq_len - sliding_window, 0) // tiles.BLOCK_N * tiles.BLOCK_N
        num_tiles = triton.cdiv(seq_len - start, tiles.BLOCK_N)
        in_use = triton.cdiv(seq_len, block_size) * block_size
        tokens += max(0, min(start + num_tiles * tiles.BLOCK_N, in_use) - start)
        pieces += triton.cdiv(num_tiles, max(1, triton.cdiv(num_tiles, num_splits))) if num_splits > 1 else 1
    kv = tokens * num_kv_heads * head_dim * itemsize
    head = head_dim * itemsize
    moved = {"q": pieces * num_heads * head, "k_cache": kv, "v_cache": kv, "out": len(seq_lens) * num_heads * head}
    moved["block_tables"] = tokens * num_kv_heads * index_itemsize
    if num_splits > 1:
        written = pieces * num_heads * head_dim * 4
        moved |= {"partial": 2 * written, "lse": 2 * len(seq_lens) * num_splits * num_heads * 4}
    return moved


def _shipped(model: str, head_dim: int, group: int, split: bool) -> Shipped:
    """16-token blocks of the engine's cache, as paged_decode launches them."""
    tiles = paged_decode_tiles(head_dim, 2, group)
    strides = [f"stride_{name}" for name in ("qb", "qh", "ob", "oh", "os", "kb", "kh", "kd", "vb", "vh", "vs", "table")]
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*bf16")
    pointers |= dict.fromkeys(("out_ptr", "lse_ptr"), "*fp32" if split else "*bf16")
    indices = {"table_ptr": "*i64", "seq_lens_ptr": "*i32"}
    return Shipped(
        name=f"paged_decode.bf16.{model}" + (".split" if split else ""),
        kernel="minillm.kernels.paged_decode:paged_decode_kernel",
        signature=pointers | indices | {"scale_log2": "fp32"} | dict.fromkeys(strides, "i32"),
        constexprs={
            "stride_ks": 1, "stride_vd": 1, "GROUP": group, "SPLIT": split, "WINDOW": 0, "HEAD_DIM": head_dim, "BLOCK_SIZE": 16,
            "BLOCK_D": head_dim, "BLOCK_M": tiles.BLOCK_M, "BLOCK_N": tiles.BLOCK_N, "PRECISION": dot_precision(torch.bfloat16),
        },
        aligned=(*pointers, *indices, *(name for name in strides if name != "stride_table")),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        has_dot=True,
    )  # fmt: skip


def _shipped_merge(model: str, head_dim: int, pieces: int) -> Shipped:
    pointers = {"partial_ptr": "*fp32", "lse_ptr": "*fp32", "out_ptr": "*bf16"}
    return Shipped(
        name=f"paged_decode.merge.{model}.{pieces}",
        kernel="minillm.kernels.paged_decode:merge_kernel",
        signature=pointers | dict.fromkeys(("num_pieces", "stride_ob", "stride_oh", "num_heads"), "i32"),
        constexprs={"HEAD_DIM": head_dim, "BLOCK_D": head_dim, "BLOCK_S": pieces},
        aligned=(*pointers, "stride_ob", "stride_oh"),
    )


SHIPPED = (
    _shipped("llama-3.1-8b", 128, 4, split=False),
    _shipped("llama-3.1-8b", 128, 4, split=True),
    _shipped("smollm2-135m", 64, 3, split=True),
    _shipped_merge("llama-3.1-8b", 128, 32),
)
