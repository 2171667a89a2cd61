"""Key-value caches in blocks for checks, and attention over them in plain torch: gathered token by token, then torch's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

NONSENSE = 2**30  # a block id that nobody has
GARBAGE = 1000.0  # finite, as slots past a sequence's end are


class Cache:
    """Random keys and values of sequences of these lengths, in blocks in random order. Blocks that nobody uses hold NaN, slots
    past a sequence's end GARBAGE, and block_tables NONSENSE past a sequence's last block."""

    def __init__(self, seq_lens, *, kv_heads, head_dim, block_size, dtype=torch.float32, device="cpu") -> None:
        counts = [-(-n // block_size) for n in seq_lens]
        blocks = torch.randperm(sum(counts) + 3).tolist()
        self.seq_lens, self.block_size = list(seq_lens), block_size
        self.k_cache = torch.full((len(blocks), kv_heads, head_dim, block_size), torch.nan, dtype=dtype)
        self.v_cache = torch.full((len(blocks), kv_heads, block_size, head_dim), torch.nan, dtype=dtype)
        self.tables = torch.full((len(counts), max(counts) + 2), NONSENSE, dtype=torch.int64)
        for i, (length, count) in enumerate(zip(seq_lens, counts, strict=True)):
            mine = [blocks.pop() for _ in range(count)]
            self.tables[i, :count] = torch.tensor(mine, dtype=torch.int64)
            self.k_cache[mine], self.v_cache[mine] = GARBAGE, GARBAGE
            for n in range(length):
                block, slot = mine[n // block_size], n % block_size
                self.k_cache[block, :, :, slot] = torch.randn(kv_heads, head_dim).to(dtype)
                self.v_cache[block, :, slot] = torch.randn(kv_heads, head_dim).to(dtype)
        self.k_cache, self.v_cache, self.tables = (x.to(device) for x in (self.k_cache, self.v_cache, self.tables))

    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        """k_cache, v_cache, block_tables, seq_lens, max_seq_len: what paged_decode takes after q."""
        lengths = torch.tensor(self.seq_lens, dtype=torch.int32, device=self.tables.device)
        return self.k_cache, self.v_cache, self.tables, lengths, max(self.seq_lens)

    def dense(self, sequence: int) -> tuple[Tensor, Tensor]:
        """A sequence's keys and values [tokens, kv_heads, head_dim], in order."""
        n = torch.arange(self.seq_lens[sequence], device=self.tables.device)
        block, slot = self.tables[sequence][n // self.block_size], n % self.block_size
        return self.k_cache.permute(0, 3, 1, 2)[block, slot], self.v_cache.permute(0, 2, 1, 3)[block, slot]


def sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """One token's q [H, D] over k, v [tokens, KV, D], by torch's own attention in float32; 0 for no tokens. In q's dtype."""
    if not len(k):
        return torch.zeros_like(q)
    group = q.shape[0] // k.shape[1]
    k, v = (x.float().transpose(0, 1).repeat_interleave(group, 0)[None] for x in (k, v))
    return F.scaled_dot_product_attention(q.float()[None, :, None], k, v, scale=scale)[0, :, 0].to(q.dtype)


def dense(q: Tensor, cache: Cache, *, scale: float | None = None, window: int | None = None) -> Tensor:
    """Attention of q [B, H, D] over a Cache; with a window, over each sequence's last tokens."""
    pairs = [cache.dense(i) for i in range(len(q))]
    kept = [(k[-window:], v[-window:]) if window and len(k) else (k, v) for k, v in pairs]
    return torch.stack([sdpa(row, k, v, scale) for row, (k, v) in zip(q, kept, strict=True)])


def in_pieces(scores: Tensor, v: Tensor, cuts: Iterable[int], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """(partial, lse) of softmax(scores) v, keys cut at `cuts`. scores [B, H, n], v [B, H, n, D]; NaN where a piece is empty."""
    partial, lse = [], []
    for start, end in zip((0, *cuts), (*cuts, scores.shape[-1]), strict=True):
        s, values = scores[..., start:end].double(), v[..., start:end, :].double()
        lse.append(torch.logsumexp(s, -1))
        partial.append(
            (torch.softmax(s, -1)[..., None] * values).sum(-2) if end > start else torch.full_like(v[..., 0, :], torch.nan)
        )
    return torch.stack([p.float() for p in partial], -2).to(device), torch.stack(lse, -1).float().to(device)


def whole(scores: Tensor, v: Tensor, device: str = "cpu") -> Tensor:
    """softmax(scores) v, computed in float64, float32."""
    return (torch.softmax(scores.double(), -1)[..., None] * v.double()).sum(-2).float().to(device)


def shares(q: Tensor, cache: Cache, sequence: int, *, pieces: int, tile: int, window: int | None) -> list[tuple[range, Tensor]]:
    """Of each piece its tiles, of which the last may not exist, and the log-sum-exp [H], float64, of q [H, D] over their tokens
    that count. For a Cache with one key-value head."""
    length = cache.seq_lens[sequence]
    tokens = torch.arange(length, device=q.device)
    scores = q.double() @ cache.dense(sequence)[0][:, 0].double().T * q.shape[-1] ** -0.5
    low = max(length - window, 0) if window else 0
    first = low // tile
    each = -(-(-(-length // tile) - first) // pieces)
    parts = [range(first + p * each, first + (p + 1) * each) for p in range(pieces)]
    masks = [(tokens >= low) & (tokens >= part.start * tile) & (tokens < part.stop * tile) for part in parts]
    return [(part, scores.masked_fill(~mask, -torch.inf).logsumexp(-1)) for part, mask in zip(parts, masks, strict=True)]


@contextmanager
def nan_where_nobody_wrote() -> Iterator[None]:
    """torch.empty gives NaN, in place of what the memory happened to hold."""
    empty = torch.empty
    torch.empty = lambda *shape, **options: empty(*shape, **options).fill_(torch.nan)
    try:
        yield
    finally:
        torch.empty = empty
