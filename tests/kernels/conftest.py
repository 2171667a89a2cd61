"""Sequences of known keys and values in a paged cache, for the kernels that read one."""

from dataclasses import dataclass

import pytest
import torch
from minillm.kernels.kv_write import kv_write_torch
from torch import Tensor

GARBAGE = 1e4  # what slots without a token hold: finite, as promised, and seen at once if it is read


@dataclass
class Paged:
    k: list[Tensor]  # of each sequence [seq_len, KV, D]
    v: list[Tensor]
    layer: Tensor  # [blocks, 2, KV, D, block_size]
    block_tables: Tensor  # [B, W] int64, shuffled, 0 past a sequence's end
    seq_lens: Tensor  # [B] int32

    @property
    def cache(self) -> tuple[Tensor, Tensor]:
        head_dim, block_size = self.layer.shape[-2:]
        return self.layer[:, 0], self.layer[:, 1].flatten(2).unflatten(2, (block_size, head_dim))


def make_paged(seq_lens, kv_heads=1, dim=16, block_size=4, dtype=torch.float32) -> Paged:
    widths = [-(-n // block_size) for n in seq_lens]
    layer = torch.full((sum(widths) + 2, 2, kv_heads, dim, block_size), GARBAGE).to(dtype)
    free = torch.randperm(sum(widths)) + 1
    tables = torch.zeros(len(seq_lens), max(widths, default=0), dtype=torch.int64)
    k, v = ([torch.randn(n, kv_heads, dim).to(dtype) for n in seq_lens] for _ in "kv")
    for i, (n, width) in enumerate(zip(seq_lens, widths, strict=True)):
        tables[i, :width], free = free[:width], free[width:]
        position = torch.arange(n)
        kv_write_torch(k[i], v[i], layer, tables[i][position // block_size] * block_size + position % block_size)
    return Paged(k, v, layer, tables, torch.tensor(seq_lens, dtype=torch.int32))


@pytest.fixture
def paged():
    """make_paged(seq_lens, kv_heads, dim, block_size, dtype) -> Paged."""
    return make_paged
