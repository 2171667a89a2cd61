"""5.1 First kernels: a vector addition, and a softmax that goes over its row once.

Write `add`, then `softmax`, each with its @triton.jit kernel beside it, then run `labs check 5.1` (or
`pytest labs/c5/test_m01_first_kernels.py`). Stuck? `labs hint 5.1`. No GPU is needed: without one, kernels run in Triton's
interpreter, where `print` and `breakpoint()` work inside a kernel.

A kernel is a function that runs many times over, once for each *program* of the grid it is launched with. What you need of
Triton:

    tl.program_id(0)                      which program this is: 0, 1, ...; int32, `.to(tl.int64)` makes it 64 bits
    tl.arange(0, BLOCK)                   the block of integers 0 ... BLOCK - 1; BLOCK is a power of two known when compiling
    tl.load(pointers, mask=m, other=v)    a block of elements; where m is false nothing is read, v comes (without it, anything)
    tl.store(pointers, values, mask=m)    where m is false nothing is written
    block.to(tl.float32)                  conversion; out_ptr.dtype.element_ty is the type that out_ptr points to
    tl.max(block, axis=0), tl.sum, tl.exp, tl.maximum(a, b), tl.where(condition, a, b), tl.full([BLOCK], v, tl.float32)
    kernel[(programs,)](..., BLOCK=1024, num_warps=4)     the launch; triton.cdiv(a, b) is a / b rounded up

A tensor passed to a kernel arrives as a pointer to its first element; `pointer + integers` counts in elements.
"""

from __future__ import annotations

from minillm.kernels.rows import as_rows, row_block  # noqa: F401  yours to use
from minillm.kernels.runtime import tl, triton  # noqa: F401  yours to use
from torch import Tensor

from labs.kit import exercise


@exercise(reference="minillm.kernels.add:add")
def add(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """x + y, element by element, in a kernel of yours: out_i = x_i + y_i, added in float32 and rounded once.

    x, y [...]: contiguous, of one shape, all in bfloat16, float16 or float32. Returns [...] in their dtype, in `out` if given
    (contiguous, and possibly x or y itself), else in a new tensor (torch.empty_like). All this is promised; check nothing.

    Bytes, N elements of s bytes: x and y are read once, out is written once, 3·N·s, and nothing beside them is touched: neither
    written nor read, although N rarely fills the last block. No elements: launch nothing.

    The kernel, and the body of this function but for the case of no elements and the new tensor:

        @triton.jit
        def add_kernel(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr): ...

        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)

    Each program takes BLOCK neighbours, so that the lanes of a warp lie side by side in memory and a thread loads 128 bits at a
    time.
    """
    raise NotImplementedError


@exercise(reference="minillm.kernels.softmax:softmax", part="kernels.softmax")
def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax of every row, in one kernel: y_i = exp(x_i - m) / Σ_j exp(x_j - m), m = max_j x_j.

    x [..., N] in bfloat16, float16 or float32; arithmetic in float32. Returns [..., N] in x's dtype, in `out` if given (same
    shape and dtype, possibly x itself), else in a new contiguous tensor. All this is promised; check nothing. No elements:
    launch nothing.

    Elements of a row are neighbours in memory, but rows need not be: x and out may be slices of wider tensors, each with a row
    stride of its own. as_rows(x=x) gives any such tensor as a view [rows, N]. Row times stride may pass 2³¹.

    -inf has its softmax: 0. Whole stretches of it in a row that has a finite element do no harm; a row of nothing but -inf
    becomes NaN, as in torch.

    Bytes, R rows of N elements of s bytes. row_block(N, x.dtype) gives (BLOCK, num_warps): how much of a row a program holds at
    once, with that many warps.

        BLOCK >= N (rows of up to 64 KiB)   x is read once and out written once, 2·R·N·s
        BLOCK < N                           x may be read twice, 3·R·N·s: once for maximum and sum together, once for the result

    One reading gives maximum and sum together if the sum so far is rescaled whenever the maximum grows: with a new maximum m',
    total · exp(m - m') + exp(x - m') (Milakov & Gimelshein 2018, arXiv 1805.02867, algorithm 3). Nothing outside x and out is
    touched. Compiled for sm_89, your kernels spill no register and load 128 bits a thread.

    A good start is the kernel for rows that fit, launched as

        softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), N, BLOCK=block, num_warps=num_warps)

    with x and out as [rows, N]; the one for longer rows is a second kernel with the same arguments.
    """
    raise NotImplementedError
