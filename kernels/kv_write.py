"""Writing new keys and values into the paged cache.

    keys[slot // B, h, :, slot % B] = k[t, h, :]        values[slot // B, h, slot % B, :] = v[t, h, :],        slot = slots[t]

k, v [T, H, D]; one layer's cache [num_blocks, 2, H, D, B], B tokens a block: the keys of a block and head lie as [D, B], so that
scores are sums over D for B tokens at once; its values lie in the same number of bytes as [B, D] (minillm.kv.storage). slots [T]
int64 or int32, block · B + offset; a token whose slot is −1 only pads the batch and is skipped. No two tokens may share a slot:
which of them stays is not defined. A slot that the cache does not have is not noticed (a check would wait for the GPU).

Bytes, elements of s bytes, n tokens of the T with a slot: **4·n·H·D·s** (k and v read, the cache written) and the slots, 8·T,
which every head asks for. A value is D neighbours in memory; a key is D places, B elements apart, in as many 32-byte sectors.
Tokens that follow one another in a block share those sectors, so a program takes 16 tokens and stores their keys with the
token fastest.

Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", arXiv 2309.06180,
section 5.1 (fused reshape and block write).
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    INDICES,
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

BLOCK_TOKENS = 16


@triton.jit
def kv_write_kernel(
    k_ptr, v_ptr, cache_ptr, slots_ptr,
    k_stride, k_head_stride, v_stride, v_head_stride,
    block_stride, kind_stride, head_stride, num_tokens, head_dim,
    BLOCK_SIZE: tl.constexpr, BLOCK_TOKENS: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Program (group of tokens, head)."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS  # token * stride may pass 2³¹
    head = tl.program_id(1)
    index = tl.arange(0, BLOCK_TOKENS)
    dim = tl.arange(0, BLOCK_DIM)
    slot = tl.load(slots_ptr + first + index, mask=first + index < num_tokens, other=-1).to(tl.int64)
    written = slot >= 0
    slot = tl.where(written, slot, 0)
    home = (slot // BLOCK_SIZE) * block_stride + head * head_stride
    offset = slot % BLOCK_SIZE

    inside = written[:, None] & (dim < head_dim)[None, :]
    k = tl.load(
        k_ptr + first * k_stride + head * k_head_stride + index[:, None] * k_stride + dim[None, :], mask=inside, other=0.0
    )
    v = tl.load(
        v_ptr + first * v_stride + head * v_head_stride + index[:, None] * v_stride + dim[None, :], mask=inside, other=0.0
    )
    # Transposed, so that neighbouring threads hold one dimension of neighbouring tokens.
    key_at = cache_ptr + (home + offset)[None, :] + dim[:, None] * BLOCK_SIZE
    tl.store(key_at, tl.trans(k), mask=written[None, :] & (dim < head_dim)[:, None])
    value_at = cache_ptr + kind_stride + (home + offset * head_dim)[:, None] + dim[None, :]
    tl.store(value_at, v, mask=inside)


def kv_write(k: Tensor, v: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Write T tokens' keys and values into one layer's cache, in place.

    k, v [T, H, D], which may be slices of a fused tensor; cache [num_blocks, 2, H, D, block_size], block_size a power of two, a
    block and head contiguous; slots [T] int64 or int32, −1 to skip a token.
    """
    check_tensors(k=k, v=v, cache=cache)
    check_same_dtype(k=k, v=v, cache=cache)
    check_tensors(INDICES, slots=slots)
    require(slots.device == k.device, f"slots is on {slots.device}, k on {k.device}: move them to one device")
    check_shape((None, None, None), k=k)
    tokens, num_heads, head_dim = k.shape
    check_shape(k.shape, v=v)
    check_shape((tokens,), slots=slots)
    check_shape((None, 2, num_heads, head_dim, None), cache=cache)
    block_size = cache.shape[-1]
    require(block_size > 0 and block_size & (block_size - 1) == 0, f"block_size is {block_size}: a power of two is needed")
    inner = cache.stride(3) == block_size and cache.stride(4) == 1
    require(cache.numel() == 0 or inner, "cache must hold each block and head in one piece, [head_dim, block_size]")
    check_last_dim_contiguous(k=k, v=v, slots=slots)
    refuse_negative_strides(k=k, v=v, cache=cache, slots=slots)
    refuse_overlap(cache=cache)
    rows_fit_int32(BLOCK_TOKENS, k=k, v=v)
    rows_fit_int32(num_heads, 2, cache=cache)
    if k.numel() == 0:
        return
    kv_write_kernel[(triton.cdiv(tokens, BLOCK_TOKENS), num_heads)](
        k, v, cache, slots,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        cache.stride(0), cache.stride(1), cache.stride(2), tokens, head_dim,
        BLOCK_SIZE=block_size, BLOCK_TOKENS=BLOCK_TOKENS, BLOCK_DIM=next_power_of_2(head_dim), num_warps=4,
    )  # fmt: skip


def kv_write_torch(k: Tensor, v: Tensor, cache: Tensor, slots: Tensor) -> None:
    """The same in plain torch."""
    given = slots >= 0
    k, v, slots = k[given], v[given], slots[given].long()
    head_dim, block_size = cache.shape[-2:]
    block, offset = slots // block_size, slots % block_size
    values = cache[:, 1].flatten(2).unflatten(2, (block_size, head_dim))
    cache[:, 0][block, :, :, offset] = k
    values[block, :, offset] = v


def kv_write_bytes(tokens: int, num_heads: int, head_dim: int, dtype: torch.dtype, index_dtype: torch.dtype = torch.int64) -> int:
    """Bytes through HBM where every token has a slot: k, v and the slots in, k and v out."""
    return tokens * (4 * num_heads * head_dim * dtype.itemsize + index_dtype.itemsize)


def _shipped(name: str, head_dim: int) -> Shipped:
    pointers = ("k_ptr", "v_ptr", "cache_ptr")
    strides = ("k_stride", "k_head_stride", "v_stride", "v_head_stride", "block_stride", "kind_stride", "head_stride")
    return Shipped(
        name=name,
        kernel="minillm.kernels.kv_write:kv_write_kernel",
        signature=dict.fromkeys(pointers, "*bf16")
        | {"slots_ptr": "*i64"}
        | dict.fromkeys((*strides, "num_tokens", "head_dim"), "i32"),
        constexprs={"BLOCK_SIZE": 16, "BLOCK_TOKENS": BLOCK_TOKENS, "BLOCK_DIM": next_power_of_2(head_dim)},
        aligned=(*pointers, "slots_ptr", *strides, "head_dim"),
        num_warps=4,
    )


SHIPPED = (_shipped("kv_write.bf16.128", 128), _shipped("kv_write.bf16.64", 64))
