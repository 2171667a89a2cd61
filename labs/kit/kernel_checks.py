"""What checks of a kernel have in common: tensors with something around them, and what is asked beside the values."""

from __future__ import annotations

import pytest
import torch
from minillm.kernels.runtime import INTERPRETED

from labs.kit.compare import assert_close, assert_equal
from labs.kit.launches import launches

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
GUARD = 777.0
counted = pytest.mark.skipif(not INTERPRETED, reason="bytes are counted in Triton's interpreter: set TRITON_INTERPRET=1")
ONCE = "load a row once, keep it in registers (a variable) and use it from there"
MASKS = "the store needs the same mask as the load: lanes past the end write into whatever lies behind"


def random(*shape, dtype=torch.float32, scale=1.0):
    """Normal numbers of any standard deviation, on the machine's device."""
    return (scale * torch.randn(shape)).to(dtype).to(DEVICE)


def guarded(x, inner=1, left=64, right=2048):
    """A copy of x inside a wider tensor of GUARDs [rows + 1, …], and that tensor. The last `inner` dimensions make a row."""
    shape, rows = x.shape, x.flatten(-inner).reshape(-1, x.shape[-inner:].numel())
    wide = torch.full((len(rows) + 1, left + rows.shape[1] + right), GUARD, dtype=x.dtype, device=x.device)
    view = wide[: len(rows), left : left + rows.shape[1]]
    view.copy_(rows)
    return view.unflatten(1, shape[-inner:]).unflatten(0, shape[:-inner]), wide


def assert_guards(wide, view, what, inputs, inner=1, left=64):
    """Nothing but the view has changed."""
    around = wide.clone()
    around[:-1, left : left + view.shape[-inner:].numel()] = GUARD
    changed = int((around != GUARD).sum())
    assert_equal(changed, 0, f"elements outside of {what} that were overwritten", inputs=inputs, hint=MASKS)


def assert_rounded(got, expected, what, inputs, hint):
    """Close everywhere, and in 16 bits nearly always the very same number."""
    step = torch.finfo(expected.dtype).eps * (8 if expected.dtype == torch.float32 else 1)
    assert_close(got, expected, what, atol=step * 1e-2, rtol=2 * step, inputs=inputs, hint=hint)
    if expected.dtype != torch.float32 and expected.numel() >= 500:
        same = (got == expected).float().mean().item()
        assert same > 0.99, (
            f"{what}: only {same:.1%} are the {expected.dtype} that rounding where the docstring says gives ({inputs})"
        )


def assert_moved(report, expected, what):
    """expected: name -> (bytes loaded, bytes stored)."""
    assert report.total.bytes, f"{what}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    for name, (loaded, stored) in expected.items():
        t = report[name]
        assert_equal(t.load_bytes, loaded, f"bytes loaded of {name}", inputs=what, hint=f"{ONCE}. The whole launch:\n{report}")
        assert_equal(
            t.store_bytes, stored, f"bytes stored to {name}", inputs=what, hint=f"each result is written once:\n{report}"
        )
    rest = report.total.bytes - sum(report[name].bytes for name in expected)
    assert_equal(rest, 0, "bytes moved of any other tensor", inputs=what, hint=f"no copies, no tensors in between:\n{report}")


def assert_compiles(call, what):
    with launches() as launched:
        call()
    assert_equal(len(launched), 1, f"launches of {what}", hint="one kernel for all of it")
    return assert_no_spills(launched[0], what)


def assert_no_spills(launch, what):
    """The launch's kernel, compiled for an RTX 4090: what inspect() found."""
    found = launch.inspect("sm_89")
    assert found.spill_bytes == 0, (
        f"{what}: {found.spill_bytes} bytes a thread do not fit its {found.registers} registers and spill to memory\n{found}"
    )
    return found
