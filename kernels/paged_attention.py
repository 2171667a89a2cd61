"""Attention of a flat batch of prompts, chunks of prompts and single tokens over a paged key-value cache.

Mathematics. softmax(q·kᵀ·scale)·v, causal: token i of a sequence sees that sequence's tokens up to itself, with a sliding window
W the last W of them. Its queries are the last of the sequence's seq_len tokens; all keys and values, theirs included, are in the
cache.

Tiles. The H / KV query heads that share a key-value head share a tile: row r is token r // G, head r % G, so that one read of K
and V serves them all, and single tokens still fill some rows of the matrix product. Sequence i's tiles of BLOCK_Q = BLOCK_M // G
tokens begin at query_start_loc[i] // BLOCK_Q + i, a rising row of numbers in which each program finds its sequence by bisection.
So T // BLOCK_Q + B programs a head are enough for whatever lengths, and the grid needs no number that is on the GPU.

Shapes. q [T, H, D]; k_cache [blocks, KV, D, block_size] and v_cache [blocks, KV, block_size, D], of any strides: the engine's
cache is minillm.kv.storage.keys(layer) and values(layer). block_tables [B, W] int32 or int64, query_start_loc [B + 1] and
seq_lens [B] int32. Loads are 128 bits wide if D is contiguous for values and either for keys, and blocks hold 8 tokens of 16 bits
or a multiple of it. Dtypes. bfloat16, float16, float32; float32 accumulation, weights rounded to the dtype before they meet V.

Bytes moved. Q read and O written once: 2·T·H·D elements. K and V, for each tile of queries once: with chunks of t tokens after a
context of c, ⌈t / BLOCK_Q⌉ · 2·KV·D·(c + ~t/2) elements, in whole tiles of BLOCK_N tokens that end with the last block in use;
and block_tables' number once a token of these (one a block, were it not for the requests that the cache answers).
`paged_attention_bytes` is exact. Not packing the heads would read K and V G times: 4 for Llama-3.1-8B.

Sources: Kwon et al. 2023, arXiv 2309.06180; Dao 2023, arXiv 2307.08691; Ainslie et al. 2023, arXiv 2305.13245 (shared heads).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minillm.kernels.attention_checks import check_paged, check_score
from minillm.kernels.attention_tiles import Tiles, compute_capability, dot_precision, paged_attention_tiles
from minillm.kernels.checks import check_last_dim_contiguous, check_shape, check_tensors, require
from minillm.kernels.flash_attention import flash_attention_torch, keys_read
from minillm.kernels.online_softmax import LOG2_E, key_range
from minillm.kernels.paged_walk import attend_blocks
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def find_sequence(query_start_loc_ptr, tile, num_seqs, BLOCK_Q: tl.constexpr):
    """The last sequence whose first tile is not after this one."""
    low = 0
    high = num_seqs
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start_loc_ptr + middle) // BLOCK_Q + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, table_ptr, query_start_loc_ptr, seq_lens_ptr, num_seqs, scale_log2,
    stride_qt, stride_qh, stride_ot, stride_oh, stride_kb, stride_kh, stride_kd, stride_ks,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_table,
    GROUP: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M // GROUP tokens of one sequence, all heads of one group. Grid (tiles, key-value heads)."""
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    tile = tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    sequence = find_sequence(query_start_loc_ptr, tile, num_seqs, BLOCK_Q)
    q_start = tl.load(query_start_loc_ptr + sequence)
    query_len = tl.load(query_start_loc_ptr + sequence + 1) - q_start
    first_token = (tile - q_start // BLOCK_Q - sequence) * BLOCK_Q
    if first_token >= query_len:  # between two sequences' tiles there may be one that neither needs
        return

    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    token = row // GROUP
    head = (row % GROUP).to(tl.int64)  # heads may lie outermost, 2³¹ elements apart and more
    rows_there = (token < BLOCK_Q) & (first_token + token < query_len)
    there = rows_there[:, None] & (d[None, :] < HEAD_DIM)
    first_query = (q_start + first_token).to(tl.int64)
    first_head = kv_head * GROUP
    q_ptr += first_query * stride_qt + first_head * stride_qh
    q = tl.load(q_ptr + (token * stride_qt + head * stride_qh)[:, None] + d[None, :], mask=there, other=0.0)

    seq_len = tl.load(seq_lens_ptr + sequence)
    first = seq_len - query_len + first_token
    last = seq_len - query_len + tl.minimum(first_token + BLOCK_Q, query_len) - 1
    positions = first + token
    start, full_start, full_end, end = key_range(first, last, seq_len, True, WINDOW, BLOCK_N)
    k_ptr += kv_head * stride_kh
    v_ptr += kv_head * stride_vh
    table_ptr += tl.cast(sequence, tl.int64) * stride_table
    out, _ = attend_blocks(
        q, k_ptr, v_ptr, table_ptr, start, full_start, full_end, end, seq_len, positions, scale_log2,
        stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
        WINDOW, HEAD_DIM, BLOCK_SIZE, BLOCK_M, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip
    out_ptr += first_query * stride_ot + first_head * stride_oh
    at = out_ptr + (token * stride_ot + head * stride_oh)[:, None] + d[None, :]
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=there)


def paged_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, query_start_loc: Tensor, seq_lens: Tensor,
    max_query_len: int, *, scale: float | None = None, sliding_window: int | None = None, out: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    """Causal attention of B sequences' newest tokens, T in all, over their blocks. Shapes: see the module.

    query_start_loc: 0, then where each sequence's queries end. seq_lens: tokens in the cache, a sequence's queries included; 0 is
    allowed where there are no queries. max_query_len: the most queries of a sequence, from which tiles are chosen. Cache slots
    past a sequence's end must be finite. scale: None: D ** -0.5. out: where to write, or None. Returns [T, H, D] in q's dtype.
    Raises ValueError, TypeError; block ids outside the cache are not noticed."""
    require(k_cache.ndim == 4, f"k_cache has {k_cache.ndim} dimensions; [blocks, kv heads, head_dim, block_size] are needed")
    num_kv_heads, head_dim, block_size = k_cache.shape[1:]
    require(q.ndim == 3, f"q has {q.ndim} dimensions; [tokens, heads, head_dim] are needed")
    num_tokens, num_heads, _ = q.shape
    group = max(1, num_heads // max(1, num_kv_heads))
    sm = compute_capability(q.device)
    tiles = tiles or paged_attention_tiles(head_dim, q.element_size(), group, max_query_len, sm)
    out = check_paged(q, k_cache, v_cache, block_tables, seq_lens, out, tiles.BLOCK_M)
    check_score(scale, sliding_window)
    check_tensors((torch.int32,), query_start_loc=query_start_loc)
    check_shape([len(seq_lens) + 1], query_start_loc=query_start_loc)
    check_last_dim_contiguous(query_start_loc=query_start_loc)
    require(tiles.BLOCK_M >= group, f"BLOCK_M {tiles.BLOCK_M} holds no token of a group of {group} heads")
    num_seqs = len(seq_lens)
    if 0 in (num_tokens, num_seqs, num_heads):
        return out
    grid = (num_tokens // (tiles.BLOCK_M // group) + num_seqs, num_kv_heads)
    paged_attention_kernel[grid](
        q, k_cache, v_cache, out, block_tables, query_start_loc, seq_lens, num_seqs, (scale or head_dim**-0.5) * LOG2_E,
        *q.stride()[:2], *out.stride()[:2], *k_cache.stride(), *v_cache.stride(), block_tables.stride(0),
        GROUP=group, WINDOW=sliding_window or 0, HEAD_DIM=head_dim, BLOCK_SIZE=block_size,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)), BLOCK_M=tiles.BLOCK_M, BLOCK_N=tiles.BLOCK_N,
        PRECISION=dot_precision(q.dtype), num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out


def paged_attention_torch(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, query_start_loc: Tensor, seq_lens: Tensor,
    max_query_len: int, *, scale: float | None = None, sliding_window: int | None = None, out: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    """paged_attention in plain torch: each sequence's tokens gathered, then flash_attention_torch. `tiles` changes nothing
    here."""
    out = torch.empty_like(q) if out is None else out
    ends = query_start_loc.tolist()
    for i, seq_len in enumerate(seq_lens.tolist()):
        rows = slice(ends[i], ends[i + 1])
        k, v = gather(k_cache, v_cache, block_tables[i], seq_len)
        out[rows] = flash_attention_torch(q[None, rows], k[None], v[None], scale=scale, sliding_window=sliding_window)[0][0]
    return out


def gather(k_cache: Tensor, v_cache: Tensor, blocks: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
    """A sequence's keys and values in order, each [seq_len, KV, D], a copy. blocks: its row of the block table."""
    blocks = blocks[: triton.cdiv(seq_len, k_cache.shape[-1])].long()
    k, v = k_cache[blocks].permute(0, 3, 1, 2), v_cache[blocks].permute(0, 2, 1, 3)
    return k.flatten(0, 1)[:seq_len], v.flatten(0, 1)[:seq_len]


def paged_attention_bytes(
    query_lens: Sequence[int], seq_lens: Sequence[int], num_heads: int, num_kv_heads: int, head_dim: int, block_size: int,
    itemsize: int, tiles: Tiles, *, sliding_window: int | None = None, index_itemsize: int = 8,
) -> dict[str, int]:  # fmt: skip
    """Bytes that a launch requests, by tensor; of the two lists of lengths, a few numbers a program, nothing is counted."""
    block_q = tiles.BLOCK_M // (num_heads // num_kv_heads)
    tokens = 0  # keys read for one key-value head
    for query_len, seq_len in zip(query_lens, seq_lens, strict=True):
        written = triton.cdiv(seq_len, block_size) * block_size
        for first in range(0, query_len, block_q):
            at = seq_len - query_len + first
            last = seq_len - query_len + min(first + block_q, query_len) - 1
            tokens += keys_read(at, last, written, tiles.BLOCK_N, sliding_window)
    kv = tokens * num_kv_heads * head_dim * itemsize
    rows = sum(query_lens) * num_heads * head_dim * itemsize
    return {"q": rows, "k_cache": kv, "v_cache": kv, "block_tables": tokens * num_kv_heads * index_itemsize, "out": rows}


def _shipped(model: str, head_dim: int, group: int, max_query_len: int, sm: int = 0) -> Shipped:
    """Chunks of a prompt, 16-token blocks of the engine's cache, as paged_attention launches them."""
    tiles = paged_attention_tiles(head_dim, 2, group, max_query_len, sm)
    strides = ["qt", "qh", "ot", "oh", "kb", "kh", "kd", "vb", "vh", "vs", "table"]
    pointers = {f"{name}_ptr": "*bf16" for name in ("q", "k", "v", "out")}
    indices = {"table_ptr": "*i64", "query_start_loc_ptr": "*i32", "seq_lens_ptr": "*i32"}
    aligned = [f"stride_{name}" for name in strides if name != "table"]
    return Shipped(
        name=f"paged_attention.bf16.{model}.{max_query_len}" + (f".sm{sm}" if sm else ""),
        kernel="minillm.kernels.paged_attention:paged_attention_kernel",
        signature=pointers | indices | {"num_seqs": "i32", "scale_log2": "fp32"} | {f"stride_{name}": "i32" for name in strides},
        constexprs={
            "stride_ks": 1, "stride_vd": 1, "GROUP": group, "WINDOW": 0, "HEAD_DIM": head_dim, "BLOCK_SIZE": 16,
            "BLOCK_D": head_dim, "BLOCK_M": tiles.BLOCK_M, "BLOCK_N": tiles.BLOCK_N, "PRECISION": dot_precision(torch.bfloat16),
        },
        aligned=(*pointers, *indices, *aligned),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        has_dot=True,
        min_sm=sm or 80,
        max_sm=sm or None,
    )  # fmt: skip


SHIPPED = (
    _shipped("llama-3.1-8b", 128, 4, 512),
    _shipped("llama-3.1-8b", 128, 4, 512, sm=90),
    _shipped("llama-3.1-8b", 128, 4, 4),
    _shipped("smollm2-135m", 64, 3, 512),
)
