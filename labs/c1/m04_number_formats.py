"""1.4 Number formats: put real numbers into eight bits, and into four.

Write the two functions below, then run `labs check 1.4` (or `pytest labs/c1/test_m04_number_formats.py`). Stuck? `labs hint 1.4`.

"Bit-exact" is meant: each code must be the one that hardware makes of the number. numpy's own conversions do not know these
formats; what helps is

    np.frexp(x)         x = m · 2^e with m from 0.5 up to below 1, exact; and (0, 0) for zero
    np.ldexp(m, e)      m · 2^e
    np.rint(x)          to the nearest integer, of two equally near to the even one
    np.signbit(x)       true for −0.0 too
    x.view(np.uint32)   the bits of a float32: 1 of sign, 8 of exponent (plus 127), 23 of fraction

A float64 holds every float32 exactly, and dividing by a power of two changes no digit of it.
"""

from __future__ import annotations

import numpy as np

from labs.kit import exercise


@exercise(reference="shared.number_formats:to_fp8_e4m3")
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
    raise NotImplementedError


@exercise(reference="shared.block_formats:mxfp4_quantize")
def mxfp4_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x, float32 [..., K] with K a multiple of 32, in MXFP4: packed, uint8 [..., K / 2], and scales, uint8 [..., K / 32].

    Each 32 neighbours along K are a block. Its scale is the power of two 2^(floor(log2(m)) − 2), where m is the block's largest
    |x|: the power of two below m, over that below 6, the largest FP4 number. Stored is its exponent plus 127, from 0 to 254, and
    0 if the exponent is below −127; a block of zeros has the scale 0. floor(log2(m)) is exact: 7.9999995 has 2, and not 3.
    Any dimension may be 0: then there are no blocks.

    Each x / scale becomes a 4-bit code: the sign (highest bit), then the number, 0 to 7, of the nearest magnitude among

        0, 0.5, 1, 1.5, 2, 3, 4, 6

    where of two equally near the one with the even number is taken (2.5 becomes 2, 3.5 becomes 4, 0.25 becomes 0), and all above
    6 becomes 6. The sign of x is kept, also of zero and of what becomes zero: code 8.

    A byte of packed holds two codes: that of the element with the even index in its low four bits, the next one's in its high.
    A block with a NaN or an infinity has the scale 255, which is NaN, and 32 codes of 0.

    Raises ValueError unless K is a multiple of 32. Source: OCP Microscaling Formats Specification 1.0, sections 5.3 and 6.3.
    """
    raise NotImplementedError
