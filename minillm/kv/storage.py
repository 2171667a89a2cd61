"""The memory behind every cache: one tensor a layer, in blocks.

A block holds, for each key-value head, its tokens' keys as [head_dim, block_size] and their values as [block_size, head_dim].
So attention over a block reads both front to back: scores are sums over head_dim for 16 tokens at once, outputs are sums over
tokens for 16 dimensions at once. Keys and values of a block lie together, so a block is moved or copied whole.
"""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

from minillm.config import ModelConfig


def allocate_layers(
    config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """For each layer [num_blocks + 1, 2, num_kv_heads, head_dim, block_size], all zero; read it with keys() and values().

    The last block is nobody's: rows that only pad a batch write there.
    """
    shape = (num_blocks + 1, 2, config.num_kv_heads, config.head_dim, block_size)
    return [_lazy_zeros(shape, dtype, torch.device(device)) for _ in range(config.num_layers)]


def kv_bytes(config: ModelConfig, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values of num_tokens tokens, all layers."""
    return config.kv_elements_per_token * dtype.itemsize * num_tokens


def keys(blocks: Tensor) -> Tensor:
    """The keys of a layer, or of some of its blocks: [num_blocks, num_kv_heads, head_dim, block_size], a view."""
    return blocks[:, 0]


def values(blocks: Tensor) -> Tensor:
    """The values of a layer, or of some of its blocks: [num_blocks, num_kv_heads, block_size, head_dim], a view."""
    head_dim, block_size = blocks.shape[-2:]
    return blocks[:, 1].flatten(2).unflatten(2, (block_size, head_dim))


def write_kv(k: Tensor, v: Tensor, layer: Tensor, slots: Tensor) -> None:
    """Put keys and values of T tokens, each [T, num_kv_heads, head_dim], into slots [T] int64 (block * block_size + offset)."""
    block_size = layer.shape[-1]
    block, offset = slots // block_size, slots % block_size
    keys(layer)[block, :, :, offset] = k
    values(layer)[block, :, offset] = v


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory only where something is written: the operating system maps a page at its first write.

    torch.zeros would touch every page at once, and most of a cache is not used for a long time, if ever. Pages of 2 MiB
    where there are such: blocks lie scattered, and with pages of 4 KiB the processor looks up one for each.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
