"""How the attention kernels cut their work for the card at hand. Every choice keeps what a program needs in registers: a larger
tile reuses more, until it spills to memory. The compiled sizes behind the numbers are in `minillm kernels`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from minillm.kernels.runtime import INTERPRETED, triton


class Tiles(NamedTuple):
    """BLOCK_M query rows and BLOCK_N keys a tile, warps that share one, tiles of keys in flight at once."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int


def compute_capability(device: torch.device) -> int:
    """90 for sm_90; 0 where kernels are interpreted."""
    if INTERPRETED:
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def num_sms(device: torch.device) -> int:
    """Streaming multiprocessors; 1 where kernels are interpreted, one program after the other."""
    return 1 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def flash_attention_tiles(head_dim: int, itemsize: int, sm: int) -> Tiles:
    """sm: see compute_capability. Hopper's wgmma reads both operands from shared memory, of which it has 227 KiB a program, and
    so spares the registers that hold Q elsewhere; other cards must do with 99 KiB (sm_86, sm_89, sm_120)."""
    if itemsize > 2:
        return Tiles(32, 32, 4, 2) if head_dim <= 128 else Tiles(16, 16, 4, 2)
    if head_dim <= 64:
        return Tiles(128, 64, 8, 3)
    if head_dim <= 128:
        return Tiles(128, 128, 8, 3) if sm == 90 else Tiles(128, 32, 8, 3)
    return Tiles(64, 32, 8, 2)


def paged_attention_tiles(head_dim: int, itemsize: int, group: int, max_query_len: int, sm: int) -> Tiles:
    """group: query heads that share a key-value head, each of whose queries takes a row of the tile; sm: see
    compute_capability."""
    one_token = triton.next_power_of_2(group)
    rows = min(max(16, triton.next_power_of_2(group * min(max_query_len, 128))), 128)
    if itemsize > 2 or head_dim > 128:
        size = 16 if itemsize > 2 and head_dim > 128 else 32
        # the interpreter has no registers to run out of, and takes as long for a tile of any size
        return Tiles(max(min(rows, size) if sm else rows, one_token), size, 4, 2)
    if rows <= 64:
        return Tiles(rows, 64, 4, 3)
    return Tiles(max(rows, one_token), 64 if head_dim <= 64 or sm == 90 else 32, 8, 3)


def paged_decode_tiles(head_dim: int, itemsize: int, group: int) -> Tiles:
    """One row a query head of the group: everything goes to keys and values in flight. tl.dot takes at least 16 rows."""
    rows = max(16, triton.next_power_of_2(group))
    if itemsize > 2 and head_dim > 128:
        return Tiles(rows, 16, 4, 2)
    return Tiles(rows, 32, 4, 2) if itemsize > 2 or head_dim > 128 else Tiles(rows, 64, 4, 3)


def dot_precision(dtype: torch.dtype) -> str:
    """tl.dot's, which matters for float32 only: three products of TF32 halves, close to float32's own on tensor cores. One
    product of TF32 would round scores to 10 bits; true float32 runs on no tensor core, and its operands do not fit in
    registers."""
    return "tf32x3" if dtype == torch.float32 and not torch.version.hip else "ieee"
