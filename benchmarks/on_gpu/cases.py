"""Every kernel as a case: its inputs, the kernel, its twin in plain torch, what torch itself offers, the work there is in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    make(dtype, device): a set of inputs. run: the kernel, twin: the same in torch; both take a set. rival: what a program
    without our kernels would call, on the same set; None where torch has nothing of the kind.
    moved_bytes(dtype): bytes that must cross HBM at least; flops: 2 for a multiplication and addition. rounding: the error that
    is allowed, in units of the output dtype's epsilon beside |value| + rms; None: outputs are integers or copies, of which the
    share `mismatches` may differ.
    """

    name: str
    make: Callable[[torch.dtype, torch.device], Inputs]
    run: Callable[..., Any]
    twin: Callable[..., Any]
    rival: Callable[..., Any] | None = None
    moved_bytes: Callable[[torch.dtype], int] | None = None
    flops: float | None = None
    rounding: float | None = 4.0
    mismatches: float = 0.0
    min_sm: int = 80
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)

    @property
    def allowed(self) -> float:
        return self.mismatches if self.rounding is None else self.rounding


def widened(value: Any) -> Any:
    """The same inputs with every 16-bit float as float32, through tuples and named tuples. Float8 and integers stay."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    if isinstance(value, tuple):
        items = [widened(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def set_bytes(value: Any) -> int:
    """Bytes of all tensors of a set of inputs."""
    if isinstance(value, Tensor):
        return value.nbytes
    return sum(map(set_bytes, value)) if isinstance(value, tuple | list) else 0


def error(got: Any, expected: Any, rounding: float | None) -> float:
    """How far a kernel is off: the largest |got − expected| / (|expected| + rms(expected)) over all outputs, in epsilons of got's
    dtype; the share of unequal elements where rounding is None. NaN, or an infinity in one alone, is infinitely far off."""
    if isinstance(got, tuple | list):
        return max(error(a, b, rounding) for a, b in zip(got, expected, strict=True))
    if rounding is None:
        return (got.float() != expected.float()).float().mean().item()
    a, b = got.float(), expected.float()
    bad = ~torch.isfinite(b)  # −inf of a log-sum-exp
    if not torch.equal(a[bad], b[bad]):
        return float("inf")
    a, b = a.masked_fill(bad, 0), b.masked_fill(bad, 0)
    scale = b.abs() + b.square().mean().sqrt() + 1e-30
    return ((a - b).abs() / scale).nan_to_num(nan=torch.inf, posinf=torch.inf).amax().item() / torch.finfo(_narrow(got.dtype)).eps


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """float32 outputs (log-sum-exps, sums of 16-bit products) are held to bfloat16's precision."""
    return torch.bfloat16 if dtype == torch.float32 else dtype


def randn(*shape: int, dtype: torch.dtype, device: torch.device, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, device=device, dtype=torch.float32).mul_(scale).to(dtype)
