"""Kernels that give each row of a tensor to one program: how rows are seen, and how much of one a program holds at once."""

from __future__ import annotations

import torch
from minillm.kernels.checks import check_last_dim_contiguous, refuse_negative_strides, require
from torch import Tensor

# A program has at most 1024 threads and a multiprocessor 65,536 registers of 4 bytes, so 64 registers a thread. Rows of up to
# 64 KiB (32,768 elements of 16 bits, 16,384 of 32) stay in at most 32 of them as float32, and are read once. Longer ones are
# read twice.
BLOCK_BYTES = 64 * 1024
ELEMENTS_PER_THREAD = 16  # two 128-bit loads of 16-bit elements in flight


def as_rows(**tensor: Tensor) -> Tensor:
    """One tensor [..., N], given by its name, as a view [rows, N] whose elements are neighbours within a row.

    ValueError if its leading dimensions do not lie one row stride apart: this would need a copy, which is the caller's to make.
    """
    ((name, x),) = tensor.items()
    require(x.ndim >= 1, f"{name} is a scalar; a tensor of at least one dimension is needed")
    refuse_negative_strides(**tensor)
    check_last_dim_contiguous(**tensor)
    if x.ndim == 2:
        return x
    rows = x.numel() // x.shape[-1] if x.shape[-1] else 0
    try:
        return x.view(rows, x.shape[-1])
    except RuntimeError:
        raise ValueError(f"{name}'s rows do not lie evenly in memory {tuple(x.stride())}: pass {name}.contiguous()") from None


def row_block(length: int, dtype: torch.dtype) -> tuple[int, int]:
    """(elements that a program holds at once, a power of two; its number of warps) for rows of `length` elements.

    The whole row if it has at most BLOCK_BYTES; else BLOCK_BYTES // 4 at a time, so that several programs share a multiprocessor.
    """
    block = next_power_of_2(length)
    if block * dtype.itemsize > BLOCK_BYTES:
        block = BLOCK_BYTES // 4 // dtype.itemsize
    return block, max(1, min(32, block // (32 * ELEMENTS_PER_THREAD)))


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, and at least 16."""
    return max(16, 1 << (n - 1).bit_length())
