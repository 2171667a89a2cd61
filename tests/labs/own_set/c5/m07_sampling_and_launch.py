"""Answers to labs/c5/m07_sampling_and_launch.py, from its docstrings alone: see tests/labs/test_own_kernels.py."""

from __future__ import annotations

import torch
from minillm.kernels.argmax import block_for, check_logits, warps_for
from minillm.kernels.philox import uniform
from minillm.kernels.runtime import tl, triton
from minillm.kernels.sample_search import (
    MINUS_INF,
    ONE,
    PLUS_INF,
    kth_largest,
    mass_from,
    middle,
    number,
    order,
    weights_at,
)
from torch import Tensor

from labs.kit import exercise

# ---------------------------------------------------------------------------------------------------------------------- argmax


@triton.jit
def argmax_kernel(logits_ptr, token_ptr, stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    best, place = tl.full([BLOCK], MINUS_INF, tl.int32), lane
    for start in range(0, length, BLOCK):
        i = start + lane
        key = order(tl.load(logits_ptr + row * stride + i, mask=i < length, other=-float("inf")).to(tl.float32))
        place = tl.where(key > best, i, place)
        best = tl.maximum(best, key)
    first = tl.min(tl.where(best == tl.max(best, axis=0), place, length), axis=0)
    tl.store(token_ptr + row, first.to(tl.int64))


def launch_argmax(kernel, logits: Tensor) -> Tensor:
    """Given: one program a row. Refuses what no program could walk over."""
    check_logits(logits)
    rows, length = logits.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        block = block_for(length, logits.dtype)
        kernel[(rows,)](logits, tokens, logits.stride(0), length, BLOCK=block, num_warps=warps_for(block))
    return tokens


@exercise(reference="minillm.kernels.argmax:argmax", part="kernels.argmax")
def argmax(logits: Tensor) -> Tensor:
    return launch_argmax(argmax_kernel, logits)


# ---------------------------------------------------------------------------------------------------------------------- sample


@triton.jit
def largest_key(x_ptr, length, BLOCK: tl.constexpr):
    """Given: order of the row's largest logit. One pass."""
    best = tl.full([BLOCK], MINUS_INF, tl.int32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, order(tl.load(x_ptr + i, mask=i < length, other=-float("inf")).to(tl.float32)))
    return tl.max(best, axis=0)


@triton.jit
def first_with(x_ptr, length, key, BLOCK: tl.constexpr):
    """Given: the first index whose logit has this order. One pass."""
    first = length
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < length, other=-float("inf")).to(tl.float32)
        first = tl.minimum(first, tl.min(tl.where((order(x) == key) & (i < length), i, length), axis=0))
    return first


@triton.jit
def nth_equal(x_ptr, length, peak, inverse, kth, min_p, edge, n, BLOCK: tl.constexpr):
    """Given: the index of the n-th candidate, n >= 1, whose weight is the float32 `edge`. One pass."""
    found, place = 0 * length, length
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        equal = weights_at(x_ptr, i, length, peak, inverse, kth, min_p, edge, length) == edge
        rank = found + tl.cumsum(equal.to(tl.int32), axis=0)
        place = tl.minimum(place, tl.min(tl.where(equal & (rank == n), i, length), axis=0))
        found += tl.sum(equal.to(tl.int32), axis=0)
    return place


@triton.jit
def nucleus_edge(x_ptr, length, peak, inverse, kth, min_p, top_p, BLOCK: tl.constexpr):
    mass, _, _ = mass_from(x_ptr, length, peak, inverse, kth, min_p, 0 * kth, BLOCK)
    wanted = top_p * mass
    low = (0.99 * (1 - top_p) * mass / length).to(tl.float32).to(tl.int32, bitcast=True)
    high = ONE + 1 + 0 * low
    while low + 1 < high:
        border = middle(low, high)
        reached, lowest, highest = mass_from(x_ptr, length, peak, inverse, kth, min_p, border, BLOCK)
        enough = reached >= wanted
        low, high = tl.where(enough, lowest, low), tl.where(enough, high, highest + 1)
    edge = low.to(tl.float32, bitcast=True)
    above, _, _ = mass_from(x_ptr, length, peak, inverse, kth, min_p, low + 1, BLOCK)
    n = tl.maximum(tl.ceil((wanted - above) / edge.to(tl.float64)).to(tl.int32), 1)
    return edge, nth_equal(x_ptr, length, peak, inverse, kth, min_p, edge, n, BLOCK)


@triton.jit
def first_passing(x_ptr, length, peak, inverse, kth, min_p, edge, last, target, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    start, before = 0 * length, 0.0 * target
    behind = before + tl.sum(weights_at(x_ptr, lane, length, peak, inverse, kth, min_p, edge, last), axis=0).to(tl.float64)
    while (behind <= target) & (start + BLOCK < length):
        start += BLOCK
        before = behind
        weights = weights_at(x_ptr, start + lane, length, peak, inverse, kth, min_p, edge, last)
        behind += tl.sum(weights, axis=0).to(tl.float64)
    i = start + lane
    weights = weights_at(x_ptr, i, length, peak, inverse, kth, min_p, edge, last)
    passed = before + tl.cumsum(weights.to(tl.float64), axis=0) > target
    token = tl.min(tl.where(passed & (weights > 0), i, length), axis=0)
    # The float32 sum passed and this one may not have, by a rounding: then it is the last that weighs anything.
    return tl.where(token < length, token, tl.max(tl.where(weights > 0, i, 0), axis=0))


@triton.jit
def draw(x_ptr, length, top, temperature, k, min_p, top_p, u, BLOCK: tl.constexpr):
    peak = number(top)
    inverse = 1 / tl.minimum(tl.maximum(temperature, 1e-30), 1e30)
    kth = MINUS_INF + 0 * top
    if (k > 0) & (k < length):
        kth = kth_largest(x_ptr, length, k, top, BLOCK)
    edge, last = 0.0 * peak, length
    if top_p < 1:
        edge, last = nucleus_edge(x_ptr, length, peak, inverse, kth, min_p, top_p, BLOCK)
    total = 0.0 * u
    for start in range(0, length, BLOCK):
        weights = weights_at(x_ptr, start + tl.arange(0, BLOCK), length, peak, inverse, kth, min_p, edge, last)
        total += tl.sum(weights, axis=0).to(tl.float64)
    target = tl.minimum(u * total, total * 0.9999999999999998)
    return first_passing(x_ptr, length, peak, inverse, kth, min_p, edge, last, target, BLOCK)


@triton.jit
def sample_kernel(
    logits_ptr, token_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seed_ptr, position_ptr, index_ptr, stride, length,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row * stride
    temperature = tl.load(temperature_ptr + row)
    top = largest_key(x_ptr, length, BLOCK)
    if (temperature > 0) & (top > MINUS_INF) & (top < PLUS_INF):
        u = uniform(tl.load(seed_ptr + row), tl.load(position_ptr + row), tl.load(index_ptr + row))
        k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)
        min_p = tl.minimum(tl.load(min_p_ptr + row), 1.0)
        token = draw(x_ptr, length, top, temperature, k, min_p, top_p, u, BLOCK).to(tl.int64)
    else:
        token = first_with(x_ptr, length, top, BLOCK).to(tl.int64)
    tl.store(token_ptr + row, token)


def launch_sample(
    kernel, logits, temperature, seed, position, index=None, top_k=None, top_p=None, min_p=None
) -> Tensor:  # fmt: skip
    """Given: fills in what is None, and starts one program a row."""
    check_logits(logits)
    rows, length = logits.shape
    tokens, zeros = torch.empty_like(seed), torch.zeros_like(seed)
    index, top_k = (zeros if each is None else each for each in (index, top_k))
    top_p = torch.ones(rows, dtype=torch.float64, device=logits.device) if top_p is None else top_p
    min_p = torch.zeros_like(temperature) if min_p is None else min_p
    if rows:
        block = block_for(length, logits.dtype)
        kernel[(rows,)](
            logits, tokens, temperature, top_k, top_p, min_p, seed, position, index, logits.stride(0), length,
            BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
    return tokens


@exercise(reference="minillm.kernels.sample:sample", part="kernels.sample")
def sample(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    index: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
) -> Tensor:
    return launch_sample(sample_kernel, logits, temperature, seed, position, index, top_k, top_p, min_p)
