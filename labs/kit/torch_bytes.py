"""Bytes that torch itself moves during a call: for kernels that must do their work alone.

    with torch_bytes() as moved:
        lab.sample(logits, ...)
    moved.bytes, moved.calls       0 for a kernel that is given its tensors as they are; {"sort": 24000} for one that sorts them

    with without_torch(logits, "3 rows of 300 float32"):
        lab.sample(logits, ...)             # AssertionError if torch did the work, or the logits were changed

What a call reads and writes is taken to be the sizes of its inputs and of its new outputs; views and empty tensors cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FREE = ("empty", "new_empty", "set_", "detach", "alias", "resize_")  # no element is read or written


@dataclass
class Moved:
    """calls: name of a torch operator -> bytes it moved."""

    calls: Counter[str] = field(default_factory=Counter)

    @property
    def bytes(self) -> int:
        return self.calls.total()


@contextmanager
def torch_bytes() -> Iterator[Moved]:
    """Counts every operator of torch inside; what Triton's kernels ask for, and its interpreter for itself, is not among it."""
    from minillm.kernels.runtime import INTERPRETED, triton
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    moved, launching = Moved(), []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            out, name = op(*args, **(kwargs or {})), op.overloadpacket.__name__
            if launching:
                return out
            read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
            known = {each.untyped_storage().data_ptr() for each in read}
            new = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
            new = [each for each in new if each.untyped_storage().data_ptr() not in known or name.endswith("_")]
            if new and not any(name.startswith(free) for free in FREE):
                moved.calls[name] += sum(each.nbytes for each in (*read, *new))
            return out

    if INTERPRETED:
        from triton.runtime.interpreter import InterpretedFunction as Kernel
    else:
        Kernel = triton.JITFunction
    run = Kernel.run

    def quietly(kernel, *args, **kwargs):
        launching.append(kernel)
        try:
            return run(kernel, *args, **kwargs)
        finally:
            launching.pop()

    Kernel.run = quietly
    try:
        with Counting():
            yield moved
    finally:
        Kernel.run = run


@contextmanager
def without_torch(x: Any, what: str) -> Iterator[None]:
    """The work inside is a kernel's, on the rows of x as they are: of torch's own no more than 200 bytes for each of them."""
    from labs.kit.compare import assert_close

    before = x.clone()
    with torch_bytes() as moved:
        yield
    assert moved.bytes <= 200 * len(x), (
        f"{what}: torch itself moved {moved.bytes:,} bytes ({', '.join(moved.calls)}), the tensor has {x.nbytes:,}\n"
        "  likely   a sort, a copy or a conversion of the whole tensor: the kernel reads it where it is, as it is"
    )
    assert_close(x, before, "the tensor afterwards", atol=0, rtol=0, inputs=what, hint="it is not yours to change")
