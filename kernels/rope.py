"""Rotary positions on queries and keys, in one launch.

    first'  = first · cos − second · sin
    second' = second · cos + first · sin

for the pair (i, i + D/2) of every head, the layout of Hugging Face checkpoints. q [T, Hq, D], k [T, Hk, D], cos and sin [T, D/2],
one dtype: bfloat16, float16 or float32. Products are rounded to the dtype before they are added, as transformers and
minillm.model.ops round, so that results in 16 bits agree bit for bit.

Bytes, elements of s bytes: q and k are read once and written once, **2·T·(Hq + Hk)·D·s**, and cos and sin read, **T·D·s**. A
token's heads are shared out over several programs, each of which asks for the token's cos and sin; HBM answers the first.

Source: Su et al. 2021, "RoFormer", arXiv 2104.09864, section 3.2.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    refuse_overlap,
    require,
    rows_fit_int32,
)
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def _rotate(
    x_ptr, out_ptr, x_head_stride, out_head_stride, head, num_heads, cos, sin, half,
    BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    """Rotate heads [BLOCK_HEADS] of one token. Both halves are loaded before either is stored, so out may be x."""
    lane = tl.arange(0, BLOCK_HALF)[None, :]
    inside = (head < num_heads)[:, None] & (lane < half)
    x_ptr += head[:, None] * x_head_stride + lane
    out_ptr += head[:, None] * out_head_stride + lane
    dtype: tl.constexpr = cos.dtype
    first = tl.load(x_ptr, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=inside, other=0.0).to(tl.float32)
    cos, sin = cos.to(tl.float32)[None, :], sin.to(tl.float32)[None, :]
    first_cos, second_sin = (first * cos).to(dtype).to(tl.float32), (second * sin).to(dtype).to(tl.float32)
    second_cos, first_sin = (second * cos).to(dtype).to(tl.float32), (first * sin).to(dtype).to(tl.float32)
    tl.store(out_ptr, (first_cos - second_sin).to(dtype), mask=inside)
    tl.store(out_ptr + half, (second_cos + first_sin).to(dtype), mask=inside)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr,
    q_stride, q_head_stride, k_stride, k_head_stride,
    q_out_stride, q_out_head_stride, k_out_stride, k_out_head_stride,
    cos_stride, sin_stride, num_q_heads, num_k_heads, half,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    """Program (token, group): BLOCK_HEADS heads of the token, the first groups of q, the rest of k."""
    token = tl.program_id(0).to(tl.int64)  # token * stride may pass 2³¹
    group = tl.program_id(1)
    q_groups = tl.cdiv(num_q_heads, BLOCK_HEADS)
    lane = tl.arange(0, BLOCK_HALF)
    cos = tl.load(cos_ptr + token * cos_stride + lane, mask=lane < half, other=0.0)
    sin = tl.load(sin_ptr + token * sin_stride + lane, mask=lane < half, other=0.0)
    head = tl.arange(0, BLOCK_HEADS)
    if group < q_groups:
        _rotate(
            q_ptr + token * q_stride, q_out_ptr + token * q_out_stride, q_head_stride, q_out_head_stride,
            group * BLOCK_HEADS + head, num_q_heads, cos, sin, half, BLOCK_HALF,
        )  # fmt: skip
    else:
        _rotate(
            k_ptr + token * k_stride, k_out_ptr + token * k_out_stride, k_head_stride, k_out_head_stride,
            (group - q_groups) * BLOCK_HEADS + head, num_k_heads, cos, sin, half, BLOCK_HALF,
        )  # fmt: skip


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, inplace: bool = False) -> tuple[Tensor, Tensor]:
    """(q, k) turned by each token's angles. q [T, Hq, D], k [T, Hk, D], which may be slices of one fused tensor, cos and sin
    [T, D/2]. Returns new contiguous tensors of the same shapes, or with inplace=True q and k themselves, overwritten."""
    check_tensors(q=q, k=k, cos=cos, sin=sin)
    check_same_dtype(q=q, k=k, cos=cos, sin=sin)
    check_shape((None, None, None), q=q)
    tokens, num_q_heads, head_dim = q.shape
    require(head_dim % 2 == 0, f"head_dim is {head_dim}: pairs need an even one")
    check_shape((tokens, None, head_dim), k=k)
    check_shape((tokens, head_dim // 2), cos=cos, sin=sin)
    check_last_dim_contiguous(q=q, k=k, cos=cos, sin=sin)
    refuse_negative_strides(q=q, k=k, cos=cos, sin=sin)
    rows_fit_int32(num_q_heads, 1, q=q)
    rows_fit_int32(k.shape[1], 1, k=k)
    if inplace:
        refuse_overlap(q=q, k=k)
    q_out, k_out = (q, k) if inplace else (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k))
    num_k_heads, half = k.shape[1], head_dim // 2
    block_heads, block_half = rope_blocks(num_k_heads, head_dim)
    groups = triton.cdiv(num_q_heads, block_heads) + triton.cdiv(num_k_heads, block_heads)
    if tokens == 0 or groups == 0 or half == 0:
        return q_out, k_out
    rope_kernel[(tokens, groups)](
        q, k, cos, sin, q_out, k_out,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1),
        q_out.stride(0), q_out.stride(1), k_out.stride(0), k_out.stride(1),
        cos.stride(0), sin.stride(0), num_q_heads, num_k_heads, half,
        BLOCK_HEADS=block_heads, BLOCK_HALF=block_half, num_warps=rope_warps(block_heads, block_half),
    )  # fmt: skip
    return q_out, k_out


def rope_blocks(num_k_heads: int, head_dim: int) -> tuple[int, int]:
    """(heads a program turns, pairs of a head, padded): as many heads as there are of k, but 256 to
    1,024 pairs, so that every thread of a warp has 128 bits to load."""
    block_half = next_power_of_2(head_dim // 2)
    heads = max(1 << (max(1, num_k_heads) - 1).bit_length(), 256 // block_half)
    return max(1, min(heads, 1024 // block_half)), block_half


def rope_warps(block_heads: int, block_half: int) -> int:
    """One warp for each 256 pairs: 8 elements, 128 bits of a 16-bit dtype, per thread and half."""
    return max(1, min(4, block_heads * block_half // 256))


def rope_torch(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, inplace: bool = False) -> tuple[Tensor, Tensor]:
    """The same in plain torch."""
    cos, sin = cos[:, None], sin[:, None]
    turned = []
    for x in (q, k):
        first, second = x.chunk(2, dim=-1)
        y = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        turned.append(x.copy_(y) if inplace else y)
    return turned[0], turned[1]


def rope_bytes(tokens: int, num_q_heads: int, num_k_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes that must cross HBM: q and k in and out, cos and sin in."""
    return tokens * head_dim * (2 * (num_q_heads + num_k_heads) + 1) * dtype.itemsize


def _shipped(name: str, num_k_heads: int, head_dim: int) -> Shipped:
    block_heads, block_half = rope_blocks(num_k_heads, head_dim)
    pointers = ("q_ptr", "k_ptr", "cos_ptr", "sin_ptr", "q_out_ptr", "k_out_ptr")
    strides = tuple(f"{x}{part}" for x in ("q", "k", "q_out", "k_out") for part in ("_stride", "_head_stride"))
    strides += ("cos_stride", "sin_stride")
    return Shipped(
        name=name,
        kernel="minillm.kernels.rope:rope_kernel",
        signature=dict.fromkeys(pointers, "*bf16") | dict.fromkeys((*strides, "num_q_heads", "num_k_heads", "half"), "i32"),
        constexprs={"BLOCK_HEADS": block_heads, "BLOCK_HALF": block_half},
        aligned=(*pointers, *strides, "half"),
        num_warps=rope_warps(block_heads, block_half),
    )


SHIPPED = (_shipped("rope.bf16.llama-8b", 8, 128), _shipped("rope.bf16.smollm2-135m", 3, 64))
