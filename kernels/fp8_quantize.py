"""From 16- or 32-bit floats to 8-bit ones, with a scale that makes the most of their range.

    scale = max|x| / largest,    q = round(clamp(x / scale, −largest, largest))

The default is e4m3 (float8_e4m3fn: four exponent and three fraction bits, largest 448, NaN but no infinity); e5m2 (largest
57,344) trades a fraction bit for range, as gradients need. Rounding is to nearest even. A number beyond the largest, which a
given scale makes possible, becomes the largest: it saturates. x / scale is computed as x · (1 / scale), one division a row.

x [M, K] in bfloat16, float16 or float32 -> q [M, K] and scale, float32: [M], one a row (a token, if x are activations), or [1],
of the whole tensor. Of a row of zeros, scale is the smallest normal number. NaN stays NaN, and is not looked at for the scale.
With ±inf in a row, its scale is inf, the ±inf become NaN and the others 0.

Bytes, s of x's dtype. By rows of up to 64 KiB: x is read once, **(s + 1)·M·K + 4·M**; of a longer row, all but its first block
(minillm.kernels.rows) twice. With a given scale, which every row's program reads: (s + 1)·M·K + 4·M for any length. For the
whole tensor, each row's maximum is found first, s·M·K + 4·M, then it is as with a given scale: **(2·s + 1)·M·K + 8·M**, beside
torch's maximum of the maxima.

Source: Micikevicius et al. 2022, "FP8 Formats for Deep Learning", arXiv 2209.05433.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import check_shape, check_tensors, require
from minillm.kernels.rows import as_rows, row_block
from minillm.kernels.runtime import INTERPRETED, tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2)
SMALLEST = torch.finfo(torch.float32).tiny  # of a scale: 1 / scale must be finite


@triton.jit
def row_maximum(x_ptr, length, BLOCK: tl.constexpr):
    """max|x| of a row, NaN set aside."""
    peak = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        k = start + tl.arange(0, BLOCK)
        peak = tl.maximum(peak, tl.abs(tl.load(x_ptr + k, mask=k < length, other=0.0).to(tl.float32)))
    return tl.max(peak, axis=0)


@triton.jit
def row_maximum_kernel(x_ptr, peak_ptr, x_stride, length, BLOCK: tl.constexpr):
    """One program, one row's max|x|."""
    row = tl.program_id(0).to(tl.int64)
    tl.store(peak_ptr + row, row_maximum(x_ptr + row * x_stride, length, BLOCK))


@triton.jit
def quantize_fp8_kernel(
    x_ptr, q_ptr, scale_ptr, x_stride, length, smallest, LARGEST: tl.constexpr, GIVEN: tl.constexpr, BLOCK: tl.constexpr
):
    """One program, one row, whose scale is computed and stored, or GIVEN: one for all rows."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    q_ptr += row * length
    k = tl.arange(0, BLOCK)
    if GIVEN:
        inverse = tl.div_rn(1.0, tl.load(scale_ptr))
        for start in range(0, length, BLOCK):
            inside = start + k < length
            x = tl.load(x_ptr + start + k, mask=inside, other=0.0).to(tl.float32)
            tl.store(q_ptr + start + k, to_fp8(x * inverse, LARGEST, q_ptr.dtype.element_ty), mask=inside)
    else:
        # The first block stays in registers: a row that fits is read once. Of a longer one, the rest is read once more.
        x = tl.load(x_ptr + k, mask=k < length, other=0.0).to(tl.float32)
        peak = tl.max(tl.abs(x), axis=0)
        if length > BLOCK:
            peak = tl.maximum(peak, row_maximum(x_ptr + BLOCK, length - BLOCK, BLOCK))
        scale = tl.maximum(tl.div_rn(peak, LARGEST), smallest)
        tl.store(scale_ptr + row, scale)
        inverse = tl.div_rn(1.0, scale)
        tl.store(q_ptr + k, to_fp8(x * inverse, LARGEST, q_ptr.dtype.element_ty), mask=k < length)
        for start in range(BLOCK, length, BLOCK):
            inside = start + k < length
            x = tl.load(x_ptr + start + k, mask=inside, other=0.0).to(tl.float32)
            tl.store(q_ptr + start + k, to_fp8(x * inverse, LARGEST, q_ptr.dtype.element_ty), mask=inside)


@triton.jit
def to_fp8(x, LARGEST: tl.constexpr, FORMAT: tl.constexpr):
    """Nearest even and saturating; NaN stays NaN. The conversion itself saturates on NVIDIA's GPUs, not on all others."""
    return tl.clamp(x, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL).to(FORMAT)


def quantize_fp8(
    x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn, per_row: bool = True, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x [M, K] -> (q [M, K] of dtype, scale float32): scale [M] if per_row, else [1].

    scale, [1] float32 and positive: of the whole tensor, measured beforehand; returned as it is. On a GPU, e4m3 needs compute
    capability 8.9 (RTX 40, L4) or higher: ValueError below.
    """
    check_tensors(x=x)
    check_shape((None, None), x=x)
    _check_format(dtype)
    require(
        dtype != torch.float8_e4m3fn or has_e4m3(x.device),
        "this GPU has no conversion to float8_e4m3fn (compute capability 8.9 is needed): pass dtype=torch.float8_e5m2",
    )
    x = as_rows(x=x)
    rows, length = x.shape
    q = torch.empty(rows, length, dtype=dtype, device=x.device)
    block, num_warps = row_block(length, x.dtype)
    largest = torch.finfo(dtype).max
    if scale is not None:
        require(not per_row, "a given scale is one for the whole tensor: pass per_row=False with it")
        check_tensors(x=x, scale=scale)
        check_shape((1,), scale=scale)
        check_tensors((torch.float32,), scale=scale)
    elif not per_row:
        peaks = torch.zeros(max(rows, 1), dtype=torch.float32, device=x.device)
        if x.numel():
            row_maximum_kernel[(rows,)](x, peaks, x.stride(0), length, BLOCK=block, num_warps=num_warps)
        scale = (peaks.amax(0, keepdim=True) / largest).clamp_min_(SMALLEST)
    given = scale is not None
    scale = scale if given else torch.full((rows,), SMALLEST, dtype=torch.float32, device=x.device)
    if x.numel():
        quantize_fp8_kernel[(rows,)](
            x, q, scale, x.stride(0), length, SMALLEST, LARGEST=largest, GIVEN=given, BLOCK=block, num_warps=num_warps
        )
    return q, scale


def has_e4m3(device: torch.device) -> bool:
    """Whether kernels can use e4m3 there: the interpreter, and GPUs of compute capability 8.9 or higher."""
    return INTERPRETED or torch.cuda.get_device_capability(device) >= (8, 9)


def _check_format(dtype: torch.dtype) -> None:
    if dtype not in FORMATS:
        raise TypeError(f"dtype is {dtype}; quantise to torch.float8_e4m3fn or torch.float8_e5m2")


def quantize_fp8_torch(
    x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn, per_row: bool = True, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, equal to the bit where x holds no NaN."""
    largest = torch.finfo(dtype).max
    if scale is None:
        peak = x.float().abs().amax(1) if per_row else x.float().abs().amax().reshape(1)
        scale = (peak / largest).clamp_min(SMALLEST)
    q = (x.float() * (1 / scale)[:, None]).clamp(-largest, largest)
    return q.to(dtype), scale


def quantize_fp8_bytes(rows: int, length: int, dtype: torch.dtype, per_row: bool = True, given: bool = False) -> int:
    """Bytes that quantize_fp8's kernels request, as derived above; torch's maximum of maxima is not among them."""
    s = dtype.itemsize
    block = row_block(length, dtype)[0]
    again = max(0, length - block) if per_row else 0
    once = (s + 1) * rows * length + s * rows * again + 4 * rows
    return once if per_row or given else once + s * rows * length + 4 * rows


def _shipped(name: str, length: int, dtype: str) -> Shipped:
    block, num_warps = row_block(length, torch.bfloat16)
    return Shipped(
        name,
        "minillm.kernels.fp8_quantize:quantize_fp8_kernel",
        {"x_ptr": f"*{dtype}", "q_ptr": "*fp8e4nv", "scale_ptr": "*fp32", "x_stride": "i32", "length": "i32", "smallest": "fp32"},
        {"LARGEST": 448.0, "GIVEN": False, "BLOCK": block},
        ("x_ptr", "q_ptr", "scale_ptr", "x_stride", "length"),
        num_warps,
        min_sm=89,
    )


SHIPPED = (_shipped("quantize_fp8.bf16.4096", 4096, "bf16"),)
