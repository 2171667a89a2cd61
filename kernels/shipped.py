"""How a kernel says which of its compiled variants the launcher really uses, so that they can be inspected without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shipped:
    """One variant of one kernel, as a launcher launches it. A kernel's file lists its variants in `SHIPPED`."""

    name: str  # unique in the repository: "softmax.bf16.4096"
    kernel: str  # "module:attribute" of the @triton.jit function: "minillm.kernels.softmax:softmax_kernel"
    signature: Mapping[str, str]  # argument -> type: "*bf16", "*i32", "i32", "fp32", "constexpr" may be left out
    constexprs: Mapping[str, object] = field(default_factory=dict)
    aligned: tuple[str, ...] = ()  # pointers and integers known to be divisible by 16, as Triton's launcher finds out
    num_warps: int = 4
    num_stages: int = 3
    wide_loads: bool = True  # its data are contiguous, so that 128-bit loads are expected
    has_dot: bool = False  # tensor-core instructions are expected
    min_sm: int = 80  # lowest compute capability it is compiled for: 89 for float8
    max_sm: int | None = None  # highest, where it is tuned for one kind of card
    reason: str | None = None  # why it may spill, or load narrowly, if it does
