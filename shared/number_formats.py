"""Floating-point formats bit by bit: what a number becomes when it is stored in BF16, FP16, TF32, FP8 or FP4.

A format of e exponent and f fraction bits with bias b stores a sign and

    1.fraction · 2^(exponent − b)     normal,     exponent field ≥ 1
    0.fraction · 2^(1 − b)            subnormal,  exponent field 0: the spacing stays, the precision runs out

Rounding here is to nearest, ties to the even code: IEEE 754's default and what GPUs do. Blocks of small numbers that share a
scale are shared/block_formats.py's.

Sources: IEEE 754-2019; Micikevicius et al. 2022, "FP8 Formats for Deep Learning", arXiv 2209.05433; OCP 8-bit Floating Point
Specification 1.0 (2023); OCP Microscaling Formats Specification 1.0 (2023), for FP4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format.

    special: what the highest codes mean. "ieee": the top exponent is infinity (fraction 0) and NaN (the rest); "fn", finite with
    NaN: only the very last code is NaN and there is no infinity; "finite": every code is a number.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    special: Literal["ieee", "fn", "finite"] = "ieee"

    @property
    def bits(self) -> int:
        """Sign, exponent and fraction. TF32 has 19, and is stored in 32."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def largest_code(self) -> int:
        """Of a finite number, sign bit aside."""
        beyond = {"ieee": 2**self.fraction_bits, "fn": 1, "finite": 0}[self.special]
        return 2 ** (self.exponent_bits + self.fraction_bits) - 1 - beyond

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(decode(np.array(self.largest_code), self))

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def smallest(self) -> float:
        """The smallest number above zero, a subnormal."""
        return 2.0 ** (1 - self.bias - self.fraction_bits)

    def step(self, x: float) -> float:
        """The distance between neighbouring numbers of this format in the binade of |x| (from a power of two up to the next).

        Raises ValueError if x is not finite or lies beyond the largest.
        """
        if not abs(x) <= self.largest:
            raise ValueError(f"{self.name} holds numbers up to {self.largest:g}; {x:g} lies beyond")
        return 2.0 ** (max(np.frexp(abs(x))[1] - 1, 1 - self.bias) - self.fraction_bits) if x else self.smallest


FP32 = FloatFormat("FP32", 8, 23)
TF32 = FloatFormat("TF32", 8, 10)
BF16 = FloatFormat("BF16", 8, 7)
FP16 = FloatFormat("FP16", 5, 10)
FP8_E4M3 = FloatFormat("FP8 E4M3", 4, 3, "fn")
FP8_E5M2 = FloatFormat("FP8 E5M2", 5, 2)
FP4_E2M1 = FloatFormat("FP4 E2M1", 2, 1, "finite")
FLOATS = (FP32, TF32, BF16, FP16, FP8_E4M3, FP8_E5M2, FP4_E2M1)


def encode(x: np.ndarray, form: FloatFormat, *, saturate: bool = False) -> np.ndarray:
    """The codes of x, rounded to `form`: uint32 of x's shape, the sign in the highest of form.bits bits.

    x: float16, float32 or float64; rounded once, from its exact value. What rounds to more than the largest number, and ±inf,
    becomes the largest number of its sign if saturate, else infinity, or NaN in a format that has none. A "finite" format
    always saturates. NaN stays NaN (the first code after infinity, or the last code); the sign is always kept, also of zero
    and of what rounds to zero.
    Raises ValueError for NaN in a format that has none.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN is as good as a quiet one here
        x = np.asarray(x, dtype=np.float64)
    magnitude, is_nan = np.abs(x), np.isnan(x)
    if form.special == "finite" and is_nan.any():
        raise ValueError(f"{form.name} has no NaN; mark it elsewhere (MXFP4: in the block's scale)")
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    exponent = np.where(finite > 0, np.frexp(finite)[1].astype(np.int64) - 1, 1 - form.bias)  # zero has none of its own
    exponent = np.maximum(exponent, 1 - form.bias)  # below the normals it stops: subnormal
    units = np.rint(np.ldexp(finite, form.fraction_bits - exponent)).astype(np.int64)  # rint: ties to even
    # The implicit 1 of a normal number's units adds one to the exponent field; a carry from rounding adds one more.
    code = ((exponent + form.bias - 1) << form.fraction_bits) + units
    beyond = (code > form.largest_code) | np.isinf(magnitude)
    code = np.where(beyond, form.largest_code + (not (saturate or form.special == "finite")), code)
    nan_code = form.largest_code + (2 if form.special == "ieee" else 1)
    code = np.where(is_nan, nan_code, code)
    return (code + (np.signbit(x).astype(np.int64) << (form.bits - 1))).astype(np.uint32)


def decode(codes: np.ndarray, form: FloatFormat) -> np.ndarray:
    """The numbers that codes of `form` stand for: float64 of the same shape, exact; infinity and NaN where `form` has them."""
    return _numbers(form)[codes] if form.bits <= 16 else _decode(np.asarray(codes), form)


@lru_cache
def _numbers(form: FloatFormat) -> np.ndarray:
    """What each code stands for."""
    return _decode(np.arange(2**form.bits), form)


def _decode(codes: np.ndarray, form: FloatFormat) -> np.ndarray:
    codes = codes.astype(np.int64)
    code = codes & (2 ** (form.bits - 1) - 1)
    exponent, fraction = code >> form.fraction_bits, code & (2**form.fraction_bits - 1)
    units = fraction + (exponent > 0) * 2**form.fraction_bits
    value = np.ldexp(units.astype(np.float64), np.maximum(exponent, 1) - form.bias - form.fraction_bits)
    value = np.where(code > form.largest_code, np.nan, value)
    if form.special == "ieee":
        value = np.where(code == form.largest_code + 1, np.inf, value)
    return np.where(codes >> (form.bits - 1), -value, value)


def round_to(x: np.ndarray, form: FloatFormat, *, saturate: bool = False) -> np.ndarray:
    """x as `form` would give it back: decode(encode(x)), float32. TF32 and all smaller formats are exact in float32."""
    return decode(encode(x, form, saturate=saturate), form).astype(np.float32)


def to_fp8_e4m3(x: np.ndarray, saturate: bool = True) -> np.ndarray:
    """x, float32 of any shape, in the 8-bit float E4M3: its codes, uint8 of the same shape.

    A code is sign (1 bit), exponent field E (4), fraction F (3), from the highest bit down, and stands for

        ± 2^(E − 7) · (1 + F / 8)    if E is above 0
        ± 2^(−6) · F / 8             if E is 0: the subnormals, multiples of 1/512, and zero

    There is no infinity: all codes are numbers, up to 448 (0x7E), but 0x7F and 0xFF, which are NaN (torch: float8_e4m3fn).

    Rounding is to the nearest of these numbers; of two equally near, to the one whose code is even. It may carry: 15.9 becomes
    16. A magnitude above 448 is rounded as if the format went on (480, 512, ...): up to 464, halfway to the 480 that is not
    there, it becomes 448 by that rule. What lies beyond, infinity included, becomes ±448 if saturate is true, else NaN.
    NaN becomes NaN; which of the two codes is free. Every other code keeps the sign of x, also where the magnitude becomes zero:
    −0.0 and −0.0001 become 0x80.

    Source: Micikevicius et al. 2022, arXiv 2209.05433, table 1; OCP 8-bit Floating Point Specification 1.0.
    """
    return encode(x, FP8_E4M3, saturate=saturate).astype(np.uint8)
