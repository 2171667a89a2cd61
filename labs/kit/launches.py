"""Which kernels a call launched, so that a check can have the compiler's opinion of them.

with launches() as launched:
    lab.softmax(x)
for launch in launched:
    launch.inspect("sm_89").spill_bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch of a @triton.jit function. arguments: by name; options: num_warps and the like, where they were given."""

    kernel: Any
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    def inspect(self, gpu: str):
        """The Inspection of this kernel, specialised as Triton's launcher would for these arguments. Raises InspectError."""
        from minillm.kernels.instruments.inspect import inspect

        signature, constexprs, aligned = {}, {}, []
        annotations = self.kernel.fn.__annotations__
        for name, value in self.arguments.items():
            if "constexpr" in str(annotations.get(name)) or value is None or (type(value) is int and value == 1):
                constexprs[name] = value
                continue
            signature[name] = _type_of(value)
            if not isinstance(value, float | bool) and (value.data_ptr() if hasattr(value, "data_ptr") else value) % 16 == 0:
                aligned.append(name)
        return inspect(self.kernel, gpu, signature=signature, constexprs=constexprs, aligned=aligned, **self.options)


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """Every launch inside, in order."""
    from minillm.kernels.runtime import INTERPRETED, triton

    if INTERPRETED:
        from triton.runtime.interpreter import InterpretedFunction as Kernel
    else:
        Kernel = triton.JITFunction
    found: list[Launch] = []
    run = Kernel.run

    def noted(kernel, *args, grid, warmup, **kwargs):
        if not warmup:
            given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
            arguments = {name: given[name] for name in kernel.arg_names if name in given}
            options = {name: value for name, value in kwargs.items() if name in ("num_warps", "num_stages", "maxnreg")}
            found.append(Launch(kernel, arguments, options))
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    Kernel.run = noted
    try:
        yield found
    finally:
        Kernel.run = run


def _type_of(value: Any) -> str:
    """Triton's name for the type of an argument: "*bf16", "i32", "fp32"."""
    if hasattr(value, "dtype"):
        kind = str(value.dtype).removeprefix("torch.")
        short = kind.replace("uint", "u").replace("int", "i")
        return "*" + {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}.get(kind, short)
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, bool):
        return "i1"
    return "i32" if -(2**31) <= value < 2**31 else "i64"
