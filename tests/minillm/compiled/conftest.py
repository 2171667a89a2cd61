"""Steps for small decoders to compute."""

import pytest
import torch

from minillm.attention.base import AttentionMetadata

VOCABULARY = 300  # of the small decoders


@pytest.fixture
def prompts_of():
    """prompts_of([3, 17], past=0, block_size=4): tokens, positions and metadata of a step that computes so many new tokens of
    each sequence, `past` of which are in the cache. Blocks are scattered."""

    def make(lengths: list[int], past: int = 0, block_size: int = 4):
        widths = [-(-(n + past) // block_size) for n in lengths]
        free = torch.randperm(sum(widths)).tolist()
        tables = [[free.pop() for _ in range(width)] + [0] * (max(widths) - width) for width in widths]
        starts, positions, slots = [0], [], []
        for n, table in zip(lengths, tables, strict=True):
            starts.append(starts[-1] + n)
            positions += range(past, past + n)
            slots += [table[p // block_size] * block_size + p % block_size for p in range(past, past + n)]
        seq_lens = [n + past for n in lengths]
        meta = AttentionMetadata(starts, seq_lens, torch.tensor(tables), torch.tensor(slots), block_size, num_decodes=0)
        return torch.randint(0, VOCABULARY, (starts[-1],)), torch.tensor(positions), meta

    return make
