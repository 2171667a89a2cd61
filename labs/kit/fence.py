"""Keeps kernels that are being checked within the tensors they were given.

    with fenced():
        lab.add(x, y)        # AssertionError, at the end, if a kernel reached past x, y or the result

In Triton's interpreter a lane without its mask writes into the memory of this process: into another tensor, or into what keeps
the process alive, and then there is no report at all. Inside the fence such lanes are switched off, counted, and told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIKELY = {
    "loaded": "lanes past the end load, though nobody uses what they get: each tl.load needs its mask",
    "stored": "lanes past the end store, into whatever lies there: tl.store needs the mask, too",
    "changed": "lanes past the end take part in an atomic operation: it needs a mask, too",
}


@contextmanager
def fenced() -> Iterator[None]:
    """AssertionError at the end if a kernel launched inside touched memory of none of its arguments. On a GPU it does nothing."""
    from minillm.kernels.runtime import INTERPRETED

    if not INTERPRETED:
        yield
        return
    from triton.runtime import interpreter

    fence = _Fence()
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    replaced = {
        (builder, "create_masked_load"): fence.around(builder.create_masked_load, "loaded", pointer=0, mask=1),
        (builder, "create_masked_store"): fence.around(builder.create_masked_store, "stored", pointer=0, mask=2),
        (builder, "create_atomic_rmw"): fence.around(builder.create_atomic_rmw, "changed", pointer=1, mask=3),
        (executor, "__call__"): fence.learning(executor.__call__),
    }
    before = {(owner, name): vars(owner).get(name) for owner, name in replaced}
    try:
        for (owner, name), function in replaced.items():
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name), function in before.items():
            if function is None:
                delattr(owner, name)  # the class has it
            else:
                setattr(owner, name, function)
    fence.tell()


class _Fence:
    """Which memory is a launch's own, and how many lanes left it."""

    def __init__(self) -> None:
        self._regions: list[Any] = []
        self._outside: Counter[tuple[str, str]] = Counter()  # (kernel, what it did) -> elements
        self._kernel = ""

    def learning(self, launch: Callable) -> Callable:
        from minillm.kernels.instruments.regions import Region

        def learned(executor, *args, **kwargs):
            tensors = [each for each in (*args, *kwargs.values()) if hasattr(each, "data_ptr")]
            self._regions, self._kernel = [Region("", tensor) for tensor in tensors], executor.fn.__name__
            return launch(executor, *args, **kwargs)

        return learned

    def around(self, access: Callable, did: str, *, pointer: int, mask: int) -> Callable:
        """An operation of the interpreter without the lanes outside. pointer, mask: positions of its arguments."""
        import numpy as np
        from triton.runtime.interpreter import TensorHandle

        def within(*args, **kwargs):
            addresses = np.asarray(args[pointer].data)
            active = np.broadcast_to(np.asarray(args[mask].data, bool), addresses.shape)
            outside = active.copy()
            for region in self._regions:
                outside &= ~region.holds(addresses)
            if outside.any():
                self._outside[self._kernel, did] += int(outside.sum())
                kept = TensorHandle(active & ~outside, args[mask].dtype)
                args = (*args[:mask], kept, *args[mask + 1 :])
            return access(*args, **kwargs)

        return within

    def tell(self) -> None:
        for (kernel, did), count in self._outside.items():
            raise AssertionError(f"{kernel} {did} {count:,} elements outside of its tensors\n  likely   {LIKELY[did]}")
