"""Blocks of small numbers that share a scale: INT8, INT4, MXFP4, NVFP4.

Four bits give sixteen numbers. What makes them usable is a scale for every few of them, and the formats differ in how many share
one and what it costs:

    format   a number         a scale for                 the scale                    bits a number
    INT8     8-bit integer    a tensor, a row or a group  any float                    8 + scale bits / group
    INT4     4-bit integer    a group of 32 to 128        usually 16 bits              4.5 in groups of 32
    MXFP4    FP4 E2M1         32 numbers                  a power of two, 8 bits       4.25
    NVFP4    FP4 E2M1         16 numbers                  FP8 E4M3, and one FP32 more  4.5

FP4 E2M1 knows ±0, 0.5, 1, 1.5, 2, 3, 4 and 6.

Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023); Rouhani et al. 2023, "Microscaling Data Formats for Deep
Learning", arXiv 2310.10537; NVIDIA 2025, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149.
"""

from __future__ import annotations

import numpy as np

from shared.number_formats import FP4_E2M1, FP8_E4M3, decode, encode, to_fp8_e4m3

MX_BLOCK, NV_BLOCK = 32, 16
MX_SCALE_BIAS, MX_NAN = 127, 0xFF


def int_quantize(x: np.ndarray, bits: int = 8, group: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric integers: scale = max|x| / (2^(bits−1) − 1), q = round(x / scale), ties to even.

    x [..., K]. group: how many neighbours along K share a scale, a divisor of K; K itself for a scale a row; None: one for all.
    Returns q, int8 of x's shape, within ±(2^(bits−1) − 1), and scale, float32: [..., K / group], or [1] for one. Of zeros only,
    the scale is 1. x ≈ q · scale, off by at most half a scale.
    Raises ValueError unless bits is 2 to 8, group divides K and all of x is finite.
    """
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is {bits}; 2 to 8 fit in an int8")
    x = _finite(x)
    blocks = x.reshape(1, -1) if group is None else _blocks(x, group)
    peak = np.abs(blocks).max(axis=-1, initial=0.0)
    limit = 2 ** (bits - 1) - 1
    scale = np.where(peak > 0, peak / limit, 1.0).astype(np.float32)
    scale[scale == 0] = np.finfo(np.float32).smallest_subnormal
    q = np.clip(np.rint(blocks / scale[..., None].astype(np.float64)), -limit, limit)
    return q.astype(np.int8).reshape(x.shape), scale


def int_dequantize(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """q · scale, float32 of q's shape; scale as int_quantize returned it."""
    blocks = q.reshape(*scale.shape, -1)
    return (blocks * scale[..., None].astype(np.float64)).astype(np.float32).reshape(q.shape)


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
    blocks = _blocks(np.asarray(x, dtype=np.float64), MX_BLOCK)
    broken = ~np.isfinite(blocks).all(axis=-1)
    blocks = np.where(broken[..., None], 0.0, blocks)
    peak = np.abs(blocks).max(axis=-1)
    exponent = np.frexp(peak)[1] - 1 - 2  # frexp, not log2: exact, also just below a power of two
    stored = np.where(peak > 0, np.clip(exponent + MX_SCALE_BIAS, 0, 254), 0)
    codes = encode(np.ldexp(blocks, MX_SCALE_BIAS - stored[..., None]), FP4_E2M1)
    return _pack(codes.reshape(np.shape(x))), np.where(broken, MX_NAN, stored).astype(np.uint8)


def mxfp4_dequantize(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The float32 [..., K] that packed [..., K / 2] and scales [..., K / 32] stand for. A block whose scale is 255 is all NaN."""
    power = np.where(scales == MX_NAN, np.nan, np.ldexp(1.0, scales.astype(np.int64) - MX_SCALE_BIAS))
    return _scaled(packed, power)


def nvfp4_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """x, float32 [..., K] with K a multiple of 16, in NVFP4: packed uint8 [..., K / 2], scales uint8 [..., K / 16], tensor scale.

    tensor scale = max|x| / (448 · 6), float32; a block's scale = its max|x| / (6 · tensor scale), rounded to FP8 E4M3; each
    x / (block's scale · tensor scale) rounded to FP4 E2M1, as in mxfp4_quantize. Of zeros only, the tensor scale is 1.
    Raises ValueError unless K is a multiple of 16 and all of x is finite: no scale here has room for a NaN that all agree on.
    """
    blocks = _blocks(_finite(x), NV_BLOCK)
    peak = np.abs(blocks).max(axis=-1)
    largest = peak.max(initial=0.0)
    tensor_scale = np.float32(max(largest / (FP8_E4M3.largest * FP4_E2M1.largest), np.finfo(np.float32).tiny) if largest else 1)
    scales = to_fp8_e4m3(peak / (FP4_E2M1.largest * float(tensor_scale)))
    scale = decode(scales, FP8_E4M3) * float(tensor_scale)
    units = np.divide(blocks, scale[..., None], out=np.copysign(0.0, blocks), where=scale[..., None] > 0)
    return _pack(encode(units, FP4_E2M1).reshape(np.shape(x))), scales, tensor_scale


def nvfp4_dequantize(packed: np.ndarray, scales: np.ndarray, tensor_scale: float) -> np.ndarray:
    """The float32 [..., K] that nvfp4_quantize's three results stand for."""
    return _scaled(packed, decode(scales, FP8_E4M3) * float(tensor_scale))


def _blocks(x: np.ndarray, size: int) -> np.ndarray:
    if x.ndim == 0 or size < 1 or x.shape[-1] % size:
        raise ValueError(f"blocks of {size} do not divide the last axis of shape {list(x.shape)}: pad it with zeros")
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def _finite(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    if not np.isfinite(x).all():
        raise ValueError("x holds NaN or infinity, which would become every number's scale: mend x first")
    return x


def _pack(codes: np.ndarray) -> np.ndarray:
    """Codes [..., K] of four bits to bytes [..., K / 2]: even indices in the low halves."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def _scaled(packed: np.ndarray, scale: np.ndarray) -> np.ndarray:
    codes = np.stack([packed & 15, packed >> 4], axis=-1)
    blocks = decode(codes, FP4_E2M1).reshape(*scale.shape, -1)
    return (blocks * scale[..., None]).astype(np.float32).reshape(*packed.shape[:-1], 2 * packed.shape[-1])
