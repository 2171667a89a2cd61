"""Mistakes planted in 1.4."""

import numpy as np

from labs.kit.wrong import patch, replace
from shared.block_formats import mxfp4_quantize
from shared.number_formats import FP8_E4M3, decode, encode, to_fp8_e4m3


def random_numbers_come_back_nearly(subject):
    """The test one would write first: a thousand normal numbers, decoded again, within half a step."""
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    codes = subject(x)
    assert codes.dtype == np.uint8 and np.allclose(decode(codes, FP8_E4M3), x, rtol=1 / 16, atol=1 / 1024)


def a_block_comes_back(subject):
    """The test one would write first: a block of numbers that the format has."""
    x = np.tile(np.array([0.5, 1, 1.5, 2, 3, 4, 6, -1], np.float32), 4)
    packed, scales = subject(x)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    assert scales.tolist() == [127] and packed.shape == (16,)
    assert np.array_equal(values[np.stack([packed & 15, packed >> 4], axis=-1).ravel()], x)


def from_float16(x, saturate=True):
    """By way of float16: rounds twice."""
    with np.errstate(over="ignore"):
        return to_fp8_e4m3(np.asarray(x).astype(np.float16), saturate)


def nan_above_448(x, saturate=True):
    codes = to_fp8_e4m3(x, True)
    return codes if saturate else np.where(np.abs(x) > 448, np.uint8(0x7F), codes)


def clipped_like_numpy(x, saturate=True):
    """np.nan_to_num on the way, "to be safe"."""
    return to_fp8_e4m3(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf), saturate)


def subnormals_are_zero(x, saturate=True):
    x = np.asarray(x)
    return to_fp8_e4m3(np.where(np.abs(x) < 2.0**-6, np.copysign(0, x), x), saturate)


def inf_is_nan(x, saturate=True):
    return np.where(np.isinf(x), np.uint8(0x7F), encode(x, FP8_E4M3, saturate=saturate).astype(np.uint8))


def nearest_of_a_table(x):
    """argmin takes the first of two equally near: ties go to the smaller."""
    x = np.asarray(x)
    _, scales = mxfp4_quantize(x)
    units = np.nan_to_num(x.reshape(*scales.shape, 32) / np.ldexp(1.0, scales.astype(int) - 127)[..., None])
    units[scales == 255] = 0
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.abs(np.abs(units)[..., None] - grid).argmin(axis=-1) + 8 * np.signbit(units)
    codes = codes.reshape(x.shape).astype(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scales


SCALE = "exponent = np.frexp(peak)[1] - 1 - 2  # frexp, not log2: exact, also just below a power of two"

WRONG = {
    "to_fp8_e4m3": {
        "ties_away_from_zero": patch(
            "np.rint(np.ldexp(finite, form.fraction_bits - exponent))",
            "np.floor(np.ldexp(finite, form.fraction_bits - exponent) + 0.5)",
            "a tie goes up, as in school, and not to the even code",
        ),
        "cuts_off": patch(
            "np.rint(np.ldexp(finite, form.fraction_bits - exponent))",
            "np.floor(np.ldexp(finite, form.fraction_bits - exponent))",
            "the low bits of the fraction are dropped, not rounded",
        ),
        "zero_has_an_exponent": patch(
            "exponent = np.where(finite > 0, np.frexp(finite)[1].astype(np.int64) - 1, 1 - form.bias)",
            "exponent = np.frexp(finite)[1].astype(np.int64) - 1",
            "frexp(0) gives the exponent 0, so zero becomes 0.25: two million random floats do not show it",
        ),
        "reserves_the_top_exponent": patch(
            'FloatFormat("FP8 E4M3", 4, 3, "fn")', 'FloatFormat("FP8 E4M3", 4, 3)', "as in IEEE 754, so that 240 is the largest"
        ),
        "forgets_the_sign_of_zero": patch("np.signbit(x).astype", "(x < 0).astype", "-0.0 is not below zero"),
        "by_way_of_float16": replace(from_float16, "rounds twice: just above a tie becomes a tie"),
        "nan_from_448_on": replace(nan_above_448, "asks before rounding whether x is too large, so 450 is NaN"),
        "nan_becomes_zero": replace(clipped_like_numpy, "cleans NaN away"),
        "flushes_subnormals": replace(subnormals_are_zero, "below 2^-6 all is zero"),
        "infinity_is_nan": replace(inf_is_nan, "saturates what is finite only"),
    },
    "mxfp4_quantize": {
        "scale_so_that_the_largest_fits": patch(
            SCALE,
            "exponent = np.ceil(np.log2(np.where(peak > 0, peak, 1) / 6)).astype(int)",
            "the scale is rounded up so that nothing exceeds 6",
        ),
        "log2_in_float32": patch(
            SCALE,
            "exponent = np.floor(np.log2(np.where(peak > 0, peak, 1).astype(np.float32))).astype(int) - 2",
            "log2 of 7.9999995 rounds to 3 in float32",
        ),
        "high_half_first": patch(
            "codes[..., 0::2] | codes[..., 1::2] << 4",
            "codes[..., 0::2] << 4 | codes[..., 1::2]",
            "halves of a byte exchanged",
        ),
        "halves_of_a_block": patch(
            "return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)",
            "halves = codes.reshape(*codes.shape[:-1], -1, 2, 16)\n"
            "    return (halves[..., 0, :] | halves[..., 1, :] << 4).astype(np.uint8).reshape(*codes.shape[:-1], -1)",
            "packs element i with i + 16, as llama.cpp does",
        ),
        "scale_wraps": patch("np.clip(exponent + MX_SCALE_BIAS, 0, 254)", "exponent + MX_SCALE_BIAS", "below 2^-125 it wraps"),
        "nan_spoils_its_neighbours": patch(
            "broken = ~np.isfinite(blocks).all(axis=-1)",
            "broken = np.broadcast_to(~np.isfinite(blocks).all(), blocks.shape[:-1])",
            "one NaN makes every block NaN",
        ),
        "one_scale_a_row": patch(
            "peak = np.abs(blocks).max(axis=-1)\n    exponent",
            "peak = np.broadcast_to(np.abs(blocks).max(axis=(-2, -1), initial=0)[..., None], blocks.shape[:-1])\n    exponent",
            "the scale comes from the whole row",
        ),
        "ties_to_the_smaller": replace(nearest_of_a_table, "the nearest of a table by argmin, which takes the first of two"),
    },
}
HAPPY = {"to_fp8_e4m3": random_numbers_come_back_nearly, "mxfp4_quantize": a_block_comes_back}
