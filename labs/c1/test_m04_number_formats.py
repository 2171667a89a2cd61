"""Checks of the number formats, bit for bit: by hand, against torch's float8, exact fractions, and llama.cpp's MXFP4."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from gguf.quants import MXFP4
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_equal, assert_raises

TINIEST = float(np.finfo(np.float32).smallest_subnormal)


def e4m3(code):
    """What a code up to 0x7E stands for, straight from the formula."""
    exponent, fraction = code >> 3, code & 7
    return float(Fraction(8 + fraction, 8) * Fraction(2) ** (exponent - 7) if exponent else Fraction(fraction, 512))


VALUES = [e4m3(code) for code in range(0x7F)]


def codes_of(lab, values, **options):
    """The codes as a plain list, after a look at their type and shape."""
    x = np.array(values, dtype=np.float32)
    codes = lab.to_fp8_e4m3(x, **options)
    kind = isinstance(codes, np.ndarray) and (str(codes.dtype), codes.shape)
    assert_equal(kind, ("uint8", x.shape), "dtype and shape of the codes", inputs=f"x of shape {x.shape}")
    return codes.ravel().tolist()


def compare_codes(got, expected, values, hint):
    """The first code that differs, with its number."""
    for value, a, b in zip(values, got, expected, strict=True):
        if a != b:
            said = f"x = {value!r}"
            assert_equal(f"{a:#04x}", f"{b:#04x}", "the code", inputs=said, hint=hint)


BY_HAND = [
    (1.0, 0x38), (1.125, 0x39), (2.0, 0x40), (-1.5, 0xBC), (15.9, 0x58), (448.0, 0x7E), (-448.0, 0xFE), (2**-6, 0x08),
    (2**-9, 0x01), (0.0, 0x00), (-0.0, 0x80), (-0.0001, 0x80), (1.0625, 0x38), (1.1875, 0x3A), (455.0, 0x7E),
]  # fmt: skip


@checks("to_fp8_e4m3")
def test_a_few_by_hand(lab):
    hint = "sign, four bits of exponent (plus 7), three of fraction; ties go to the even code, a carry into the exponent is right"
    values, expected = zip(*BY_HAND, strict=True)
    compare_codes(codes_of(lab, values), expected, values, hint)


@checks("to_fp8_e4m3")
@pytest.mark.parametrize("sign", [1, -1])
def test_every_number_of_the_format_is_itself(lab, sign):
    values = [sign * value for value in VALUES]
    expected = [code | (0x80 if sign < 0 else 0) for code in range(0x7F)]
    hint = (
        "below 2^-6 the spacing stays at 1/512 (subnormals); and 256 to 448 are numbers here, no infinities; zero has no exponent"
    )
    compare_codes(codes_of(lab, values), expected, values, hint)


@checks("to_fp8_e4m3")
@pytest.mark.parametrize("sign", [1, -1])
def test_halfway_goes_to_the_even_code_and_next_to_it_to_the_nearer(lab, sign):
    values, expected = [], []
    for code, (low, high) in enumerate(pairwise(VALUES)):
        middle = np.float32((low + high) / 2)
        neighbours = np.nextafter(middle, np.float32(-1)), middle, np.nextafter(middle, np.float32(1000))
        values += [float(sign * v) for v in neighbours]
        expected += [c | (0x80 if sign < 0 else 0) for c in (code, code + code % 2, code + 1)]
    hint = "to nearest, ties to even; a float32 just beside the middle is no tie: do not round twice, or add 0.5 and cut"
    compare_codes(codes_of(lab, values), expected, values, hint)


@checks("to_fp8_e4m3")
def test_random_floats_as_torch_rounds_them(lab):
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), rng.standard_normal(20_000, dtype=np.float32) * 30])
    x = x[~np.isnan(x)]
    expected = torch.from_numpy(x).to(torch.float8_e4m3fn).view(torch.uint8).tolist()
    compare_codes(codes_of(lab, x), expected, x.tolist(), "torch.float8_e4m3fn is the same format, and saturates")


@checks("to_fp8_e4m3")
def test_beyond_the_largest(lab):
    over = [464.00003, 465.0, 480.0, 1e4, 3e38, float("inf")]
    values = [*over, *(-v for v in over)]
    hint = "with saturate, infinity and all that is too large becomes the largest number, 448"
    compare_codes(codes_of(lab, values, saturate=True), [0x7E] * len(over) + [0xFE] * len(over), values, hint)
    hint = "without saturate, more than 464 is NaN: this format has no infinity"
    got = codes_of(lab, values, saturate=False)
    compare_codes([code & 0x7F for code in got], [0x7F] * len(values), values, hint)


@checks("to_fp8_e4m3")
@pytest.mark.parametrize("saturate", [True, False])
def test_up_to_464_is_448(lab, saturate):
    values = [449.0, 460.0, 464.0, -449.0, -464.0]
    hint = "round first, then see whether the result is too large: 464 is a tie between 448 (even) and 480"
    got = codes_of(lab, values, saturate=saturate)
    compare_codes(got, [0x7E] * 3 + [0xFE] * 2, values, f"{hint}; saturate={saturate}")


@checks("to_fp8_e4m3")
@pytest.mark.parametrize("saturate", [True, False])
def test_nan_stays_nan(lab, saturate):
    got = codes_of(lab, [float("nan"), 1.0, -float("nan")], saturate=saturate)
    assert_equal(
        [code & 0x7F for code in got], [0x7F, 0x38, 0x7F], "the codes without their sign", inputs=f"[nan, 1, -nan], {saturate=}",
        hint="a NaN must not become a number: it is the only trace of what went wrong before",
    )  # fmt: skip


@checks("to_fp8_e4m3")
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3, 4)])
def test_any_shape(lab, shape):
    x = np.full(shape, -1.5, np.float32)
    codes = np.asarray(lab.to_fp8_e4m3(x))
    assert_equal((codes.shape, str(codes.dtype)), (shape, "uint8"), "shape and dtype of the codes", inputs=f"x of shape {shape}")
    assert_equal(bool((codes == 0xBC).all()), True, "whether all codes are 0xbc", inputs=f"-1.5 in shape {shape}")


@checks("to_fp8_e4m3")
def test_x_is_left_alone_and_may_be_a_view(lab):
    x = np.linspace(-500, 500, 24, dtype=np.float32).reshape(4, 6)
    before = x.copy()
    turned, whole = lab.to_fp8_e4m3(x.T[::2]), lab.to_fp8_e4m3(x)
    hint = "x may be a transposed or strided view; reshape and view on it copy or fail"
    assert_equal(np.array_equal(turned, whole.T[::2]), True, "whether a view gives the same codes", inputs="x.T[::2]", hint=hint)
    assert_equal(np.array_equal(x, before), True, "whether x is unchanged", hint="work on a copy")


GRID = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def block(*values, fill=0.0):
    """32 numbers that begin with `values`."""
    return np.array([*values, *[fill] * (32 - len(values))], dtype=np.float32)


def quantize(lab, x):
    """Codes in the order of the elements, and scales, after a look at the results' types and shapes."""
    x = np.asarray(x, np.float32)
    try:
        got = lab.mxfp4_quantize(x)
    except ValueError as e:
        hint = "reshape cannot work out a -1 where another dimension is 0: write K // 32" if not x.size else None
        assert_equal(f"ValueError: {e}", "packed and scales", "the call", inputs=f"x of shape {x.shape}", hint=hint)
    assert_equal(isinstance(got, tuple) and len(got), 2, "the number of results", hint="return packed, scales")
    packed, scales = got
    expected = [("uint8", (*x.shape[:-1], x.shape[-1] // n)) for n in (2, 32)]
    kinds = [(str(r.dtype), r.shape) for r in (packed, scales)]
    assert_equal(kinds, expected, "dtype and shape of packed and scales", inputs=f"x of shape {x.shape}")
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(x.shape), scales


@checks("mxfp4_quantize")
def test_a_block_by_hand(lab):
    codes, scales = quantize(lab, block(6, -3, 0.5, 1, 0.1, -0.1, 5.1, 4.9))
    said = "one block: 6, -3, 0.5, 1, 0.1, -0.1, 5.1, 4.9, and zeros"
    hint = "the largest is 6: floor(log2(6)) - 2 = 0, so the scale is 1 and is stored as 127"
    assert_equal(scales.tolist(), [127], "scales", inputs=said, hint=hint)
    hint = "sign in the fourth bit, then the place among 0, 0.5, 1, 1.5, 2, 3, 4, 6; the sign of zero is kept"
    assert_equal(codes.tolist()[:8], [7, 13, 1, 2, 0, 8, 7, 6], "the first codes", inputs=said, hint=hint)


@checks("mxfp4_quantize")
def test_two_codes_to_a_byte(lab):
    packed, _ = lab.mxfp4_quantize(block(6, 1, -0.5, 4))
    hint = "the element with the even index goes into the low four bits"
    assert_equal(
        [f"{byte:#04x}" for byte in packed[:2]], ["0x27", "0x69"], "packed[:2]", inputs="6, 1, -0.5, 4, zeros", hint=hint
    )


@checks("mxfp4_quantize")
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("exponent", [-126, -20, 0, 3, 124])
def test_ties_go_to_the_even_number(lab, exponent, sign):
    """One block has 6 first, which fixes its scale; all others are midpoints and their float32 neighbours, scaled alike."""
    values, expected = [6.0], [7]
    for number, (low, high) in enumerate(pairwise(GRID)):
        middle = np.float32((low + high) / 2)
        for value, code in ((middle, number + number % 2), (middle * 0.9375, number), (middle * 1.0625, number + 1)):
            values.append(sign * value)
            expected.append(code | (8 if sign < 0 else 0))
    codes, scales = quantize(lab, np.ldexp(block(*values), exponent).astype(np.float32))
    said = f"a block of 6 and midpoints, times 2^{exponent}"
    assert_equal(scales.tolist(), [127 + exponent], "scales", inputs=said)
    for value, a, b in zip(values, codes.tolist(), expected, strict=False):
        hint = "of two equally near, the one with the even number: not always the smaller, not always the larger"
        assert_equal(a, b, "the code", inputs=f"{value} times the scale, 2^{exponent}", hint=hint)


@checks("mxfp4_quantize")
def test_the_scale_of_every_power_of_two_and_its_neighbours(lab):
    for exponent in range(-149, 128):
        power = np.float32(2.0**exponent)
        peaks = [power, *((np.nextafter(power, np.float32(0)),) if exponent > -126 else ())]
        for peak, floor in zip(peaks, (exponent, exponent - 1), strict=False):
            _, scales = quantize(lab, block(0, -peak))
            hint = (
                "floor(log2(m)) - 2 + 127, not below 0; log2 in float32 rounds up just below a power of two (np.frexp does not)"
            )
            assert_equal(
                int(scales[0]), max(floor - 2 + 127, 0), "the scale", inputs=f"a block whose largest is {-peak!r}", hint=hint
            )


@checks("mxfp4_quantize")
def test_above_six_is_six(lab):
    codes, scales = quantize(lab, block(7.9, -7, 6.5, 4))
    said = "a block of 7.9, -7, 6.5, 4, and zeros: scale 1"
    assert_equal(
        scales.tolist(), [127], "scales", inputs=said, hint="7.9 lies between 4 and 8; that 7.9 / scale exceeds 6 is no matter"
    )
    assert_equal(codes.tolist()[:4], [7, 15, 7, 6], "the first codes", inputs=said, hint="all above 6 becomes 6")


@checks("mxfp4_quantize")
def test_zeros_and_what_is_too_small(lab):
    codes, scales = quantize(lab, np.stack([block(), block(-0.0), block(TINIEST, -TINIEST)]))
    assert_equal(scales.tolist(), [[0], [0], [0]], "scales", inputs="a block of zeros, and two of next to nothing")
    expected = [[0, 0], [8, 0], [0, 8]]
    hint = "divided by 2^-127, they are far below 0.25; the sign is kept"
    assert_equal(codes[:, :2].tolist(), expected, "the first codes of each", inputs="0, 0; -0, 0; ±2^-149", hint=hint)


@checks("mxfp4_quantize")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_spoil_their_own_block(lab, bad):
    x = np.concatenate([block(1, 2), block(3, bad, 1), block(-6, 1)])
    codes, scales = quantize(lab, x)
    said = f"three blocks: 1, 2, ...; 3, {bad}, 1, ...; -6, 1, ..."
    assert_equal(scales.tolist(), [126, 255, 127], "scales", inputs=said, hint="255 means NaN, for this block and no other")
    assert_equal(codes[32:64].tolist(), [0] * 32, "the codes of the block with it", inputs=said)
    assert_equal((codes[1], codes[64]), (6, 15), "codes of the blocks beside it", inputs=said)


@checks("mxfp4_quantize")
@pytest.mark.parametrize("shape", [(32,), (1, 64), (5, 96), (2, 3, 64), (0, 32), (2, 0)])
def test_as_llama_cpp_rounds_in_any_shape(lab, shape):
    """gguf is llama.cpp's own package; it packs in another order and rounds ties down, of which random numbers have none."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * np.exp(3 * rng.standard_normal((*shape[:-1], 1)))).astype(np.float32)
    codes, scales = quantize(lab, x)
    if not x.size:
        return
    theirs = MXFP4.quantize_blocks(x.reshape(-1, 32))
    said = f"random x of shape {shape}, compared with gguf.quants.MXFP4"
    assert_equal(scales.ravel().tolist(), theirs[:, 0].tolist(), "scales", inputs=said)
    values = np.array([*GRID, *(-g for g in GRID)])[codes].reshape(-1, 32)
    expected = MXFP4.dequantize_blocks(theirs) / np.ldexp(1.0, theirs[:, :1].astype(int) - 127)
    off = np.argwhere(values != expected)
    if len(off):
        row, column = off[0]
        hint = "each block of 32 along the last axis has its own scale"
        said = f"{x.reshape(-1, 32)[row, column]!r} in a block with the scale 2^{int(theirs[row, 0]) - 127}; x of shape {shape}"
        assert_equal(float(values[row, column]), float(expected[row, column]), "the number of a code", inputs=said, hint=hint)


@checks("mxfp4_quantize")
@given(st.lists(st.floats(-100, 100, width=32), min_size=32, max_size=32), st.integers(-20, 20))
def test_a_power_of_two_moves_the_scale_and_nothing_else(lab, values, shift):
    x = np.array(values, np.float32)
    x[np.abs(x) < 1e-20] = 0
    codes, scales = quantize(lab, x)
    moved, moved_scales = quantize(lab, np.ldexp(x, shift).astype(np.float32))
    said = f"{values[:3]}..., and 2^{shift} times that"
    assert_equal(moved.tolist(), codes.tolist(), "the codes of the second", inputs=said)
    expected = int(scales[0]) + (shift if x.any() else 0)
    assert_equal(int(moved_scales[0]), expected, "the scale of the second", inputs=said)


@checks("mxfp4_quantize")
@pytest.mark.parametrize("shape", [(31,), (2, 48), (33,), (32, 1), ()])
def test_other_lengths_are_refused(lab, shape):
    call = f"mxfp4_quantize(x of shape {shape})"
    assert_raises(ValueError, lambda: lab.mxfp4_quantize(np.ones(shape, np.float32)), call, hint="K must be a multiple of 32")


@checks("mxfp4_quantize")
def test_x_is_left_alone(lab):
    x = np.concatenate([block(7, float("nan")), block(1, 2)]).reshape(2, 32)
    before = x.copy()
    lab.mxfp4_quantize(x)
    assert_equal(np.array_equal(x, before, equal_nan=True), True, "whether x is unchanged", hint="work on a copy")
