"""Keys and values in blocks, wherever they lie: the loop that paged attention and paged decode share.

A sequence's token n lies in block table[n // block_size], slot n % block_size (Kwon et al. 2023, arXiv 2309.06180). A tile takes
BLOCK_N consecutive tokens, from as many blocks as that is, and looks up each token's block.

Loads stay wide because the mask follows blocks, not tokens: a block in use is read whole, up to the end of the tile. What lies
past the sequence's end in its last block must be finite, and is given the score −inf. A mask that changed from token to token
would cut loads of keys, which lie side by side as [head_dim, block_size], into single elements.
"""

from __future__ import annotations

from minillm.kernels.online_softmax import finish, update
from minillm.kernels.runtime import tl, triton


@triton.jit
def walk_blocks(
    acc, peak, total, q, k_ptr, v_ptr, table_ptr, start, end, seq_len, positions, scale_log2,
    stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
    MASKED: tl.constexpr, WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take in tokens [start, end) of one sequence, in whole tiles: start, and without MASKED end, multiples of BLOCK_N; q [M,
    BLOCK_D] at `positions` [M]. MASKED: not every row sees all of them, or the sequence ends within a tile. k_ptr, v_ptr: block 0
    of this key-value head."""
    d = tl.arange(0, BLOCK_D)
    in_tile = tl.arange(0, BLOCK_N)
    for tile in range(start // BLOCK_N, tl.cdiv(end, BLOCK_N)):
        tokens = tile * BLOCK_N + in_tile  # a product, which the compiler sees to be a multiple of 16: loads stay wide
        index = tokens // BLOCK_SIZE
        slot = tokens % BLOCK_SIZE
        if MASKED:
            in_use = index < tl.cdiv(seq_len, BLOCK_SIZE)
            block = tl.load(table_ptr + index, mask=in_use, other=0).to(tl.int64)  # a cache may hold more than 2³¹ elements
        else:
            block = tl.load(table_ptr + index).to(tl.int64)
        k_at = k_ptr + (block * stride_kb + slot * stride_ks)[None, :] + d[:, None] * stride_kd
        v_at = v_ptr + (block * stride_vb + slot * stride_vs)[:, None] + d[None, :] * stride_vd
        if MASKED:
            k = tl.load(k_at, mask=in_use[None, :] & (d[:, None] < HEAD_DIM), other=0.0)
        elif BLOCK_D != HEAD_DIM:
            k = tl.load(k_at, mask=d[:, None] < HEAD_DIM, other=0.0)
        else:
            k = tl.load(k_at)
        scores = tl.dot(q, k, input_precision=PRECISION)
        if MASKED:
            visible = tokens[None, :] <= positions[:, None]
            if WINDOW > 0:
                visible = visible & (tokens[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        weights, correction, peak, total = update(scores, scale_log2, peak, total)
        if MASKED:
            v = tl.load(v_at, mask=in_use[:, None] & (d[None, :] < HEAD_DIM), other=0.0)
        elif BLOCK_D != HEAD_DIM:
            v = tl.load(v_at, mask=d[None, :] < HEAD_DIM, other=0.0)
        else:
            v = tl.load(v_at)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)
    return acc, peak, total


@triton.jit
def attend_blocks(
    q, k_ptr, v_ptr, table_ptr, start, full_start, full_end, end, seq_len, positions, scale_log2,
    stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
    WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attention of a tile of queries over one sequence's tokens [start, end), of which [full_start, full_end) need no mask (see
    key_range). Returns the output [BLOCK_M, BLOCK_D] float32 and the log-sum-exp [BLOCK_M], natural."""
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if WINDOW > 0:  # the window's far edge
        acc, peak, total = walk_blocks(
            acc, peak, total, q, k_ptr, v_ptr, table_ptr, start, full_start, seq_len, positions, scale_log2,
            stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
            True, WINDOW, HEAD_DIM, BLOCK_SIZE, BLOCK_D, BLOCK_N, PRECISION,
        )  # fmt: skip
    acc, peak, total = walk_blocks(
        acc, peak, total, q, k_ptr, v_ptr, table_ptr, full_start, full_end, seq_len, positions, scale_log2,
        stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
        False, WINDOW, HEAD_DIM, BLOCK_SIZE, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip
    acc, peak, total = walk_blocks(
        acc, peak, total, q, k_ptr, v_ptr, table_ptr, full_end, end, seq_len, positions, scale_log2,
        stride_kb, stride_kd, stride_ks, stride_vb, stride_vs, stride_vd,
        True, WINDOW, HEAD_DIM, BLOCK_SIZE, BLOCK_D, BLOCK_N, PRECISION,
    )  # fmt: skip
    return finish(acc, peak, total)
