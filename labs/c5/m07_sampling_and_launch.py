"""5.7 Sampling on the GPU, and launches: a token for each row, in one launch, without a sort and without a word to the host.

For each exercise write the bodies marked "Yours", and let the public function call the launcher that is given. Then run
`labs check 5.7` (or `pytest labs/c5/test_m07_sampling_and_launch.py`). Stuck? `labs hint 5.7` shows one more each time. No GPU is
needed: without one, kernels run in Triton's interpreter, the checks count the bytes and compile for an RTX 4090.

Logits [B, V] are bfloat16, float16 or float32, of s bytes; one program has one row, and walks over it BLOCK logits at a time:
`for start in range(0, length, BLOCK)`. The last block may reach past the row: those lanes must not load, and must not count.
Offsets of rows may pass 2**31 elements, so begin with `row = tl.program_id(0).to(tl.int64)`.

Given, from minillm.kernels.sample_search and .philox:

    order(x)            float32 -> int32 in the same order: −inf is MINUS_INF, −0 and 0 are equal, +inf is PLUS_INF, every NaN
                        is the same number above it
    number(key)         the float32 whose order is `key`
    middle(low, high)   ⌊(low + high) / 2⌋ of int32, without overflow
    uniform(seed, position, index)      Philox's float64 in [0, 1); three int64 scalars
    kth_largest(x_ptr, length, k, top, BLOCK)      order of the k-th largest logit, 1 <= k <= length, by bisection: `kth` of the
                        notebook, with its loop in the kernel. Yours will look like it
    weights_at(x_ptr, i, length, peak, inverse, kth, min_p, edge, last)
                        float32 weights of the logits at i, exp((x − peak) · inverse); 0 where i is past the row, order(x) < kth,
                        weight < min_p, weight < edge, or weight == edge at an index above last
    mass_from(x_ptr, length, peak, inverse, kth, min_p, border, BLOCK)      one pass over the row. A candidate is what kth and
                        min_p leave; its weight is seen as `border` is, as the int32 with its bits (positive floats are in the
                        order of their bits). -> (mass of candidates >= border, float64; lowest of those; highest of the others)
"""

from __future__ import annotations

import torch
from minillm.kernels.argmax import block_for, check_logits, warps_for
from minillm.kernels.philox import uniform  # noqa: F401  for you
from minillm.kernels.runtime import tl, triton
from minillm.kernels.sample_search import (  # noqa: F401  for you
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
    """Yours. Program `row`: the index of the row's largest logit, as int64, to token_ptr + row. You need `order`."""


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
    """Greedy decoding: logits [B, V] -> [B] int64, each row's largest.

    Of equal ones the first, in whatever block they lie, and −0 equals 0. Where there is NaN, the first NaN, as torch does on a
    CPU. A row of nothing but −inf gives 0. Logits of any sign, V of any size from 1, B may be 0; logits stay as they are.

    Bytes: a row is read once and a token is written, B·(V·s + 8). Finding the maximum and then looking for it would read twice:
    keep, in each lane, the best so far and where it was.

    Body: `return launch_argmax(argmax_kernel, logits)`.
    """
    raise NotImplementedError


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
    """Yours. -> (edge, last): the nucleus is what weighs more than the float32 `edge`, or as much at an index up to `last`.

    wanted = top_p times the mass of all candidates. edge is the largest weight for which what is >= edge has at least `wanted`.
    Look for its bits between low = those of 0.99 · (1 − top_p) · mass / length (what is below has less than 1 − top_p of the
    mass, however many they are) and high = ONE + 1 (nothing weighs more than 1), with mass_from at the middle, as kth_largest
    looks for a logit: what is >= low always has enough, what is >= high never has. Let each step jump to weights that occur.
    At the end: how much do those above edge have (mass_from, once more), and how many of `edge` fill the rest, at least one?
    nth_equal knows where the last of those lies.
    """


@triton.jit
def first_passing(x_ptr, length, peak, inverse, kth, min_p, edge, last, target, BLOCK: tl.constexpr):
    """Yours. -> the first index at which the cumulative weight, in the row's order, exceeds `target`, a float64.

    Walk from block to block only as long as the sum of all so far does not exceed it (a `while`; Triton has no `break`), then
    look into the block where it does. Within a block float32 will do, for its sum; what is carried from block to block, and
    the cumulative weights inside of the last one (tl.cumsum), are float64. Never an index whose weight is 0.
    """


@triton.jit
def draw(x_ptr, length, top, temperature, k, min_p, top_p, u, BLOCK: tl.constexpr):
    """Yours. -> the token at u. top: order of the row's largest logit, which is finite; temperature is above 0.

    peak = number(top); inverse = 1 / temperature, the latter kept within 1e-30 and 1e30. kth = MINUS_INF + 0 * top (an int32 of
    the same shape), or kth_largest if 0 < k < length. edge, last = 0.0 * peak, length, or nucleus_edge's if top_p < 1. Then the
    total of what is left, a sum of weights_at in float64 from block to block; the target is u · total. (u is 1 − 2**-53 at most,
    so that the product, rounded to float64, stays below the total.)
    """


@triton.jit
def sample_kernel(
    logits_ptr, token_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seed_ptr, position_ptr, index_ptr, stride, length,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Yours. Program `row`: one row's token, as int64, to token_ptr + row. Everything but the logits is [B]: load yours.

    top = largest_key(…). Where temperature > 0 and top lies between MINUS_INF and PLUS_INF, draw(…) at
    uniform(seed, position, index), with min_p at most 1; else first_with(…, top). An `if` on a scalar is fine: a variable
    that both branches set must have one type, so convert to int64 at the store.
    """


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
    """logits [B, V] -> tokens [B] int64, drawn after temperature, top-k, min-p and top-p.

    All else is [B], a value for each row: temperature float32, 0 for argmax; seed int64, the 64 bits of an unsigned one;
    position int64, of the token in its sequence; index int64, which of n samples (0); top_k int64, 0 keeps all; top_p float64,
    1 keeps all; min_p float32, 0 keeps all.

    With w = exp((l − max l) / temperature) in float32, candidates are, in this order,
    1. top-k: logits not below the k-th largest; what ties with it stays;
    2. min-p: w >= min_p;
    3. top-p: the likeliest of these until they have the share top_p of *their* mass, with the one that crosses it; of equal
       ones, the first.
    u = uniform(seed, position, index) picks the first candidate, in the vocabulary's order, at which the cumulative weight
    exceeds u times its total. A row's token depends on nothing but its own values: not on its place in the batch, not on its
    neighbours. A row with NaN or +inf, or with nothing above −inf, and one with temperature 0, gets the first of its largest.

    Bytes, a row: read for the maximum, for the total, up to the block where u falls and that block once more: 2·s·V to 3·s·V
    and a block; 48 of parameters and 8 of the token. A filter adds s·V for each step of its bisection: log2 of how many
    different weights lie in reach, 10 to 20 (without jumps, one for each bit: nearly 30); top-p four more. No copy of the
    logits, no tensor of weights. A row without a distribution, and one with temperature 0: 2·s·V.

    Body: `return launch_sample(sample_kernel, logits, temperature, seed, position, index, top_k, top_p, min_p)`.

    Sources: Holtzman et al. 2020, arXiv 1904.09751; Nguyen et al. 2024, arXiv 2407.01082; Salmon et al. 2011 (Philox).
    """
    raise NotImplementedError
