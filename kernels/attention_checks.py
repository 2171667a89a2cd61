"""What the launchers of the attention kernels check, on top of minillm.kernels.checks. Nothing here waits for the GPU: what block
tables and lengths hold is not looked at, only what shape they have."""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    INDICES,
    INT32_LIMIT,
    check_last_dim_contiguous,
    check_same_dtype,
    check_shape,
    check_tensors,
    refuse_negative_strides,
    refuse_overlap,
    require,
)
from torch import Tensor

GRID_LIMIT = 2**16  # programs in the second and third dimension of a launch


def check_heads(num_heads: int, num_kv_heads: int) -> None:
    """ValueError unless the query heads can share the key-value heads evenly."""
    evenly = num_kv_heads > 0 and num_heads % num_kv_heads == 0
    require(evenly, f"{num_heads} query heads cannot share {num_kv_heads} key-value heads evenly: make them a multiple")
    require(num_heads < GRID_LIMIT, f"{num_heads} heads: a launch takes at most {GRID_LIMIT - 1}; split them")


def check_score(scale: float | None, sliding_window: int | None, causal: bool = True) -> None:
    """ValueError for a scale or window that the kernels have no meaning for."""
    require(scale is None or scale > 0, f"scale is {scale}; it must be positive: put a sign into q")
    require(sliding_window is None or sliding_window > 0, f"sliding_window is {sliding_window}; it must be positive, or None")
    require(sliding_window is None or causal, "a sliding window needs causal=True")


def check_near(limit: int, **strides: int) -> None:
    """ValueError if `limit` steps of a stride leave the 32 bits in which offsets within a tile are counted."""
    for name, stride in strides.items():
        require(stride * limit < INT32_LIMIT, f"{name} lie {stride} elements apart, too far for a tile: pass .contiguous()")


def check_paged(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, out: Tensor | None, rows: int
) -> Tensor:
    """Checks everything that both paged kernels take; rows: of the largest tile. Returns where to write: `out`, or a new
    tensor."""
    require(q.ndim == 3, f"q has {q.ndim} dimensions; [tokens, heads, head_dim] are needed")
    num_heads, head_dim = q.shape[1:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    check_tensors(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
    check_same_dtype(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
    check_tensors(INDICES, block_tables=block_tables)
    check_tensors((torch.int32,), seq_lens=seq_lens)
    check_same_device(q=q, block_tables=block_tables, seq_lens=seq_lens)
    check_shape([None, None, head_dim, None], k_cache=k_cache)
    num_blocks, num_kv_heads, _, block_size = k_cache.shape
    check_shape([num_blocks, num_kv_heads, block_size, head_dim], v_cache=v_cache)
    check_heads(num_heads, num_kv_heads)
    check_shape([len(seq_lens), None], block_tables=block_tables)
    check_shape([len(seq_lens)], seq_lens=seq_lens)
    check_shape(q.shape, out=out)
    check_last_dim_contiguous(q=q, out=out, block_tables=block_tables, seq_lens=seq_lens)
    refuse_negative_strides(q=q, k_cache=k_cache, v_cache=v_cache, out=out, block_tables=block_tables)
    refuse_overlap(out=out)
    check_near(rows, **{"tokens of q": q.stride(0), "tokens of out": out.stride(0)})
    check_near(head_dim, **{"dimensions of k_cache": k_cache.stride(2), "dimensions of v_cache": v_cache.stride(3)})
    return out


def check_same_device(**tensors: Tensor) -> None:
    """ValueError unless all lie where the first does."""
    (first_name, first), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, {first_name} on {first.device}: move them to one device")
