"""Hands a kernel to another process: by its module's name where that can be imported, else as source text (a notebook's cell)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from minillm.kernels.runtime import tl

CONSTANTS = (bool, int, float, str, tl.constexpr)


@dataclass(frozen=True)
class PortableKernel:
    """name: of the function; module: where to import it from, or None; source: a module's text otherwise; digest: of its code and
    of all that it calls."""

    name: str
    module: str | None
    source: str | None
    digest: str


def portable(kernel: Any) -> PortableKernel:
    """kernel: a @triton.jit function, autotuned, interpreted or neither, or where one is: "minillm.kernels.x:x_kernel".

    Raises ValueError for one whose source cannot be found, TypeError for what is no kernel.
    """
    if isinstance(kernel, str):
        module, _, attribute = kernel.partition(":")
        kernel = getattr(importlib.import_module(module), attribute)
    function = function_of(kernel)
    sources = [_source(each) for each in _with_callees(function)]
    constants = dict(pair for each in _with_callees(function) for pair in _constants(each))
    digest = hashlib.sha256(repr((sources, sorted(constants.items()))).encode()).hexdigest()
    if _importable(function):
        return PortableKernel(function.__name__, function.__module__, None, digest)
    assigned = [f"{name} = tl.constexpr({value!r})" for name, value in constants.items()]
    functions = [f"@triton.jit\n{source}" for source in reversed(sources)]
    text = "\n\n".join(["import triton", "import triton.language as tl", *_aliases(function), *assigned, *functions])
    return PortableKernel(function.__name__, None, text, digest)


def function_of(kernel: Any) -> FunctionType:
    """The Python function beneath @triton.jit, @triton.autotune and @triton.heuristics."""
    while not isinstance(kernel, FunctionType):
        if not hasattr(kernel, "fn"):
            raise TypeError(f"a {type(kernel).__name__} is no kernel; give a function decorated with @triton.jit")
        kernel = kernel.fn
    return kernel


def _with_callees(function: FunctionType) -> Iterator[FunctionType]:
    """The function, then every jit function that it calls, and that those call, each once."""
    waiting, seen = [function], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        waiting += [function_of(value) for _, value in _used(current) if _is_jit(value)]


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """(name, value) of the globals that a function mentions; `module.name` counts as name."""
    mentioned = function.__code__.co_names
    for name in mentioned:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType) and not _is_tritons(value.__name__):
            yield from ((each, vars(value)[each]) for each in mentioned if each in vars(value))
        elif value is not None:
            yield name, value


def _constants(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, value in _used(function):
        if isinstance(value, CONSTANTS):
            yield name, value.value if isinstance(value, tl.constexpr) else value


def _aliases(function: FunctionType) -> list[str]:
    """Imports of Triton's modules under other names than triton and tl."""
    found = [(name, value.__name__) for name, value in _used(function) if isinstance(value, ModuleType)]
    return [f"import {module} as {name}" for name, module in found if name not in ("triton", "tl")]


def _is_jit(value: Any) -> bool:
    return hasattr(value, "fn") and callable(value) and not _is_tritons(getattr(value.fn, "__module__", "triton"))


def _is_tritons(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _source(function: FunctionType) -> str:
    """From `def` on: decorators belong to the process that has the objects they name."""
    try:
        lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    except (OSError, TypeError) as e:
        raise ValueError(
            f"the source of {function.__name__} cannot be found; write the kernel in a file or a notebook's cell"
        ) from e
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[start:])


def _importable(function: FunctionType) -> bool:
    """Whether another process with our sys.path finds it: a test's module, for one, is known to this process only."""
    module, _, _ = function.__module__.partition(".")
    if module == "__main__" or function.__qualname__ != function.__name__:
        return False
    if not any(finder.find_spec(module, None) for finder in sys.meta_path if hasattr(finder, "find_spec")):
        return False
    spec = importlib.util.find_spec(function.__module__)
    return spec is not None and spec.origin == function.__code__.co_filename
