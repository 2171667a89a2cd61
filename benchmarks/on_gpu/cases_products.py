"""Cases of matrix products: large and small, grouped, quantized, float8."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from minillm.kernels.fp8 import fp8_gemm, fp8_gemm_torch
from minillm.kernels.fp8_quantize import quantize_fp8, quantize_fp8_torch
from minillm.kernels.gemm import default_config, gemm, gemm_torch
from minillm.kernels.gemv import gemv, gemv_bytes, gemv_torch
from minillm.kernels.grouped_gemm import grouped_gemm, grouped_gemm_torch
from minillm.kernels.int4_packing import pack_int4
from minillm.kernels.w4a16 import w4a16, w4a16_torch
from minillm.kernels.w8a16 import w8a16, w8a16_torch

from minillm.quant.rtn import quantize_groups, quantize_per_channel
from on_gpu.cases import Case, randn
from on_gpu.shapes import Shape


def cases(shape: Shape, tokens: int, tuned: bool) -> list[Case]:
    """tuned: let the GEMM measure its block sizes first, which takes a while."""
    s, t, n, k = shape, tokens, 2 * shape.inner, shape.hidden

    def linear(m, dtype, device):
        return randn(m, k, dtype=dtype, device=device), randn(n, k, dtype=dtype, device=device, scale=k**-0.5)

    def int8(m, dtype, device):
        x, w = linear(m, dtype, device)
        return x, *quantize_per_channel(w, dtype), w

    def int4(m, dtype, device):
        x, w = linear(m, dtype, device)
        return x, pack_int4(*quantize_groups(w, s.group_size, scale_dtype=dtype)), w

    def fp8(m, dtype, device):
        x, w = linear(m, dtype, device)
        (a, a_scale), (b, b_scale) = quantize_fp8_torch(x), quantize_fp8_torch(w)
        return a, b, a_scale, b_scale

    def experts(dtype, device):
        x = randn(t, k, dtype=dtype, device=device)
        w = randn(s.experts, s.inner, k, dtype=dtype, device=device, scale=k**-0.5)
        return x, w, torch.tensor(bounds, dtype=torch.int32, device=device)

    def one_by_one(x, w, _):
        pieces = zip(bounds[:-1], bounds[1:], range(s.experts), strict=True)
        return torch.cat([F.linear(x[begin:end], w[g]) for begin, end, g in pieces])

    def scaled_mm(a, b, a_scale, b_scale):
        return torch._scaled_mm(a, b.T, scale_a=a_scale[:, None], scale_b=b_scale[None], out_dtype=torch.bfloat16)

    def dequantized(q_and_scale):
        q, scale = q_and_scale
        return q.float() * scale[:, None], scale

    # uneven groups: 0, then 1 : 2 : 3 : …, the first of them empty
    shares = [g / sum(range(s.experts)) for g in range(s.experts)]
    bounds = [round(t * sum(shares[:g])) for g in range(s.experts)] + [t]
    multiply = gemm if tuned else partial(gemm, config=default_config(t))
    small, bf16 = min(16, max(2, s.batch)), (torch.bfloat16,)
    minimum = lambda m, weight_bytes: lambda d: int(weight_bytes(d)) + (m * k + m * n) * d.itemsize  # noqa: E731
    int8_bytes, int4_bytes = lambda d: n * k + n * d.itemsize, lambda d: n * k / 2 + 2 * n * k / s.group_size * d.itemsize
    products = [
        Case("gemm", partial(linear, t), multiply, gemm_torch, F.linear, flops=2.0 * t * n * k),
        Case("gemv.1", partial(linear, 1), gemv, gemv_torch, F.linear, lambda d: gemv_bytes(1, n, k, d)),
        Case(f"gemv.{small}", partial(linear, small), gemv, gemv_torch, F.linear, lambda d: gemv_bytes(small, n, k, d)),
        Case("grouped_gemm", experts, grouped_gemm, grouped_gemm_torch, one_by_one, flops=2.0 * t * s.inner * k),
    ]
    for m in (1, small, t):
        limit = {"flops": 2.0 * m * n * k} if m == t else {}
        products += [
            Case(f"w8a16.{m}", partial(int8, m), lambda x, q, scale, _: w8a16(x, q, scale),
                 lambda x, q, scale, _: w8a16_torch(x, q, scale), lambda x, q, scale, w: F.linear(x, w),
                 None if limit else minimum(m, int8_bytes), **limit),
            Case(f"w4a16.{m}", partial(int4, m), lambda x, packed, _: w4a16(x, packed),
                 lambda x, packed, _: w4a16_torch(x, packed), lambda x, packed, w: F.linear(x, w),
                 None if limit else minimum(m, int4_bytes), **limit),
        ]  # fmt: skip
    return [
        *products,
        # outputs in bfloat16 whatever the case's dtype: one of them is enough
        Case(f"fp8_gemm.{small}", partial(fp8, small), fp8_gemm, fp8_gemm_torch, scaled_mm, min_sm=89, dtypes=bf16),
        Case("fp8_gemm", partial(fp8, t), fp8_gemm, fp8_gemm_torch, scaled_mm, flops=2.0 * t * n * k, min_sm=89, dtypes=bf16),
        Case("quantize_fp8", lambda d, at: (randn(t, k, dtype=d, device=at),), lambda x: dequantized(quantize_fp8(x)),
             # float8's own rounding is 1/16; the kernel may round to the neighbour of what the twin rounds to
             lambda x: dequantized(quantize_fp8_torch(x)), rounding=0.125 / torch.finfo(torch.bfloat16).eps, min_sm=89),
    ]  # fmt: skip
