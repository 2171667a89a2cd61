"""What checks of matrix products share: inputs, the expected product, memory around the result, bytes, and the compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from minillm.kernels.instruments.traffic import trace

from labs.kit.compare import assert_close, assert_equal
from labs.kit.dots import dots
from labs.kit.fence import fenced
from labs.kit.kernel_checks import GUARD, assert_no_spills
from labs.kit.launches import launches
from labs.kit.torch_bytes import torch_bytes

EDGES = (
    "the last block of K is cut: mask both loads along K, with other=0; M and N are cut as well: mask the store, rows and columns"
)


def sliced(values, beyond=GUARD, right=80):
    """A copy of values [rows, columns] inside a wider tensor full of `beyond`, and that tensor."""
    rows, columns = values.shape
    wide = torch.full((rows + 1, 16 + columns + right), beyond, dtype=values.dtype, device=values.device)
    view = wide[:rows, 16 : 16 + columns]
    view.copy_(values)
    return view, wide


def product(x, w, bias=None):
    """In float64, rounded once."""
    y = x.double() @ w.double().T
    return (y if bias is None else y + bias.double()).to(x.dtype)


def assert_product(got, expected, what, inputs, hint=EDGES):
    """Close, as sums in float32 that are rounded once are."""
    step = torch.finfo(expected.dtype).eps
    atol = 1e-4 if expected.dtype == torch.float32 else 10 * step
    assert_close(got, expected, what, atol=atol, rtol=step, inputs=inputs, hint=hint)


def assert_guards(wide, view, inputs):
    """Nothing of `wide` but the view that sliced() gave has changed."""
    around = wide.clone()
    around[: view.shape[0], 16 : 16 + view.shape[1]] = GUARD
    changed = int((around != GUARD).sum())
    hint = "the store needs a mask for rows and for columns: the last tile reaches past both"
    assert_equal(changed, 0, "elements outside of out that were overwritten", inputs=inputs, hint=hint)


def moved(call, inputs, **tensors):
    """The traffic of a call that must do its work in kernels, and leave none to torch."""
    with trace(**tensors) as traffic, torch_bytes() as by_torch, fenced():
        call()
    report = traffic.report()
    no_kernel = f"{inputs}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    assert report.total.bytes, no_kernel
    assert by_torch.bytes == 0, (
        f"{inputs}: torch moved {by_torch.bytes:,} bytes besides your kernels ({', '.join(by_torch.calls)})\n"
        "  likely   a copy or a sum outside of the kernel: it takes slices by their strides, adds the bias, and writes into out"
    )
    return report


def assert_at_most(bytes_, allowed, what, inputs, hint, report):
    """A kernel that moves more says how many times more."""
    assert bytes_ <= allowed, (
        f"{what}: {bytes_:,} bytes, {bytes_ / max(1, allowed):.1f} times the {allowed:,} that the docstring derives ({inputs})\n"
        f"  likely   {hint}\n{report}"
    )


def launched_by(call, what):
    """The launches of a call, at least one."""
    with launches() as launched, fenced():
        call()
    assert launched, f"{what}: no kernel was launched; the work must be done by your Triton kernel, not by torch"
    return launched


def assert_compiles(call, what):
    """The first kernel that the call launches, for an RTX 4090: without spills, with tensor cores."""
    found = assert_no_spills(launched_by(call, what)[0], what)
    assert found.tensor_core_instructions, (
        f"{what}: no tensor-core instruction; tl.dot takes the 16-bit blocks as loaded, not copies in float32\n{found}"
    )


@contextmanager
def full_precision(inputs: str) -> Iterator[None]:
    """AssertionError at the end if tl.dot was to round float32 to TF32, its default. Only a GPU does it, and shows it."""
    with dots() as products:
        yield
    assert not any(dot.left == "fp32" and dot.precision == "tf32" for dot in products), (
        f"{inputs}: right here, but on a GPU tensor cores would round float32 to TF32, and keep 10 of its 23 bits\n"
        '  likely   tl.dot without input_precision="ieee"'
    )
