"""5.6 Quantized matrix multiplication: weights of four bits, which become numbers in registers and nowhere else.

`pack_int4` is plain torch. Of `w4a16` you write two Triton kernels, the bodies marked "Yours"; launcher and addresses are given.
Then run `labs check 5.6` (or `pytest labs/c5/test_m06_quantized_matmul.py`). Stuck? `labs hint 5.6` shows one more each time. No
GPU is needed: without one, kernels run in Triton's interpreter, and the checks count the bytes they ask for and compile them for
an RTX 4090.

A weight W [N, K] is kept as q, integers from 0 to 15, and one scale and one minimum for each group of G inputs of a channel:

    W[n, k] = scale[n, g] · q[n, k] + minimum[n, g],    g = k // G,    G of 32, 64 or 128
"""

from __future__ import annotations

import torch
from minillm.kernels.int4_packing import Int4Weight
from minillm.kernels.linear_tile import store_tile, tile_of
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# ------------------------------------------------------------------------------------------------------------------- pack_int4


@exercise(reference="minillm.kernels.int4_packing:pack_int4")
def pack_int4(q: Tensor, scale: Tensor, minimum: Tensor) -> Int4Weight:
    """Two weights to a byte, in the order that the kernel below reads.

    q [N, K] uint8; scale, minimum [N, K / G] of one floating dtype, as minillm.quant.rtn.quantize_groups returns all three.
    Returns Int4Weight(packed, scale, minimum):

    - packed [N, K / 2] uint8. The G / 2 bytes of a group lie together. Byte j of them holds input j of the group in its low four
      bits, and input j + G / 2 in its high four. So the low halves of neighbouring bytes are neighbouring inputs, and so are the
      high halves. (Inputs 2j and 2j + 1 in a byte would have to be interleaved again.)
    - scale and minimum, transposed: [K / G, N], contiguous, dtype as it was. One group's values of neighbouring channels are
      neighbours.

    Arguments stay as they are; N may be 0. ValueError if a q is above 15 (it would run into its neighbour), and if K is not a
    whole number of groups of 32, 64 or 128.

    Bytes, with scales of t bytes: N·K / 2 + 2·t·N·K / G. In bf16 and groups of 128 that is 4.25 bits a weight, of 32 it is 5.

    Body: plain torch, three or four lines without the errors.
    """
    raise NotImplementedError


# ----------------------------------------------------------------------------------------------------------------------- w4a16


@triton.jit
def one_row_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, N, groups, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_N channels of the only row of x; one group of every channel at a time, in a loop over all of them."""
    HALF: tl.constexpr = G // 2  # bytes of a group
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.arange(0, HALF)
    # bytes of group g: at packed_ptr + g * HALF, [BLOCK_N, HALF]; only those of channels below N may be loaded
    packed_ptr += n.to(tl.int64)[:, None] * packed_stride + j[None, :]
    # Yours, to the store.


@triton.jit
def tile_kernel(
    x_ptr, packed_ptr, scale_ptr, minimum_ptr, bias_ptr, out_ptr, M, N, groups, x_stride, packed_stride,
    HAS_BIAS: tl.constexpr, G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile of out, transposed: [BLOCK_N, BLOCK_M], so that the weights stand left in tl.dot."""
    HALF: tl.constexpr = G // 2
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP=8)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.arange(0, HALF)
    packed_ptr += n.to(tl.int64)[:, None] * packed_stride + j[None, :]  # of group g: + g * HALF
    x_ptr += m.to(tl.int64)[:, None] * x_stride + j[None, :]  # what meets the low halves of group g: + g * G
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    # Yours: a loop over the groups that adds two tl.dot to acc, low halves and high halves.
    store_tile(out_ptr, bias_ptr, acc, m, n, M, N, tl.program_id(1), HAS_BIAS)  # masked, bias added, rounded


def launch_w4a16(one_row, tile, x: Tensor, weight: Int4Weight, bias: Tensor | None) -> Tensor:
    """Given: one_row for one row of x, in programs of 16 channels; for more rows tile, 16 to 64 rows by 64 channels."""
    packed, scale, minimum = weight
    (rows, _), (channels, _), group_size, groups = x.shape, weight.shape, weight.group_size, scale.shape[0]
    out = torch.empty(rows, channels, dtype=x.dtype, device=x.device)
    anything = scale if bias is None else bias  # a kernel's pointer must point somewhere
    tensors = (x, packed, scale, minimum, anything, out)
    options = {"HAS_BIAS": bias is not None, "G": group_size, "num_warps": 4}
    if rows == 1 and channels:
        one_row[(triton.cdiv(channels, 16),)](*tensors, channels, groups, packed.stride(0), BLOCK_N=16, **options)
    elif rows and channels:
        block_m, block_n = min(64, max(16, next_power_of_2(rows))), 64
        grid = (triton.cdiv(rows, block_m) * triton.cdiv(channels, block_n),)
        sizes = rows, channels, groups, x.stride(0), packed.stride(0)
        tile[grid](*tensors, *sizes, BLOCK_M=block_m, BLOCK_N=block_n, num_stages=3, **options)
    return out


@exercise(reference="minillm.kernels.w4a16:w4a16", part="kernels.w4a16")
def w4a16(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    """A linear layer whose weight has four bits and whose arithmetic has sixteen: x · Wᵀ + bias, W never in memory.

        out[m, n] = rounded(Σ_k x[m, k] · W[n, k]  +  bias[n])          rounded: to x's dtype, once

    x [M, K] in bfloat16, float16 or float32, perhaps rows of a wider tensor; weight as pack_int4 makes it, its packed perhaps
    rows of a wider one, scale and minimum of any of the three dtypes; bias [N] in x's dtype. Returns a new [M, N]; M and N may
    be anything from 0. Sums are float32.

    One row: everything in float32, no weight is rounded. Several rows: a weight is computed in float32 and rounded to x's dtype,
    which is what the tensor cores multiply (tl.dot(…, acc, input_precision="ieee")).

    From four bits to a number without a conversion, of which a multiprocessor does few: put q at the top of a float32's
    fraction, under the exponent of 1, by integer operations, and look at the bits as a float32. That is v = 1 + q / 16, exactly:

        v = (q << 19 | 0x3F800000).to(tl.float32, bitcast=True)          for q an int32 from 0 to 15
        W = a · v + b    with    a = 16 · scale,    b = minimum - 16 · scale

    Bytes, x of s and scale of t bytes an element: every program of one row asks for each byte of its weights once, and for each
    scale and minimum once (not once for each weight): **N·K / 2 + 2·t·N·K / G**, and for all of x: s·K·⌈N / 16⌉. Tiles do so once
    for each BLOCK_M rows, and for x s·M·K·⌈N / 64⌉. out is written once, s·M·N, bias read once by each program, and there is
    nothing else: a weight that is written to memory costs 2·s·N·K more. Lanes past N or M neither load nor store.

    Body: `return launch_w4a16(one_row_kernel, tile_kernel, x, weight, bias)`.

    Source: Frantar et al. 2024, "MARLIN", arXiv 2408.11743; Kim et al. 2022, arXiv 2211.10017 (integers to floats by their bits).
    """
    raise NotImplementedError
