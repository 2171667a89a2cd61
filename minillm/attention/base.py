"""What an attention backend is given and what it must return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass
class AttentionMetadata:
    """Where each token of a flat batch belongs: B sequences, T tokens, one after the other, decodes first.

    A sequence's keys and values lie in blocks of `block_size` slots; slot = block id * block_size + offset.
    """

    query_start_loc: list[int]  # B + 1 offsets into the T tokens
    seq_lens: list[int]  # B: tokens whose K and V exist after this step (computed before, plus this step's)
    block_tables: Tensor  # [B, W] int64 block ids, padded with 0
    slot_mapping: Tensor  # [T] int64: the slot to which each token's K and V are written
    block_size: int
    num_decodes: int  # the first so many sequences have exactly one token in this batch

    @property
    def num_seqs(self) -> int:
        return len(self.seq_lens)


class Attend(Protocol):
    """Causal grouped-query attention of one step's tokens over one layer's cache, which it first extends by them."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
        """q [T, num_heads, head_dim]; k, v [T, num_kv_heads, head_dim]; cache [num_blocks, 2, num_kv_heads, head_dim,
        block_size] of one layer, written in place (see minillm.kv.storage). Token i of a sequence sees that sequence's
        tokens up to and including itself. Returns [T, num_heads, head_dim] in q's dtype.

        Slots that hold no token of the sequence may hold anything finite; it must not reach the result."""
        ...


class AttentionBackend(Protocol):
    """Makes one `Attend` for each step, so that masks and indices are built once, not once per layer."""

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        """scale: the factor on q·k, usually head_dim ** -0.5. sliding_window: how many tokens back each token sees,
        itself included; None means all. Both belong to the model and may differ between layers of one step."""
        ...
