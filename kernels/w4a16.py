"""Linear layer with 4-bit weights, a scale and a minimum for each group of inputs; x and arithmetic stay 16 bits wide ("W4A16").

    out[m, n] = Σ_k x[m, k] · (scale[n, g(k)] · q[n, k] + minimum[n, g(k)])  (+ bias[n]),    g(k) = ⌊k / G⌋, q in [0, 15]

x [M, K] in bfloat16, float16 or float32; q packed two to a byte [N, K / 2], scale and minimum [K / G, N], G of 32, 64 or 128, in
the order of minillm.kernels.int4_packing; out [M, N] in x's dtype. Weights become numbers in registers only: memory never sees
them 16 bits wide.

From four bits to a number without a conversion: before Hopper, a multiprocessor converts 16 integers to floats a clock, beside
64 multiply-adds (A100) or 128 (RTX). On an A100 this makes 2.4 T/s, and its memory delivers 4 T weights a second. But the four
bits placed at the top of a float32's significand, under the exponent of 1, are v = 1 + q/16, exactly. So q = 16·(v − 1), and

    scale · q + minimum = a · v + b    with    a = 16 · scale,    b = minimum − 16 · scale.

(In float32, a · v cancels against b: up to 32 · scale beside 15 · scale, which costs the last one or two of 24 bits, of a small
weight more; 16-bit x has 11 at most.)

Two kernels, as in minillm.kernels.w8a16. One row: sums Σ v·x and Σ x of each group are float32, a and b come once a group, and
no weight is rounded. More rows: a tile of weights a·v + b, rounded to x's dtype, meets x in the tensor cores.

Bytes, with s of x's dtype, t of scale's, and the 2·N·K/G scales and minima, one row: x is requested by each of the N / BLOCK_N
programs, and answered by the caches: **N·K/2 + 2·t·N·K/G + s·K·⌈N / BLOCK_N⌉ + s·N**. A tile, likewise: **⌈M / BLOCK_M⌉·(N·K/2 +
2·t·N·K/G) + ⌈N / BLOCK_N⌉·s·M·K + s·M·N**, plus 8·S·M·N if K is split in S parts. (Scales and minima count twice where a step of
the large tile, 64 inputs, is half a group of 128.) From memory, with G = 128 and t = 2: 0.53·N·K, hence 3.8 times as fast as
bfloat16's 2·N·K at best.

Sources: Frantar et al. 2022, "GPTQ", arXiv 2210.17323 (groups; the first such kernel); Kim et al. 2022, "Who Says Elephants
Can't Run", arXiv 2211.10017 (integers to floats by their bits); Frantar et al. 2024, "MARLIN", arXiv 2408.11743.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    FLOATS,
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    fits_int32,
    refuse_negative_strides,
    require,
)
from minillm.kernels.int4_packing import GROUP_SIZES, Int4Weight, dequantize_int4
from minillm.kernels.linear_tile import (
    TileConfig,
    check_linear,
    new_output,
    parts_bytes,
    store_tile,
    sum_splits,
    tile_config,
    tile_of,
)
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor

GEMV_BLOCK_N = 4
GEMV_BLOCK_K = 4096  # 4 × 2048 bytes by 128 threads: four 128-bit loads each in flight


@triton.jit
def sixteenths(bits):
    """1 + q/16 float32, from q in bits 0 to 3 of an int32 that is 0 elsewhere."""
    return (bits << 19 | 0x3F800000).to(tl.float32, bitcast=True)


@triton.jit
def w4a16_gemv_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, N, groups, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_N output channels, one row of x; BLOCK_G groups at a time."""
    HALF: tl.constexpr = G // 2
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    g = tl.arange(0, BLOCK_G)
    j = tl.arange(0, HALF)
    packed_ptr += n.to(tl.int64)[:, None, None] * packed_stride
    total = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    for start in range(0, groups, BLOCK_G):
        group = start + g
        inside = group < groups
        both = (n < N)[:, None] & inside[None, :]
        byte = tl.load(
            packed_ptr + (group[:, None] * HALF + j[None, :])[None, :, :],
            mask=both[:, :, None],
            other=0,
            eviction_policy="evict_first",  # each weight is read once: let x stay in the cache
        ).to(tl.int32)
        x_low_ptr = x_ptr + group[:, None] * G + j[None, :]
        x_low = tl.load(x_low_ptr, mask=inside[:, None], other=0.0).to(tl.float32)
        x_high = tl.load(x_low_ptr + HALF, mask=inside[:, None], other=0.0).to(tl.float32)
        products = sixteenths(byte & 15) * x_low[None, :, :] + sixteenths(byte >> 4) * x_high[None, :, :]
        place = group[None, :] * N + n[:, None]
        a = 16 * tl.load(scale_ptr + place, mask=both, other=0.0).to(tl.float32)
        b = tl.load(minimum_ptr + place, mask=both, other=0.0).to(tl.float32) - a
        total += a * tl.sum(products, axis=2) + b * tl.sum(x_low + x_high, axis=1)[None, :]
    out = tl.sum(total, axis=1)
    if HAS_BIAS:
        out += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + n, out.to(out_ptr.dtype.element_ty), mask=n < N)


@triton.jit
def w4a16_gemm_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, M, N, groups, x_stride, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """One program, one tile of out, its part of K. A step takes BLOCK_K // 2 bytes of each row: of several groups, or of one."""
    HALF: tl.constexpr = G // 2
    STEP: tl.constexpr = BLOCK_K // 2
    GROUPS: tl.constexpr = (BLOCK_K + G - 1) // G  # that a step touches
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP=8)
    split = tl.program_id(1)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.arange(0, STEP)
    x_ptr += m.to(tl.int64)[:, None] * x_stride + (c // HALF * G + c % HALF)[None, :]
    packed_ptr += n.to(tl.int64)[:, None] * packed_stride + c[None, :]
    last = groups * HALF  # bytes of a row
    length = tl.cdiv(tl.cdiv(last, STEP), SPLITS) * STEP  # of a part, in bytes; the last one may be shorter, or empty
    first = split * length
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for start in range(first, min(first + length, last), STEP):
        inside_n, inside_m = (n < N)[:, None], (m < M)[:, None]
        if GROUPS > 1:  # else no step passes the end; group by group, as a mask that changes within 16 bytes forbids wide loads
            inside_k = (start // HALF + c // HALF < groups)[None, :]
            inside_n, inside_m = inside_n & inside_k, inside_m & inside_k
        byte = tl.load(packed_ptr + start, mask=inside_n, other=0).to(tl.int32)
        k = tl.multiple_of(start // HALF * G + start % HALF, min(STEP, G))
        x_low = tl.load(x_ptr + k, mask=inside_m, other=0.0)
        x_high = tl.load(x_ptr + k + HALF, mask=inside_m, other=0.0)

        group = start // HALF + tl.arange(0, GROUPS)
        place = group[None, :] * N + n[:, None]
        both = (n < N)[:, None] & (group < groups)[None, :]
        a = 16 * tl.load(scale_ptr + place, mask=both, other=0.0).to(tl.float32)
        b = tl.load(minimum_ptr + place, mask=both, other=0.0).to(tl.float32) - a
        if GROUPS > 1:  # one for each byte
            a = tl.broadcast_to(a[:, :, None], [BLOCK_N, GROUPS, HALF]).reshape([BLOCK_N, STEP])
            b = tl.broadcast_to(b[:, :, None], [BLOCK_N, GROUPS, HALF]).reshape([BLOCK_N, STEP])
        low = (sixteenths(byte & 15) * a + b).to(x_low.dtype)
        high = (sixteenths(byte >> 4) * a + b).to(x_low.dtype)
        acc = tl.dot(low, tl.trans(x_low), acc, input_precision="ieee")
        acc = tl.dot(high, tl.trans(x_high), acc, input_precision="ieee")
    store_tile(out_ptr, bias_ptr, acc, m, n, M, N, split, HAS_BIAS)


def w4a16(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    """x [M, K] (bfloat16, float16, float32) · weight [N, K]ᵀ + bias [N] -> [M, N] in x's dtype. weight: pack_int4's.

    Its scale and minimum, and bias, in any of the three dtypes. TypeError, ValueError for what does not fit together.
    """
    out_features, in_features = _check(x, weight, bias)
    packed, scale, minimum = weight
    rows, group_size, groups = x.shape[0], weight.group_size, scale.shape[0]
    has_bias = bias is not None
    bias_or_any = bias if has_bias else scale  # a kernel's pointer must point somewhere
    if rows == 0 or out_features == 0:
        return x.new_empty(rows, out_features)
    if rows == 1:
        out = x.new_empty(1, out_features)
        w4a16_gemv_kernel[(triton.cdiv(out_features, GEMV_BLOCK_N),)](
            x, packed, scale, minimum, bias_or_any, out, out_features, groups, packed.stride(0),
            HAS_BIAS=has_bias, G=group_size, BLOCK_N=GEMV_BLOCK_N, BLOCK_G=gemv_block_g(groups, group_size), num_warps=4,
        )  # fmt: skip
        return out
    tile = w4a16_tile(rows, out_features, in_features, x.dtype)
    out, target = new_output(x, out_features, tile.splits)
    grid = (triton.cdiv(rows, tile.block_m) * triton.cdiv(out_features, tile.block_n), tile.splits)
    w4a16_gemm_kernel[grid](
        x, packed, scale, minimum, bias_or_any, target, rows, out_features, groups, x.stride(0), packed.stride(0),
        HAS_BIAS=has_bias and tile.splits == 1, G=group_size, BLOCK_M=tile.block_m, BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k, SPLITS=tile.splits, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out if tile.splits == 1 else sum_splits(target, bias, out)


def _check(x: Tensor, weight: Int4Weight, bias: Tensor | None) -> tuple[int, int]:
    """(N, K) of the weight, once everything fits."""
    if not isinstance(weight, Int4Weight):
        raise TypeError(f"weight must be an Int4Weight, not {type(weight).__name__}: pack it with pack_int4")
    check_tensors((torch.uint8,), packed=weight.packed)
    check_shape((None, None), packed=weight.packed, scale=weight.scale)
    check_shape(weight.scale.shape, minimum=weight.minimum)
    out_features, in_features = weight.shape
    require(
        weight.group_size in GROUP_SIZES and weight.scale.shape == (in_features // weight.group_size, out_features),
        f"scale has shape {list(weight.scale.shape)} for a weight of {[out_features, in_features]}: pack it with pack_int4",
    )
    check_tensors((*FLOATS, torch.uint8), x=x, packed=weight.packed, scale=weight.scale, minimum=weight.minimum)
    check_same_dtype(scale=weight.scale, minimum=weight.minimum)
    check_tensors(scale=weight.scale)
    check_linear(x, bias, in_features, out_features)
    refuse_negative_strides(packed=weight.packed)
    check_last_dim_contiguous(packed=weight.packed)
    fits_int32(scale=weight.scale)
    for name in ("scale", "minimum"):
        require(getattr(weight, name).is_contiguous(), f"{name} is a strided view: pass .contiguous()")
    return out_features, in_features


def gemv_block_g(groups: int, group_size: int) -> int:
    return min(GEMV_BLOCK_K // group_size, max(1, next_power_of_2(groups)))


def w4a16_tile(rows: int, out_features: int, in_features: int, dtype: torch.dtype = torch.bfloat16) -> TileConfig:
    # x must fit the shared memory of an RTX card (99 KiB) two or three times
    return tile_config(rows, out_features, in_features, (256 if rows <= 64 else 128) // dtype.itemsize)


def w4a16_torch(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    """The same in plain torch: weights rounded to x's dtype except for one row, sums in float32, rounded once."""
    dense = dequantize_int4(weight)
    if x.shape[0] > 1:
        dense = dense.to(x.dtype).float()
    out = x.float() @ dense.T
    return (out if bias is None else out + bias.float()).to(x.dtype)


def w4a16_bytes(m: int, n: int, k: int, group_size: int, dtype: torch.dtype, scale_dtype: torch.dtype | None = None) -> int:
    """Bytes that w4a16 requests without a bias, as derived above; scale_dtype: dtype if None."""
    s, t = dtype.itemsize, (scale_dtype or dtype).itemsize
    weights = n * k // 2 + 2 * t * n * k // group_size
    if m == 1:
        return weights + s * k * triton.cdiv(n, GEMV_BLOCK_N) + s * n
    tile = w4a16_tile(m, n, k, dtype)
    tiles_m, tiles_n = triton.cdiv(m, tile.block_m), triton.cdiv(n, tile.block_n)
    weights += 2 * t * n * k // group_size * (max(1, group_size // tile.block_k) - 1)  # a group longer than a step: once a step
    return tiles_m * weights + tiles_n * s * m * k + s * m * n + parts_bytes(tile.splits, m, n)


def _shipped(name: str, m: int, n: int, k: int, group_size: int, dtype: str) -> Shipped:
    signature = dict.fromkeys(("x_ptr", "scale_ptr", "minimum_ptr", "bias_ptr", "out_ptr"), f"*{dtype}")
    signature |= {"packed_ptr": "*u8"}
    constexprs = {"HAS_BIAS": False, "G": group_size}
    if m == 1:
        kernel, tile = "w4a16_gemv_kernel", TileConfig(1, GEMV_BLOCK_N, 0, 1, 4, 3)
        constexprs |= {"BLOCK_N": GEMV_BLOCK_N, "BLOCK_G": gemv_block_g(k // group_size, group_size)}
        signature |= dict.fromkeys(("N", "groups", "packed_stride"), "i32")
    else:
        kernel, tile = "w4a16_gemm_kernel", w4a16_tile(m, n, k)
        constexprs |= {
            "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "SPLITS": tile.splits,
        }  # fmt: skip
        signature |= dict.fromkeys(("M", "N", "groups", "x_stride", "packed_stride"), "i32")
        if tile.splits > 1:
            signature["out_ptr"] = "*fp32"
    unaligned = {"M"} | ({"groups"} if k // group_size % 16 else set())
    aligned = tuple(name for name in signature if name not in unaligned)
    return Shipped(
        name, f"minillm.kernels.w4a16:{kernel}", signature, constexprs, aligned, tile.num_warps, tile.num_stages, has_dot=m > 1
    )


SHIPPED = (
    _shipped("w4a16.gemv.bf16.4096", 1, 4096, 4096, 128, "bf16"),
    _shipped("w4a16.tile16.bf16.4096", 16, 4096, 4096, 128, "bf16"),
    _shipped("w4a16.tile128.bf16.4096", 512, 4096, 4096, 128, "bf16"),
    _shipped("w4a16.gemv.bf16.576", 1, 576, 576, 32, "bf16"),
    _shipped("w4a16.tile16.bf16.576", 16, 576, 576, 32, "bf16"),
)
