"""Addition of two tensors: the smallest kernel there is, and module 5.1's first.

    out_i = x_i + y_i

x, y [...] contiguous, of one shape, in bfloat16, float16 or float32; added in float32, which is rounded once to their dtype.

Bytes, N elements of s bytes: two read and one written for one addition: **3·N·s**. Nothing can be saved here; it is what an
addition costs wherever it is not part of another kernel.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import check_same_dtype, check_shape, check_tensors, require
from minillm.kernels.runtime import tl, triton
from torch import Tensor

BLOCK = 1024  # elements a program: with four warps, eight a thread, so one 128-bit load of 16-bit elements


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    """One program, BLOCK neighbours."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # may pass 2³¹
    inside = index < length
    x = tl.load(x_ptr + index, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + index, mask=inside).to(tl.float32)
    tl.store(out_ptr + index, (x + y).to(out_ptr.dtype.element_ty), mask=inside)


def add(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """x + y, element by element. x, y [...] contiguous; returns [...] in their dtype, in `out` if given, which may be x or y."""
    check_tensors(**({"x": x, "y": y} if out is None else {"x": x, "y": y, "out": out}))
    out = torch.empty_like(x) if out is None else out
    check_same_dtype(x=x, y=y, out=out)
    check_shape(x.shape, y=y, out=out)
    for name, tensor in (("x", x), ("y", y), ("out", out)):
        require(tensor.is_contiguous(), f"{name} is not contiguous: pass {name}.contiguous()")
    if length := x.numel():
        add_kernel[(triton.cdiv(length, BLOCK),)](x, y, out, length, BLOCK=BLOCK)
    return out


def add_torch(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """The same in plain torch."""
    return torch.add(x, y, out=out)
