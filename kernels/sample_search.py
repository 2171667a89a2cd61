"""What sampling needs of a row of logits that no program can hold: its maximum, a border in its order, a place in its sums.

Each function walks over the row block by block. None sorts: the k-th largest logit, or the weight at the edge of a nucleus, is a
border c for which "count of what is ≥ c" or "mass of what is ≥ c" crosses a given number. Both fall as c grows, so c is found by
bisection, over the bits of a float32: its order is that of integers. Each step jumps from the middle to the next number that
occurs in the row, and so ends after some log2(number of distinct ones) steps, at most 32; with bfloat16 logits, about 10.
"""

from __future__ import annotations

from minillm.kernels.runtime import tl, triton

LOWEST = tl.constexpr(-(2**31))  # below every key
MINUS_INF = tl.constexpr(-2139095041)  # order(−inf)
PLUS_INF = tl.constexpr(0x7F800000)  # order(+inf); NaN is above
ONE = tl.constexpr(0x3F800000)  # the bits of 1.0


@triton.jit
def order(x):
    """float32 -> int32 in the same order: −inf lowest, −0 and 0 equal, NaN of any sign on top."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # of negative numbers, larger bits mean less
    return tl.where(x != x, 0x7FFFFFFF, key)


@triton.jit
def number(key):
    """The float32 of which `key` is the order."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def largest(x_ptr, length, BLOCK: tl.constexpr):
    """(order of the row's largest logit, index of its first occurrence)."""
    # Each lane keeps its own best; a later equal one does not replace it, so it keeps the first.
    best = tl.full([BLOCK], LOWEST, tl.int32)
    place = tl.zeros([BLOCK], tl.int32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        key = order(tl.load(x_ptr + i, mask=i < length, other=-float("inf")).to(tl.float32))
        better = (key > best) & (i < length)
        best = tl.where(better, key, best)
        place = tl.where(better, i, place)
    top = tl.max(best, axis=0)
    return top, tl.min(tl.where(best == top, place, length), axis=0)


@triton.jit
def middle(low, high):
    """⌊(low + high) / 2⌋ without overflow."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit
def kth_largest(x_ptr, length, k, top, BLOCK: tl.constexpr):
    """order of the k-th largest logit, 1 <= k <= length. top: of the largest."""
    low, high = MINUS_INF + 0 * top, top + 1  # at least k logits are >= low, fewer are >= high
    while low + 1 < high:
        mid = middle(low, high)
        counts = tl.zeros([BLOCK], tl.int32)
        above = tl.full([BLOCK], 0x7FFFFFFF, tl.int32)
        below = tl.full([BLOCK], LOWEST, tl.int32)
        for start in range(0, length, BLOCK):
            i = start + tl.arange(0, BLOCK)
            inside = i < length
            key = order(tl.load(x_ptr + i, mask=inside, other=-float("inf")).to(tl.float32))
            reached = (key >= mid) & inside
            counts += reached.to(tl.int32)
            above = tl.where(reached, tl.minimum(above, key), above)
            below = tl.where(reached, below, tl.maximum(below, key))
        count = tl.sum(counts, axis=0)
        lowest_above = tl.min(above, axis=0)
        enough = count >= k
        low = tl.where(enough, lowest_above, low)
        # exactly k of them: the lowest is the k-th
        high = tl.where(count == k, lowest_above + 1, tl.where(enough, high, tl.max(below, axis=0) + 1))
    return low


@triton.jit
def weights_at(x_ptr, i, length, peak, inverse_temperature, kth, min_p, edge, last):
    """Weights of the logits at i, 1 for the largest: exp((x − peak) / temperature), and 0 for what may not be drawn.

    Kept are logits not below kth, if their weights reach min_p, exceed `edge`, or equal it at an index up to `last`.
    """
    x = tl.load(x_ptr + i, mask=i < length, other=-float("inf")).to(tl.float32)
    weight = tl.exp((x - peak) * inverse_temperature)
    kept = (order(x) >= kth) & (weight >= min_p) & ((weight > edge) | ((weight == edge) & (i <= last)))
    return tl.where(kept & (i < length), weight, 0.0)


@triton.jit
def mass_from(x_ptr, length, peak, inverse_temperature, kth, min_p, border, BLOCK: tl.constexpr):
    """Over the candidates (logits not below kth, weights of at least min_p), weights seen as their bits, which are in order:
    (mass of those >= border, as float64; lowest of those; highest of the others)."""
    mass = tl.cast(0.0, tl.float64)
    above = tl.full([BLOCK], 0x7FFFFFFF, tl.int32)
    below = tl.zeros([BLOCK], tl.int32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        weight = weights_at(x_ptr, i, length, peak, inverse_temperature, kth, min_p, 0.0, -1)
        bits = weight.to(tl.int32, bitcast=True)
        reached = bits >= border
        # float32 within a block, whose sum is a shallow tree; float64 from block to block
        mass += tl.sum(tl.where(reached, weight, 0.0), axis=0).to(tl.float64)
        above = tl.where(reached, tl.minimum(above, bits), above)
        below = tl.where(reached, below, tl.maximum(below, bits))
    return mass, tl.min(above, axis=0), tl.max(below, axis=0)


@triton.jit
def nucleus_edge(x_ptr, length, peak, inverse_temperature, kth, min_p, top_p, BLOCK: tl.constexpr):
    """(edge, last): the smallest set of the likeliest candidates whose weights reach the share top_p < 1 of their mass consists
    of the weights above edge, and of those equal to it with an index up to last."""
    mass, _, _ = mass_from(x_ptr, length, peak, inverse_temperature, kth, min_p, 0, BLOCK)
    wanted = top_p * mass
    # Fewer than `length` weights below c have less than length · c of mass. So all that is >= (1 − top_p) · mass / length has
    # the share top_p: bisection may start there (a little lower, as sums are rounded). Nothing is >= the successor of 1.
    low = (0.99 * (mass - wanted) / length).to(tl.float32).to(tl.int32, bitcast=True)
    high = ONE + 1 + 0 * low
    while low + 1 < high:
        reached, lowest_above, highest_below = mass_from(
            x_ptr, length, peak, inverse_temperature, kth, min_p, middle(low, high), BLOCK
        )
        enough = reached >= wanted
        low = tl.where(enough, lowest_above, low)
        high = tl.where(enough, high, highest_below + 1)
    edge = low.to(tl.float32, bitcast=True)

    # Of equal weights at the edge, the first ones, as many as are needed.
    above, _, _ = mass_from(x_ptr, length, peak, inverse_temperature, kth, min_p, low + 1, BLOCK)
    needed = tl.maximum(tl.ceil((wanted - above) / edge.to(tl.float64)), 1.0)
    last = first_passing(x_ptr, length, peak, inverse_temperature, kth, min_p, edge, length, needed - 0.5, BLOCK, True)
    return edge, last


@triton.jit
def first_passing(
    x_ptr, length, peak, inverse_temperature, kth, min_p, edge, last, target, BLOCK: tl.constexpr, TIES: tl.constexpr
):
    """The first index at which the cumulative weight of what is kept exceeds target, or, with TIES, at which the number of
    weights equal to edge does; `length` if none."""
    before = tl.cast(0.0, tl.float64)  # what the blocks ahead of the one at `start` hold
    start = 0 * length
    ahead = True
    while ahead & (start < length):
        i = start + tl.arange(0, BLOCK)
        value = weights_at(x_ptr, i, length, peak, inverse_temperature, kth, min_p, edge, last)
        if TIES:
            value = (value == edge).to(tl.float32)
        block_sum = tl.sum(value, axis=0).to(tl.float64)
        ahead = before + block_sum <= target
        before = tl.where(ahead, before + block_sum, before)
        start = tl.where(ahead, start + BLOCK, start)

    i = start + tl.arange(0, BLOCK)  # the block that passes the target, once more; none: all beyond the row, all 0
    value = weights_at(x_ptr, i, length, peak, inverse_temperature, kth, min_p, edge, last)
    if TIES:
        value = (value == edge).to(tl.float32)
    beyond = (before + tl.cumsum(value.to(tl.float64), axis=0) > target) & (value > 0)
    first = tl.min(tl.where(beyond, i, length), axis=0)
    # The float32 sum may pass a target that the float64 one just misses: then it is the block's last.
    final = tl.max(tl.where(value > 0, i, 0), axis=0)
    return tl.where(start < length, tl.minimum(first, final), length)
