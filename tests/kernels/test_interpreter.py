"""Triton's interpreter, repaired: bfloat16 and float8 come out as torch, the oracle here, computes them."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from minillm.kernels.runtime import INTERPRETED, tl, triton

if not INTERPRETED:
    pytest.skip("kernels run natively here", allow_module_level=True)

from minillm.kernels import interpreter
from triton.runtime import interpreter as upstream
from triton.runtime.errors import InterpreterError

BLOCK = 1 << 16
# every float there is at this width: as bit patterns, viewed as the format
EVERY_BFLOAT16 = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
EVERY_FLOAT16 = EVERY_BFLOAT16.view(torch.float16)
EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@triton.jit
def cast_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(out.dtype.element_ty), mask=i < n)


@triton.jit
def arithmetic_kernel(x, y, out, n, OPERATION: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    if OPERATION == "add":
        r = a + b
    elif OPERATION == "sub":
        r = a - b
    elif OPERATION == "mul":
        r = a * b
    elif OPERATION == "negate":
        r = -a
    elif OPERATION == "abs":
        r = tl.abs(a)
    elif OPERATION == "minimum":
        r = tl.minimum(a, b)
    elif OPERATION == "maximum":
        r = tl.maximum(a, b)
    elif OPERATION == "where":
        r = tl.where(a > b, a, b)
    else:
        r = (a < b).to(tl.bfloat16)
    tl.store(out + i, r, mask=i < n)


@triton.jit
def dot_kernel(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACCUMULATOR: tl.constexpr = tl.float32):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    product = tl.dot(tl.load(x + m * K + k[None, :]), tl.load(y + k[:, None] * N + n), out_dtype=ACCUMULATOR)
    tl.store(out + m * N + n, product)


@triton.jit
def reduce_kernel(x, out, N: tl.constexpr):
    row = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.sum(row))
    tl.store(out + 1, tl.max(row))
    tl.store(out + 2, tl.min(row))
    tl.store(out + 3, tl.argmax(row, axis=0).to(tl.bfloat16))


@triton.jit
def constant_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i, mask=i < 2, other=0.1)
    tl.store(out + i, value + tl.full([N], 1.5, tl.bfloat16))


@triton.jit
def bitcast_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(tl.int16, bitcast=True) + 1)
    tl.store(x + i, (tl.load(out + i) - 1).to(tl.bfloat16, bitcast=True))


@triton.jit
def atomic_kernel(x, out, index, old, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(old + i, tl.atomic_add(out + tl.load(index + i), tl.load(x + i), mask=i < N - 1))


@triton.jit
def add_descriptor_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    target.store([0, 0], source.load([0, 0]) + source.load([0, 0]))


@triton.jit
def truncate_kernel(x, out):
    tl.store(out, tl.load(x).to(tl.bfloat16, fp_downcast_rounding="rtz"))


@triton.jit
def clamp_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.clamp(tl.load(x + i), -1.0, 1.0))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Bit for bit, the sign of zero too; a NaN equals any NaN."""
    assert ours.dtype == theirs.dtype
    a, b = ours.float(), theirs.float()
    nan = a.isnan() & b.isnan()
    return bool((nan | ((a == b) & (a.signbit() == b.signbit()))).all())


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(1,)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out


def float32_sample() -> torch.Tensor:
    """All magnitudes, all ties between neighbours of bfloat16, infinities, NaN, subnormals."""
    bits = torch.randint(-(2**31), 2**31, (30_000,), dtype=torch.int64).to(torch.int32)
    ties = (torch.arange(1 << 15, dtype=torch.int32) << 16) + 0x8000
    return torch.cat([bits, ties]).view(torch.float32)


def test_every_bfloat16_survives_load_and_store():
    assert same(cast(EVERY_BFLOAT16, torch.bfloat16), EVERY_BFLOAT16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_every_bfloat16_widens_and_narrows(dtype):
    assert same(cast(EVERY_BFLOAT16, dtype), EVERY_BFLOAT16.to(dtype))


def test_float32_rounds_to_the_nearest_bfloat16_ties_to_even():
    x = float32_sample()
    assert same(cast(x, torch.bfloat16), x.to(torch.bfloat16))
    assert cast(torch.tensor([1 + 1 / 256, 1 + 3 / 256]), torch.bfloat16).tolist() == [1.0, 1.015625]  # both are ties


def test_float16_becomes_bfloat16():
    assert same(cast(EVERY_FLOAT16, torch.bfloat16), EVERY_FLOAT16.to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_bfloat16_and_integers(dtype):
    x = torch.tensor([-128, -3, 0, 1, 100, 127], dtype=dtype)
    assert same(cast(x, torch.bfloat16), x.to(torch.bfloat16))
    assert torch.equal(cast(x.to(torch.bfloat16), dtype), x.to(torch.bfloat16).to(dtype))


def number(a, b, otherwise):
    """The operand that is no NaN; torch.fmin lets signalling NaNs win."""
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, otherwise))


TORCH = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "negate": lambda a, b: 0 - a,
    "abs": lambda a, b: a.abs(),
    "minimum": lambda a, b: number(a, b, torch.minimum(a, b)),
    "maximum": lambda a, b: number(a, b, torch.maximum(a, b)),
    "where": lambda a, b: torch.where(a > b, a, b),
    "less": lambda a, b: (a < b).to(torch.bfloat16),
}


@pytest.mark.parametrize("operation", TORCH)
def test_bfloat16_arithmetic_is_torchs(operation):
    x, y = EVERY_BFLOAT16, EVERY_BFLOAT16[torch.randperm(1 << 16)]
    equal_zeros = (x == 0) & (y == 0)  # which zero the smaller of two zeros is, is left open
    out = torch.empty_like(x)
    arithmetic_kernel[(1,)](x, y, out, x.numel(), OPERATION=operation, BLOCK=BLOCK)
    expected = TORCH[operation](x, y)
    assert same(out[~equal_zeros], expected[~equal_zeros])


def test_small_sums_are_lost_in_bfloat16_as_on_a_gpu():
    """256 + 1 is not a bfloat16: a kernel that accumulates in bfloat16 must be seen to stop there."""
    x = torch.tensor([256.0], dtype=torch.bfloat16)
    out = torch.empty_like(x)
    arithmetic_kernel[(1,)](x, torch.ones_like(x), out, 1, OPERATION="add", BLOCK=1)
    assert out.item() == 256


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dot_accumulates_in_float32(dtype):
    x, y = torch.randn(16, 64, dtype=torch.float32).to(dtype), torch.randn(64, 32).to(dtype)
    out = torch.empty(16, 32)
    dot_kernel[(1,)](x, y, out, 16, 32, 64)
    torch.testing.assert_close(out, (x.double() @ y.double()).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left, right", list(itertools.product(FLOAT8, FLOAT8)))
def test_dot_of_float8(left, right):
    x, y = torch.randn(16, 64).to(left), torch.randn(64, 32).to(right)
    out = torch.empty(16, 32)
    dot_kernel[(1,)](x, y, out, 16, 32, 64)
    torch.testing.assert_close(out, (x.double() @ y.double()).float(), rtol=1e-5, atol=1e-5)


def test_dot_into_float16_overflows_to_infinity():
    x = torch.full((16, 16), 100.0, dtype=torch.float16)
    out = torch.empty(16, 16, dtype=torch.float16)
    dot_kernel[(1,)](x, x, out, 16, 16, 16, ACCUMULATOR=tl.float16)
    assert out.isinf().all()


def test_dot_of_int8_stays_exact():
    x, y = torch.randint(-128, 128, (16, 32), dtype=torch.int8), torch.randint(-128, 128, (32, 16), dtype=torch.int8)
    out = torch.empty(16, 16, dtype=torch.int32)
    dot_kernel[(1,)](x, y, out, 16, 16, 32)
    assert torch.equal(out, (x.long() @ y.long()).int())


def test_reductions_of_bfloat16():
    x = torch.randn(128).to(torch.bfloat16)
    out = torch.empty(4, dtype=torch.bfloat16)
    reduce_kernel[(1,)](x, out, 128)
    assert same(out, torch.stack([x.float().sum().to(torch.bfloat16), x.max(), x.min(), x.argmax().to(torch.bfloat16)]))


def test_constants_and_the_value_of_masked_lanes():
    x = torch.tensor([1.0, 2.0, 7.0, 7.0], dtype=torch.bfloat16)
    out = torch.empty_like(x)
    constant_kernel[(1,)](x, out, 4)
    assert same(out, torch.tensor([1.0, 2.0, 0.1, 0.1], dtype=torch.bfloat16) + torch.tensor(1.5, dtype=torch.bfloat16))


def test_bitcasts_see_the_bits():
    x = EVERY_BFLOAT16[:256].clone()
    out = torch.empty(256, dtype=torch.int16)
    bitcast_kernel[(1,)](x, out, 256)
    assert torch.equal(out, EVERY_BFLOAT16[:256].view(torch.int16) + 1)
    assert torch.equal(x.view(torch.int16), EVERY_BFLOAT16[:256].view(torch.int16))


def test_atomic_add_of_bfloat16_adds_lanes_that_meet():
    x = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.bfloat16)
    out, old = torch.zeros(2, dtype=torch.bfloat16), torch.empty(4, dtype=torch.bfloat16)
    atomic_kernel[(1,)](x, out, torch.tensor([0, 0, 1, 1]), old, 4)  # the last lane is masked
    assert out.tolist() == [3.0, 4.0]
    assert old.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_tensor_descriptors_of_bfloat16():
    x = torch.randn(16, 16).to(torch.bfloat16)
    out = torch.empty_like(x)
    add_descriptor_kernel[(1,)](x, out, 16, 16, 16, 16)
    assert same(out, x + x)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_float8_widens(dtype):
    x = EVERY_BYTE.view(dtype)
    for wide in (torch.float32, torch.float16, torch.bfloat16):
        assert same(cast(x, wide), x.to(wide))


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16])
def test_float8_rounds_to_nearest_and_saturates(dtype, source):
    x = float32_sample().to(source)
    largest = torch.finfo(dtype).max
    assert same(cast(x, dtype).float(), x.float().clamp(-largest, largest).to(dtype).float())


def test_float8_by_hand():
    x = torch.tensor([1.99, 1.0625, 1.1875, 500.0, float("inf"), -1e30, 2**-10, 3 * 2**-10, float("nan")])
    got = cast(x, torch.float8_e4m3fn).float().tolist()
    assert got[:-1] == [2.0, 1.0, 1.25, 448.0, 448.0, -448.0, 0.0, 2**-8]  # carry, ties, saturation, subnormal ties
    assert got[-1] != got[-1]


def test_arithmetic_on_float8_is_refused():
    x = torch.ones(4).to(torch.float8_e4m3fn)
    with pytest.raises(InterpreterError, match="no arithmetic on fp8e4nv: convert it"):
        arithmetic_kernel[(1,)](x, x, torch.empty(4), 4, OPERATION="add", BLOCK=4)


def test_rounding_modes_it_cannot_do_are_refused():
    with pytest.raises(InterpreterError, match="rounds to nearest only"):
        truncate_kernel[(1,)](torch.ones(1), torch.empty(1, dtype=torch.bfloat16))


def test_clamp_returns_a_bound_for_nan_as_a_gpu_does():
    x, out = torch.tensor([float("nan"), 5.0, 0.5, -5.0]), torch.empty(4)
    clamp_kernel[(1,)](x, out, 4)
    assert out.tolist() == [-1.0, 1.0, 0.5, -1.0]


def test_overflow_prints_no_warning(recwarn):
    assert cast(torch.tensor([1e30]), torch.float16).isinf()
    assert list(recwarn) == []


@triton.jit
def helper(x):
    return tl.sum(x) + tl.max(x)


@triton.jit
def nested_kernel(x, out, N: tl.constexpr):
    total = 0.0
    for _ in range(3):
        total += helper(tl.load(x + tl.arange(0, N)))
    tl.store(out, total)


def test_functions_called_in_a_kernel_work_time_after_time():
    """The language is searched for replacements once a launch, not once a call; and it is left as it was."""
    for n in (4, 8, 4):
        out = torch.empty(1)
        nested_kernel[(2,)](torch.arange(n, dtype=torch.float32), out, n)
        assert out.item() == 3 * (n * (n - 1) / 2 + n - 1)
    assert tl.range.__module__ == "triton.language.core"


def test_installing_twice_changes_nothing():
    before = upstream._get_np_dtype, upstream.TensorHandle.__post_init__, type(upstream.interpreter_builder)
    interpreter.install()
    assert before == (upstream._get_np_dtype, upstream.TensorHandle.__post_init__, type(upstream.interpreter_builder))


def test_an_unknown_interpreter_is_refused(monkeypatch):
    monkeypatch.delattr(upstream, "_get_np_dtype")
    with pytest.raises(RuntimeError, match="has no _get_np_dtype"):
        interpreter.install()


def test_an_untested_version_is_said():
    code = (
        "import os; os.environ['TRITON_INTERPRET'] = '1'\n"
        "import triton, warnings; triton.__version__ = '3.71.0'; warnings.simplefilter('error')\n"
        "from minillm.kernels import interpreter\n"
        "try: interpreter.install()\n"
        "except UserWarning as w: print(w)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "repaired for 3.7, and this is 3.71.0" in run.stdout, run.stderr


def test_the_language_is_interpreted_whoever_imported_triton_first():
    code = (
        "import torch, torch._dynamo, sys; assert 'triton' in sys.modules\n"
        "from minillm.kernels.softmax import softmax\n"
        "x = torch.randn(3, 40); torch.testing.assert_close(softmax(x), x.softmax(-1))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
