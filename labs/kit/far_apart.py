"""Tensors whose rows lie so far apart that an offset in 32 bits wraps around, for next to no memory.

    x = far_apart(386, 16)       # float16; row 256 and those after it begin past 2**31 elements
    x.copy_(values)

What a kernel reads at an offset that wrapped is zeros, and what it writes there is lost: the mapping reaches as far below the
first element as an offset can wrap. Only pages that are touched take memory. Without a GPU only: the interpreter's kernels.
Not inside of fenced(), which keeps a byte for every element between the rows: give results of the call to far_apart(), too, or
sizes that are whole tiles, so that a store without its mask harms nobody.
"""

from __future__ import annotations

import mmap


def far_apart(rows: int, width: int, stride: int = 2**23 - 16):
    """A float16 tensor [rows, width], rows `stride` elements apart, with 2**31 elements of nothing before the first."""
    import torch

    elements = 2**32 + rows * stride
    pages_when_touched = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    flat = torch.frombuffer(mmap.mmap(-1, 2 * elements, pages_when_touched), dtype=torch.float16)
    return flat[2**31 :].as_strided((rows, width), (stride, 1))
