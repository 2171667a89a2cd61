"""Triton's own functions, tl.max, tl.sum, tl.cdiv and others, made callable in the interpreter whoever imported Triton first.

They are `@triton.jit` functions themselves, and decide at their import whether they are compiled or interpreted. torch._dynamo,
which torch.compile and transformers need, imports Triton long before the first kernel, when nobody has asked for the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.runtime.jit import JITFunction


def interpret_the_language() -> None:
    """Replaces what was decorated for the compiler by the same function, decorated for the interpreter."""
    interpreted: dict[int, upstream.InterpretedFunction] = {}

    def replacement(function: JITFunction) -> upstream.InterpretedFunction:
        return interpreted.setdefault(id(function), upstream.InterpretedFunction(function.fn))

    for name, module in list(sys.modules.items()):
        if name == "triton.language" or name.startswith("triton.language."):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, JITFunction):
                    setattr(module, attribute, replacement(value))
    for attribute, value in list(vars(tl.tensor).items()):
        if isinstance(value, JITFunction):  # x.sum(): a plain function, which Python binds to x
            setattr(tl.tensor, attribute, _as_method(replacement(value)))


def _as_method(function: Callable) -> Callable:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)
