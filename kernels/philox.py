"""Random numbers that a GPU and minillm.sampling.rng draw alike: Philox-4x32-10, a pure function of a key and a counter.

The key is the 64 bits of a request's seed; the counter, four words of 32 bits, is (position's lower, upper half, index, 0). Of
the four words that come out, the first two, cut to 53 bits, are a float64 in [0, 1).

Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".
"""

from __future__ import annotations

import torch
from minillm.kernels.runtime import tl, triton
from torch import Tensor


@triton.jit
def uniform(seed, position, index):
    """float64 in [0, 1) with 53 random bits; seed, position, index: int64 scalars."""
    low, high, third = position.to(tl.uint32), (position >> 32).to(tl.uint32), index.to(tl.uint32)
    first, second, _, _ = tl.philox(seed, low, high, third, third * 0)
    bits = (first.to(tl.uint64) << 32 | second.to(tl.uint64)) >> 11
    return bits.to(tl.float64) * 1.1102230246251565e-16  # 2^-53


def uniform_torch(seed: Tensor, position: Tensor, index: Tensor) -> Tensor:
    """Philox-4x32-10's first 53 bits as float64 in [0, 1). All int64 [B]."""
    mask = 0xFFFFFFFF
    c0, c1, c2, c3 = position & mask, position >> 32 & mask, index & mask, torch.zeros_like(index)
    k0, k1 = seed & mask, seed >> 32 & mask
    for _ in range(10):
        high0, low0 = _product(0xD2511F53, c0)
        high1, low1 = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return ((c0 << 21) | (c1 >> 11)).double() * 2.0**-53


def _product(multiplier: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """Upper and lower 32 bits of the product of two 32-bit words. In two halves, as int64 has 63 bits for 64."""
    low = multiplier * (word & 0xFFFF)
    high = multiplier * (word >> 16) + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF
