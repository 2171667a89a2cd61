"""Checks for an attention backend (minillm.attention.base). subject: its class, called without arguments.

Random schedules are played against attention written out over whole sequences in float64. The cache is only ever written by
the backend itself, so that any layout of it can be tested.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from minillm.attention.base import AttentionMetadata
from minillm.config import ModelConfig
from minillm.kv.storage import allocate_layers

GARBAGE = 1e4  # finite, as the protocol allows; a slot that is read by mistake shows
MAX_LEN = 37
SHAPES = ((1, 1, 8), (6, 2, 8), (4, 4, 16), (3, 1, 16))  # query heads, key-value heads, head_dim


def dense_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None) -> Tensor:
    """The definition. q [T, H, D]: the last T of the S tokens in k, v [S, KV, D]. Returns [T, H, D] float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,shd->hts", q, k) * scale
    at = torch.arange(len(k) - len(q), len(k))[:, None]
    key = torch.arange(len(k))
    seen = key <= at if window is None else (key <= at) & (key > at - window)
    return torch.einsum("hts,shd->thd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


@dataclass
class _Sequence:
    blocks: list[int]
    k: Tensor  # [MAX_LEN, KV, D], of which the first `length` have been written
    v: Tensor
    length: int = 0


@dataclass
class _Game:
    """Sequences in one cache, and a backend that writes and reads it."""

    backend: object
    heads: tuple[int, int, int]
    block_size: int
    seed: int
    max_seqs: int = 5
    window: int | None = None
    dtype: torch.dtype = torch.float32
    atol: float = 1e-5
    sequences: list[_Sequence] = field(default_factory=list)

    def __post_init__(self):
        num_heads, num_kv_heads, dim = self.heads
        self.random, self.torch = random.Random(self.seed), torch.Generator().manual_seed(self.seed)
        self.scale = self.random.choice([dim**-0.5, 0.3])
        self.per_seq = -(-MAX_LEN // self.block_size)
        num_blocks = self.max_seqs * self.per_seq + 3
        config = ModelConfig(
            "llama", 10, num_heads * dim, 8, num_layers=1, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=dim,
            max_position_embeddings=MAX_LEN,
        )  # fmt: skip
        (self.cache,) = allocate_layers(config, num_blocks, self.block_size, self.dtype)
        self.cache.fill_(GARBAGE)
        self.free = self.random.sample(range(num_blocks), num_blocks)

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.torch).to(self.dtype)

    def start(self) -> _Sequence:
        blocks, self.free = self.free[: self.per_seq], self.free[self.per_seq :]
        _, num_kv_heads, dim = self.heads
        sequence = _Sequence(blocks, self.randn(MAX_LEN, num_kv_heads, dim), self.randn(MAX_LEN, num_kv_heads, dim))
        self.sequences.append(sequence)
        return sequence

    def fork(self, parent: _Sequence, num_blocks: int) -> _Sequence:
        """A sequence that shares its first blocks with another, and was never asked to compute them."""
        child, shared = self.start(), num_blocks * self.block_size
        child.blocks[:num_blocks] = parent.blocks[:num_blocks]
        child.k[:shared], child.v[:shared], child.length = parent.k[:shared], parent.v[:shared], shared
        return child

    def step(self, chunks: list[tuple[_Sequence, int]]) -> None:
        """Advance sequences by so many tokens each, in one flat batch, and compare every row."""
        chunks = sorted(chunks, key=lambda chunk: chunk[1] > 1)  # decodes first, as the metadata promises
        q = self.randn(sum(n for _, n in chunks), self.heads[0], self.heads[2])
        k, v = (torch.cat([x[s.length : s.length + n] for (s, n), x in zip(chunks, xs, strict=True)])
                for xs in zip(*((s.k, s.v) for s, _ in chunks), strict=True))  # fmt: skip
        attend = self.backend.plan(self._metadata(chunks), self.scale, self.window)
        out = attend(q, k.clone(), v.clone(), self.cache)
        assert out.shape == q.shape and out.dtype == q.dtype, (
            f"got {tuple(out.shape)} {out.dtype}, q is {tuple(q.shape)} {q.dtype}"
        )
        row = 0
        for sequence, n in chunks:
            sequence.length += n
            seen = slice(0, sequence.length)
            want = dense_attention(q[row : row + n], sequence.k[seen], sequence.v[seen], self.scale, self.window)
            error = (out[row : row + n].double() - want).abs().max().item()
            assert error <= self.atol, (
                f"{n} tokens ending a sequence of {sequence.length} are off by {error:.2g} (limit {self.atol:g}); block size "
                f"{self.block_size}, blocks {sequence.blocks}, window {self.window}, heads {self.heads}, in a batch of "
                f"{[m for _, m in chunks]}. About {GARBAGE:g}: a slot past the end was read. Rows swapped: see query_start_loc"
            )
            row += n

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if len(self.sequences) < self.max_seqs:
                parent = self.random.choice([None, *self.sequences])
                full = parent.length // self.block_size if parent else 0
                self.fork(parent, self.random.randint(1, full)) if full else self.start()
            ready = [s for s in self.sequences if s.length < MAX_LEN]
            if not ready:
                return
            chosen = self.random.sample(ready, self.random.randint(1, len(ready)))
            self.step([(s, self._advance(s)) for s in chosen])

    def _advance(self, sequence: _Sequence) -> int:
        return min(self.random.choice([1, 1, 1, 2, 5, 16, 17, MAX_LEN]), MAX_LEN - sequence.length)

    def _metadata(self, chunks: list[tuple[_Sequence, int]]) -> AttentionMetadata:
        ends = [s.length + n for s, n in chunks]
        width = max(-(-end // self.block_size) for end in ends)
        tables = torch.zeros(len(chunks), width, dtype=torch.int64)
        slots, starts = [], [0]
        for i, ((sequence, n), end) in enumerate(zip(chunks, ends, strict=True)):
            used = -(-end // self.block_size)
            tables[i, :used] = torch.tensor(sequence.blocks[:used])
            positions = range(sequence.length, end)
            slots += [sequence.blocks[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
            starts.append(starts[-1] + n)
        return AttentionMetadata(
            query_start_loc=starts, seq_lens=ends, block_tables=tables, slot_mapping=torch.tensor(slots),
            block_size=self.block_size, num_decodes=sum(n == 1 for _, n in chunks),
        )  # fmt: skip


def check_one_token_alone(subject):
    for block_size in (1, 4, 16, MAX_LEN):
        game = _Game(subject(), SHAPES[1], block_size, seed=0)
        game.step([(game.start(), 1)])


def check_prompts_chunks_and_decodes_in_one_batch(subject):
    for block_size in (1, 4, 16, MAX_LEN):
        game = _Game(subject(), SHAPES[1], block_size, seed=1)
        a, b, c, d = (game.start() for _ in range(4))
        game.step([(a, 11), (b, 1)])
        game.step([(a, 1), (b, 1), (c, 17), (d, 1)])
        game.step([(a, 7), (b, 2), (c, 1), (d, MAX_LEN - 1)])
        game.step([(a, MAX_LEN - 19), (b, 1), (c, 19)])


def check_equal_lengths_need_no_mask_and_unequal_ones_do(subject):
    for block_size in (4, MAX_LEN):
        game = _Game(subject(), SHAPES[1], block_size, seed=2)
        sequences = [game.start() for _ in range(4)]
        game.step([(s, 8) for s in sequences])
        game.step([(s, 1) for s in sequences])
        game.step([(sequences[0], 1), (sequences[2], 1)])
        game.step([(s, 1) for s in sequences])


def check_blocks_shared_with_another_sequence(subject):
    game = _Game(subject(), SHAPES[1], 4, seed=3)
    parent = game.start()
    game.step([(parent, 13)])
    one, two = game.fork(parent, 3), game.fork(parent, 1)
    game.step([(parent, 1), (one, 1), (two, 6)])
    game.step([(parent, 1), (one, 3), (two, 1)])


def check_blocks_shared_in_the_step_that_computes_them(subject):
    """A prefix that two requests of one step have in common is computed once: all is written before anything is read."""
    for n in (1, 5):
        game = _Game(subject(), SHAPES[1], 4, seed=4)
        parent = game.start()
        child = game.fork(parent, 2)
        game.step([(parent, 9), (child, n)])


def check_a_sliding_window(subject):
    for window in (1, 3, 16, MAX_LEN, 100):
        _Game(subject(), SHAPES[1], 4, seed=5, window=window).play(8)


def check_random_schedules(subject):
    for seed in range(40):
        _Game(subject(), SHAPES[seed % 4], (1, 4, 16, MAX_LEN)[seed // 4 % 4], seed=100 + seed).play(10)


def check_half_precision(subject):
    for dtype, atol in ((torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
        for seed in range(4):
            _Game(subject(), SHAPES[1], (4, 16)[seed % 2], seed=200 + seed, dtype=dtype, atol=atol).play(8)


def check_one_plan_serves_every_layer(subject):
    game = _Game(subject(), SHAPES[1], 4, seed=6)
    chunks = [(game.start(), 1), (game.start(), 6)]
    attend = game.backend.plan(game._metadata(chunks), game.scale, None)
    for _ in range(2):
        q, k, v = game.randn(7, 6, 8), game.randn(7, 2, 8), game.randn(7, 2, 8)
        got = attend(q, k, v, torch.full_like(game.cache, GARBAGE))
        want = torch.cat([dense_attention(q[r], k[r], v[r], game.scale) for r in (slice(0, 1), slice(1, 7))])
        assert (got.double() - want).abs().max() <= game.atol, "the second layer of a step read what the first had left"
