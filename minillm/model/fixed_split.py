"""A linear layer that says in which order it adds, so that a row is the same bits in any company.

A library chooses how to add by the shape of the product, and some by the address of its operands. Elementwise multiplication and
addition have no such choice: IEEE 754 rounds each result in one way. A sum written in them has the order in which it is written.
It is slow, and meant to show what batch-invariant kernels guarantee, and to check them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def fixed_split_linear(x: Tensor, weight: Tensor, split: int = 64) -> Tensor:
    """x·weightᵀ. x [T, K] and weight [N, K], floating point; returns [T, N] in x's dtype. split: columns in a part, at least 1.

    In float32 throughout. Each product is rounded before it is added. K is cut into parts of `split` columns, the last one
    shorter; the products of a part are added from left to right, and then the parts' sums from left to right. So a result
    depends on its row, its column and split, and on nothing else.
    """
    x32, columns = x.float(), weight.float().t().contiguous()
    total = x32.new_zeros(len(x), len(weight))
    for start in range(0, len(columns), split):
        part = torch.zeros_like(total)
        for k in range(start, min(start + split, len(columns))):
            part += x32[:, k, None] * columns[k]
        total += part
    return total.to(x.dtype)
