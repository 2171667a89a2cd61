"""Bit for bit against independent converters: torch, numpy and, where it is installed, ml_dtypes."""

import numpy as np
import pytest
import torch

from shared.number_formats import (
    BF16,
    FLOATS,
    FP4_E2M1,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    FP32,
    TF32,
    decode,
    encode,
    round_to,
    to_fp8_e4m3,
)

TORCH = {BF16: torch.bfloat16, FP16: torch.float16, FP8_E4M3: torch.float8_e4m3fn, FP8_E5M2: torch.float8_e5m2}
by_name = {"ids": lambda form: form.name}


def floats(form):
    """Random bit patterns, every number of the format (of 65,536 at most), and the midpoints with their float32 neighbours."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    numbers = decode(np.arange(min(form.largest_code, 2**15 - 1) + 1), form)
    middles = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(-np.inf)), np.nextafter(middles, np.float32(np.inf))]
    positive = np.concatenate([numbers.astype(np.float32), middles, *near])
    return np.concatenate([patterns, positive, -positive, np.float32([np.inf, -np.inf, np.nan])])


def unsigned(codes):
    """torch and ml_dtypes tensors and arrays of any format as plain codes."""
    if isinstance(codes, torch.Tensor):
        codes = codes.view(torch.uint8 if codes.itemsize == 1 else torch.int16).numpy()
    return codes.view(np.uint8 if codes.itemsize == 1 else np.uint16)


def assert_same(got, expected, x, form):
    number = ~np.isnan(x)
    off = np.flatnonzero((got != expected) & number)
    assert not len(off), f"{form.name} of {x[off[0]]!r}: {got[off[0]]:#x}, expected {expected[off[0]]:#x}; {len(off)} differ"
    assert np.isnan(decode(got[~number], form)).all() and (~number).any()


@pytest.mark.parametrize("form", TORCH, **by_name)
def test_as_torch_rounds(form):
    x = floats(form)
    expected = unsigned(torch.from_numpy(x).to(TORCH[form]))
    assert_same(encode(x, form, saturate=form is FP8_E4M3), expected, x, form)  # torch saturates this format only


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(
    "form, name", [(BF16, "bfloat16"), (FP8_E4M3, "float8_e4m3fn"), (FP8_E5M2, "float8_e5m2")], ids=["BF16", "E4M3", "E5M2"]
)
def test_as_ml_dtypes_rounds(form, name):
    x = floats(form)
    expected = unsigned(x.astype(getattr(pytest.importorskip("ml_dtypes"), name)))
    assert_same(encode(x, form), expected, x, form)


def test_fp4_as_ml_dtypes_rounds():
    x = floats(FP4_E2M1)
    x = x[~np.isnan(x)]
    expected = x.astype(pytest.importorskip("ml_dtypes").float4_e2m1fn).view(np.uint8)
    assert np.array_equal(encode(x, FP4_E2M1), expected)


def test_fp4_by_hand():
    numbers = [0, 0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.1, 7, 1e30, np.inf]
    assert encode(np.array(numbers), FP4_E2M1).tolist() == [0, 0, 1, 2, 2, 4, 4, 6, 6, 7, 7, 7, 7]
    assert decode(np.arange(16), FP4_E2M1).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    with pytest.raises(ValueError, match="no NaN"):
        encode(np.array([1.0, np.nan]), FP4_E2M1)


def test_tf32_is_float32_with_thirteen_bits_less():
    """Integer arithmetic on the bits: add just under half of what is cut, and one if the last kept bit is odd."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 0x7F000000, 50_000).astype(np.uint32)
    bits[::3] &= 0xFFFFE000
    bits[1::3] = bits[1::3] & 0xFFFFE000 | 0x1000  # ties
    expected = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000
    assert np.array_equal(round_to(bits.view(np.float32), TF32).view(np.uint32), expected)


def test_float32_is_itself():
    x = floats(FP8_E4M3)
    x = x[~np.isnan(x)]
    assert np.array_equal(encode(x, FP32), x.view(np.uint32))


def test_from_float64_in_one_step():
    x = np.array([1 + 2.0**-8 + 2.0**-40])  # float32 would make a tie of it, and BF16 then 1
    assert round_to(x, BF16) == 1 + 2.0**-7 and round_to(x.astype(np.float32), BF16) == 1


@pytest.mark.parametrize("form", FLOATS, **by_name)
def test_every_code_comes_back(form):
    codes = np.arange(min(form.largest_code, 2**16) + 1)
    codes = np.concatenate([codes, codes | 1 << (form.bits - 1)])
    assert np.array_equal(encode(decode(codes, form), form), codes)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("form", FLOATS[2:6], **by_name)
def test_beyond_the_largest(form, saturate):
    beyond = form.largest + form.step(form.largest) * np.array([0.49, 0.5])
    got = round_to(np.array([*beyond, np.inf, -np.inf]), form, saturate=saturate)
    last = {True: form.largest, False: np.nan if form is FP8_E4M3 else np.inf}[saturate]
    tie = form.largest if form is FP8_E4M3 else last  # 448 is even there; in the IEEE formats the largest is odd
    np.testing.assert_array_equal(got.astype(np.float64), [form.largest, tie, last, -last])


def test_limits():
    facts = {form.name: (form.bits, form.largest, form.smallest_normal, form.smallest) for form in FLOATS}
    assert facts["FP16"] == (16, 65504, 2**-14, 2**-24)
    assert facts["BF16"] == (16, torch.finfo(torch.bfloat16).max, 2**-126, 2**-133)
    assert facts["TF32"][:2] == (19, (2 - 2**-10) * 2.0**127)
    assert facts["FP8 E4M3"] == (8, 448, 2**-6, 2**-9)
    assert facts["FP8 E5M2"] == (8, 57344, 2**-14, 2**-16)
    assert facts["FP4 E2M1"] == (4, 6, 1, 0.5)


def test_steps():
    assert [BF16.step(22_574), FP16.step(22_574), FP8_E4M3.step(448), FP8_E4M3.step(0.001), FP16.step(0)] == [
        128, 16, 32, 2**-9, 2**-24,
    ]  # fmt: skip
    for x in (70_000, np.nan, np.inf):
        with pytest.raises(ValueError, match="65504"):
            FP16.step(x)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes(shape):
    codes = to_fp8_e4m3(np.full(shape, 1.0, np.float32))
    assert codes.shape == shape and codes.dtype == np.uint8 and (codes == 0x38).all()
