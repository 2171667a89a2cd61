"""Checks of 5.1, in the order in which they are best mended."""

import pytest
import torch

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.instruments.traffic import trace

from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, DTYPES, GUARD, counted
from labs.kit.launches import launches

HALF_A_STEP = {torch.float32: 1e-5, torch.float16: 2**-11 + 1e-5, torch.bfloat16: 2**-8 + 1e-5}  # relative; rounding once


def called(function, *args, **options):
    """Its result, with its kernels kept from memory that is not theirs: for without a mask they would write into this process."""
    with fenced():
        return function(*args, **options)


class Guarded:
    """A tensor [rows, length] (or [length]) amid memory that nobody may touch; pitch: elements from row to row."""

    def __init__(self, values, pitch=None):
        values = values.to(DEVICE)
        rows, length = (1, *values.shape) if values.ndim == 1 else values.shape
        pitch = pitch or length
        self._memory = torch.full((rows * pitch + 4096,), GUARD, dtype=values.dtype, device=DEVICE)
        view = self._memory[1024 : 1024 + rows * pitch].view(rows, pitch)[:, :length]
        self.tensor = view[0] if values.ndim == 1 else view
        self.tensor.copy_(values)

    def is_intact(self):
        """Whether all memory around the tensor is as it was. The tensor itself is overwritten for the comparison."""
        kept = self.tensor.clone()
        self.tensor.fill_(GUARD)
        intact = bool((self._memory == GUARD).all())
        self.tensor.copy_(kept)
        return intact


def assert_intact(guarded, inputs):
    hint = "lanes past the end wrote: does tl.store have the mask, too, and does each row start at row * its own stride?"
    assert_equal(guarded.is_intact(), True, "the memory around out is untouched", inputs=inputs, hint=hint)


def spread(*shape, dtype, scale=3.0):
    return (scale * torch.randn(*shape)).to(dtype)


def assert_bytes(report, name, loads, stores, inputs, hint):
    total = report[name]
    for what, got, most in (("loaded from", total.load_bytes, loads), ("stored to", total.store_bytes, stores)):
        assert got > 0 or not most, f"{inputs}: no kernel {what} {name}; the work is to be done in a kernel of yours"
        message = f"{inputs}: {got:,} bytes {what} {name}, {most:,} are enough"
        assert got <= most, f"{message}\n  likely   {hint}"


def assert_nothing_else(report, known, inputs):
    for name, traffic in report.tensors.items():
        said = f"{inputs}: {traffic.bytes:,} bytes moved outside {' and '.join(known)} (the tracer calls them {name})"
        hint = "a tensor for something in between? It goes through memory; what is in a variable of the kernel does not"
        assert name in known or not traffic.bytes, f"{said}\n  likely   {hint}"


def assert_compiles_well(call, inputs):
    with launches() as launched:
        call()
    assert launched, f"{inputs}: no @triton.jit kernel was launched"
    for launch in launched:
        found = launch.inspect("sm_89")
        name = found.name
        spills = f"{inputs}: compiled for sm_89, {name} spills {found.spill_bytes} bytes a thread at {found.num_warps} warps"
        hint = "a thread has at most 255 registers, and holds BLOCK / (32 * num_warps) elements: more warps, or a smaller BLOCK"
        assert not found.spill_bytes, f"{spills}\n  likely   {hint}"
        narrow = f"{inputs}: {name}'s widest load is {found.widest_load} bits a thread, 128 are possible"
        assert found.widest_load == 128, (
            f"{narrow}\n  likely   neighbouring elements must belong to one thread: use tl.arange as it is"
        )


# ----------------------------------------------------------------------------------------------------------------------- add


@checks("add")
@pytest.mark.parametrize("length", [2048, 1, 1000, 1025, 4999])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_equals_torch_and_keeps_to_its_tensors(lab, dtype, length):
    x, y, out = (Guarded(spread(length, dtype=dtype)) for _ in range(3))
    expected, inputs = x.tensor + y.tensor, f"{length} elements, {dtype}"
    called(lab.add, x.tensor, y.tensor, out=out.tensor)
    assert_intact(out, inputs)
    hint = "how many programs does it take if the last is not full?"
    assert_close(out.tensor, expected, "out", atol=0, rtol=0, inputs=inputs, hint=hint)


@checks("add")
@counted
@pytest.mark.parametrize("length", [1, 1000, 2048, 3001])
def test_add_bytes(lab, length):
    x, y, out = (Guarded(spread(length, dtype=torch.bfloat16)).tensor for _ in range(3))
    with trace(x=x, y=y, out=out) as traffic:
        called(lab.add, x, y, out=out)
    inputs, size, report = f"{length} bfloat16", length * 2, traffic.report()
    for name, loads, stores in (("x", size, 0), ("y", size, 0), ("out", 0, size)):
        assert_bytes(report, name, loads, stores, inputs, "each element is read once and written once")
    assert_nothing_else(report, ("x", "y", "out"), inputs)
    hint = "do the lanes of one program lie side by side? program * BLOCK + tl.arange(0, BLOCK), not arange * programs + program"
    sectors = f"{inputs}: {report.total.coalescing:.0%} of the sectors moved were needed"
    assert report.total.coalescing > 0.9, f"{sectors}\n  likely   {hint}"


@checks("add")
@pytest.mark.parametrize("shape", [(), (3, 5, 7), (1, 1), (2, 1024), (0,), (3, 0)], ids=str)
def test_add_takes_any_shape(lab, shape):
    x, y = torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)
    expected, kept = x + y, (x.clone(), y.clone())
    assert_close(called(lab.add, x, y), expected, "add(x, y)", atol=0, rtol=0, inputs=f"shape {shape}")
    assert_close(x, kept[0], "x afterwards", atol=0, rtol=0, hint="without out, the result needs a tensor of its own")
    assert_close(y, kept[1], "y afterwards", atol=0, rtol=0, hint="without out, the result needs a tensor of its own")


@checks("add")
def test_add_in_place(lab):
    x, y = torch.randn(3000, device=DEVICE), torch.randn(3000, device=DEVICE)
    expected = x + y
    assert_equal(called(lab.add, x, y, out=y) is y, True, "add(x, y, out=y) is y", hint="out is returned, not a copy of it")
    assert_close(y, expected, "y after add(x, y, out=y)", atol=0, rtol=0, inputs="3000 float32")


@checks("add")
def test_add_compiles_well(lab):
    x, y = (spread(4096, dtype=torch.bfloat16).to(DEVICE) for _ in range(2))
    assert_compiles_well(lambda: called(lab.add, x, y), "4096 bfloat16")


# ------------------------------------------------------------------------------------------------------------------- softmax


def expect_softmax(lab, x, inputs, hint=None, pitch=None):
    """Through a slice of wider tensors, against float64."""
    given, out = Guarded(x, pitch), Guarded(torch.zeros_like(x), x.shape[1] + 13)
    expected = torch.softmax(given.tensor.double(), -1)
    kept = given.tensor.clone()
    called(lab.softmax, given.tensor, out=out.tensor)
    assert_intact(out, inputs)
    assert_close(
        out.tensor.double(), expected, "softmax(x)", atol=4e-8, rtol=HALF_A_STEP[x.dtype], inputs=inputs, hint=hint,
    )  # fmt: skip
    assert_close(given.tensor, kept, "x afterwards", atol=0, rtol=0, inputs=inputs, hint="x is to be read only")


@checks("softmax")
@pytest.mark.parametrize("length", [1024, 1, 7, 100, 1000, 3000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax_of_rows_that_fit(lab, dtype, length):
    hint = "lanes past the row's end must load -inf; and arithmetic, sums above all, is done in float32, rounded once at the end"
    expect_softmax(lab, spread(5, length, dtype=dtype), f"5 rows of {length}, {dtype}", hint)


@checks("softmax")
@pytest.mark.parametrize("offset", [-3000.0, 3000.0])
def test_softmax_does_not_depend_on_an_offset(lab, offset):
    hint = "exp overflows above 88: subtract the maximum; and a padded lane must not be it, so other=-inf, not 0"
    x = torch.randn(3, 100) + offset
    expect_softmax(lab, x, f"3 rows of 100 around {offset:g}, float32", hint)


@checks("softmax")
def test_softmax_of_a_slice(lab):
    hint = "row r of x begins r * x.stride(0) elements after the first, and out's at r * out.stride(0)"
    expect_softmax(lab, torch.randn(4, 50), "4 rows of 50 elements, 80 apart in x, 63 in out", hint, pitch=80)


@checks("softmax")
@pytest.mark.parametrize("length", [40, 33_000])
def test_softmax_of_minus_infinity(lab, length):
    x = torch.randn(3, length)
    x[0, ::2] = -torch.inf
    x[1, : length - 3] = -torch.inf
    x[2, 1:] = -torch.inf
    hint = "-inf - (-inf) is NaN: a lane (or a whole block) that has seen nothing else must not do that subtraction"
    expect_softmax(lab, x, f"3 rows of {length}: every second element, all but the last 3, all but the first are -inf", hint)
    nothing = torch.full((1, length), -torch.inf, device=DEVICE)
    expected = torch.full_like(nothing, torch.nan)
    assert_close(
        called(lab.softmax, nothing),
        expected,
        "softmax of -inf only",
        atol=0,
        rtol=0,
        inputs=f"a row of {length}",
        hint="NaN, as in torch",
    )


@checks("softmax")
@pytest.mark.parametrize("dtype, length", [(torch.float32, 20_000), (torch.bfloat16, 40_001), (torch.float16, 65_536)], ids=str)
def test_softmax_of_long_rows(lab, dtype, length):
    rising = torch.linspace(-20, 20, length).repeat(3, 1).to(dtype)
    rising[1] = rising[1].flip(0)
    rising[2] = spread(length, dtype=dtype)
    hint = "when the maximum grows, what was summed up so far is too large by exp(new - old)"
    expect_softmax(lab, rising, f"rows of {length}, {dtype}: one rising, one falling, one random", hint)


@checks("softmax")
@counted
@pytest.mark.parametrize("length, readings", [(1000, 1), (32_768, 1), (40_000, 2)])
def test_softmax_bytes(lab, length, readings):
    x, out = (Guarded(spread(2, length, dtype=torch.bfloat16), length + 8).tensor for _ in range(2))
    with trace(x=x, out=out) as traffic:
        called(lab.softmax, x, out=out)
    inputs, size, report = f"2 rows of {length:,} bfloat16", x.numel() * 2, traffic.report()
    once = "a row that fits BLOCK is loaded once, and maximum, exp and sum work on the loaded block: nothing is loaded again"
    twice = "two readings will do: one for maximum and sum together, one for the result"
    assert_bytes(report, "x", readings * size, 0, inputs, once if readings == 1 else twice)
    assert_bytes(report, "out", 0, size, inputs, "what is not finished yet stays in registers; only the result is stored, once")
    assert_nothing_else(report, ("x", "out"), inputs)


@checks("softmax")
@pytest.mark.parametrize("shape", [(5,), (2, 3, 7), (1, 1), (0, 4), (3, 0), (0,)], ids=str)
def test_softmax_takes_any_shape(lab, shape):
    x = torch.randn(shape, device=DEVICE)
    assert_close(called(lab.softmax, x), torch.softmax(x, -1), "softmax(x)", atol=1e-6, rtol=1e-5, inputs=f"shape {shape}")


@checks("softmax")
@pytest.mark.parametrize("length", [50, 20_000])
def test_softmax_in_place(lab, length):
    x = torch.randn(2, length, device=DEVICE)
    expected = torch.softmax(x, -1)
    assert_equal(called(lab.softmax, x, out=x) is x, True, "softmax(x, out=x) is x", hint="out is returned, not a copy of it")
    assert_close(x, expected, "x after softmax(x, out=x)", atol=1e-7, rtol=1e-5, inputs=f"2 rows of {length} float32")


@checks("softmax")
@pytest.mark.parametrize("length", [32_768, 128_256])
def test_softmax_compiles_well(lab, length):
    """The longest row that is read once, and Llama 3's vocabulary."""
    x = spread(1, length, dtype=torch.bfloat16).to(DEVICE)
    assert_compiles_well(lambda: called(lab.softmax, x), f"a row of {length:,} bfloat16")
