"""Caches laid out as the engine lays them out, and the metadata of a flat batch over them."""

import pytest
import torch

from minillm.attention.base import AttentionMetadata

BLOCK_SIZE = 4  # of the paged layout


class Layout:
    """Gives each of `num_seqs` sequences its blocks. The unused rest of the cache holds large finite garbage.

    rows: one block of max_len a sequence, in order. scattered: the same, out of order. paged: small shuffled blocks.
    """

    def __init__(self, kind: str, num_seqs: int, max_len: int):
        self.block_size = BLOCK_SIZE if kind == "paged" else max_len
        blocks_per_seq = -(-max_len // self.block_size)
        self.num_blocks = num_seqs * blocks_per_seq + 3
        ids = torch.arange(1, self.num_blocks)
        if kind != "rows":
            ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(1))]
        self.tables = ids[: num_seqs * blocks_per_seq].view(num_seqs, blocks_per_seq)

    def cache(self, num_kv_heads: int, head_dim: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        garbage = torch.full((self.num_blocks, 2, num_kv_heads, head_dim, self.block_size), 1e4, dtype=dtype)
        garbage[..., 1::2] *= -1
        return garbage

    def slots(self, seq: int, start: int, end: int) -> torch.Tensor:
        position = torch.arange(start, end)
        return self.tables[seq][position // self.block_size] * self.block_size + position % self.block_size

    def metadata(self, chunks: list[tuple[int, int, int]], num_decodes: int | None = None) -> AttentionMetadata:
        """chunks: (sequence, first position, end position) in batch order. By default every leading chunk of one
        token counts as a decode."""
        sizes = [end - start for _, start, end in chunks]
        if num_decodes is None:
            num_decodes = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
        longest = max(-(-end // self.block_size) for _, _, end in chunks)
        tables = torch.zeros(len(chunks), longest, dtype=torch.int64)
        for i, (seq, _, end) in enumerate(chunks):
            used = -(-end // self.block_size)
            tables[i, :used] = self.tables[seq, :used]
        return AttentionMetadata(
            query_start_loc=[sum(sizes[:i]) for i in range(len(sizes) + 1)],
            seq_lens=[end for _, _, end in chunks],
            block_tables=tables,
            slot_mapping=torch.cat([self.slots(*chunk) for chunk in chunks]),
            block_size=self.block_size,
            num_decodes=num_decodes,
        )


@pytest.fixture(params=["rows", "scattered", "paged"])
def layout(request):
    """A function (num_seqs, max_len) -> Layout, once for each kind."""
    return lambda num_seqs, max_len: Layout(request.param, num_seqs, max_len)


@pytest.fixture
def layout_kind():
    """Layout itself, for a test that chooses the kind."""
    return Layout
