"""Triton, ready for the machine at hand: natively on a GPU, in its interpreter where there is none.

Every kernel's file imports `triton` and `tl` from here, because whether `@triton.jit` compiles or interprets is decided at
the moment of decoration. Without a GPU the interpreter is switched on, with correct bfloat16 and float8 arithmetic
(minillm.kernels.interpreter). TRITON_INTERPRET set by the caller, to 0 or to 1, is left as it is: with 0 and no GPU, kernels
can be compiled and inspected, not run.
"""

from __future__ import annotations

import os

import torch

if "TRITON_INTERPRET" not in os.environ and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "the kernels need Triton, which exists for Linux only: pip install triton", name="triton"
    ) from missing

INTERPRETED: bool = os.environ.get("TRITON_INTERPRET") == "1"

if INTERPRETED:
    from minillm.kernels import interpreter

    interpreter.install()

__all__ = ["INTERPRETED", "tl", "triton"]
