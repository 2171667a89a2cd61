"""What all attention kernels share: which keys a tile of queries sees, and a softmax that meets its row piece by piece.

softmax(s)·v needs the maximum and the sum of a whole row of scores s. Read in pieces, it keeps three numbers a row, always right
for the keys met so far (Milakov & Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135, algorithm 1):

    m  the largest score,   l = Σ exp(s − m),   acc = Σ exp(s − m)·v

A new piece may raise m to m'. What was summed so far was taken relative to m, so it is multiplied by exp(m − m') first. In the
end acc / l is the output and m + ln l the row's log-sum-exp.

Hardware computes 2^x, not e^x. Scores are therefore multiplied by scale·log2(e) in place of scale, and m is kept in those units.
"""

from __future__ import annotations

import math

from minillm.kernels.runtime import tl, triton

LOG2_E = math.log2(math.e)
LN_2 = tl.constexpr(math.log(2))


@triton.jit
def key_range(first, last, num_keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BLOCK_N: tl.constexpr):
    """The keys that queries at positions first … last see, cut at multiples of BLOCK_N: (start, full_start, full_end, end).

    Every query sees every key of [full_start, full_end), so that no mask is needed there; some see some of [start, full_start)
    and [full_end, end); nobody sees any other. WINDOW 0 means none, and a window goes with CAUSAL only.
    """
    start = 0
    full_start = 0
    end = num_keys
    full_end = num_keys // BLOCK_N * BLOCK_N
    if CAUSAL:
        end = tl.maximum(tl.minimum(num_keys, last + 1), 0)
        full_end = tl.maximum(tl.minimum(num_keys, first + 1), 0) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        start = tl.maximum(first - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        # the last query's window begins last; in a narrow one no block is seen by all, and the first loop takes everything
        full_start = tl.cdiv(tl.maximum(last - WINDOW + 1, 0), BLOCK_N) * BLOCK_N
        full_start = tl.minimum(full_start, tl.cdiv(end, BLOCK_N) * BLOCK_N)
        full_end = tl.maximum(full_end, full_start)
    return start, full_start, full_end, end


@triton.jit
def update(scores, scale_log2, peak, total):
    """Take in one piece of each row: scores [M, N], unscaled, −inf where unseen; peak and total [M] are m, in units of log2, and
    l.

    Returns (weights [M, N], the factor [M] that brings earlier sums to the new peak, peak, total)."""
    new_peak = tl.maximum(peak, tl.max(scores, 1) * scale_log2)
    # a row that has seen nothing yet: −inf − (−inf) would be NaN, −inf − 0 gives weights of 0
    shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weights = tl.exp2(scores * scale_log2 - shift[:, None])  # one fused multiply-add and one exp2 a score
    correction = tl.exp2(peak - shift)
    return weights, correction, new_peak, total * correction + tl.sum(weights, 1)


@triton.jit
def finish(acc, peak, total):
    """(output [M, D], log-sum-exp [M], natural): 0 and −inf for rows that saw no key; NaN in both where a score was NaN or +inf,
    so that a piece that went wrong cannot pass for an empty one."""
    seen = tl.where(total == 0, 1.0, total)
    return acc / seen[:, None], tl.where(total == 0, float("-inf"), (peak + tl.log2(seen)) * LN_2)
