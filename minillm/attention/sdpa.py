"""The default backend: torch's fused scaled_dot_product_attention, on a CPU or any GPU.

All decodes share one call, each prefill has its own. Neither ever copies K or V per query head: the heads that share
a key-value head are laid out so that SDPA sees ordinary attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.kv.storage import keys, values, write_kv
from minillm.model.ops import causal_mask


class SdpaAttention:
    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        return _Step(meta, scale, sliding_window)


class _Step:
    """One step's masks and cache locations, used by every layer."""

    def __init__(self, meta: AttentionMetadata, scale: float, sliding_window: int | None):
        self.scale = scale
        self.slot_mapping = meta.slot_mapping
        self.num_decodes = meta.num_decodes
        if meta.num_decodes:
            seq_lens = meta.seq_lens[: meta.num_decodes]
            self.decode_context = Context.locate(meta.block_tables[: meta.num_decodes], meta.block_size, max(seq_lens))
            self.decode_mask = _decode_mask(seq_lens, sliding_window, meta.block_tables.device)
        self.prefills = [_Prefill.of(meta, i, sliding_window) for i in range(meta.num_decodes, meta.num_seqs)]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
        write_kv(k, v, cache, self.slot_mapping)
        outputs = [self._decode(q[: self.num_decodes], cache)] if self.num_decodes else []
        outputs += [self._prefill(q[p.start : p.end], cache, p) for p in self.prefills]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _decode(self, q: Tensor, cache: Tensor) -> Tensor:
        """One query a sequence: the G heads of a group stand where SDPA expects G queries, [B, num_kv_heads, G, D]."""
        k, v = self.decode_context.read(cache)
        grouped = q.unflatten(1, (k.shape[1], -1))
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=self.decode_mask, scale=self.scale)
        return out.reshape(q.shape)

    def _prefill(self, q: Tensor, cache: Tensor, p: _Prefill) -> Tensor:
        """Many queries of one sequence: key-value heads stand as the batch, [num_kv_heads, G, T, D]."""
        k, v = (x[0][:, None] for x in p.context.read(cache))
        grouped = q.unflatten(1, (len(k), -1)).permute(1, 2, 0, 3)
        k, v = (x.expand(-1, grouped.shape[1], -1, -1) for x in (k, v))
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=p.mask, is_causal=p.mask is None, scale=self.scale)
        return out.permute(2, 0, 1, 3).reshape(q.shape)


def _decode_mask(seq_lens: list[int], sliding_window: int | None, device: torch.device) -> Tensor | None:
    """[B, 1, 1, longest] bool, True where the newest token of each sequence looks; None if that is everywhere."""
    longest = max(seq_lens)
    if min(seq_lens) == longest and not _window_cuts(sliding_window, longest):
        return None
    position = torch.arange(longest, device=device)
    end = torch.tensor(seq_lens, device=device)[:, None]
    mask = position < end
    if sliding_window is not None:
        mask &= position >= end - sliding_window
    return mask[:, None, None]


def _window_cuts(sliding_window: int | None, seq_len: int) -> bool:
    return sliding_window is not None and sliding_window < seq_len


@dataclass(frozen=True)
class _Prefill:
    start: int  # first row of its queries in the flat batch
    end: int
    context: Context
    mask: Tensor | None  # [T, seq_len] bool; None: plainly causal from the sequence's first token

    @classmethod
    def of(cls, meta: AttentionMetadata, i: int, sliding_window: int | None) -> _Prefill:
        start, end = meta.query_start_loc[i : i + 2]
        seq_len, num_queries = meta.seq_lens[i], end - start
        # SDPA's is_causal aligns the first query with the first key, so a later chunk needs its mask written out.
        plain = num_queries == seq_len and not _window_cuts(sliding_window, seq_len)
        mask = None if plain else causal_mask(num_queries, seq_len, sliding_window, meta.block_tables.device)
        return cls(start, end, Context.locate(meta.block_tables[i : i + 1], meta.block_size, seq_len), mask)


@dataclass(frozen=True)
class Context:
    """Where the first `length` tokens of some sequences lie: in consecutive blocks, one a sequence, or scattered.

    Located once a step; `read` then costs each layer a view in the first case, and a copy of all of it (a gather) in the second.
    """

    num_seqs: int
    length: int
    first_block: int | None  # not None: sequence i lies in block first_block + i, read without a copy
    blocks: Tensor  # [num_seqs * blocks per sequence]

    @classmethod
    def locate(cls, block_tables: Tensor, block_size: int, length: int) -> Context:
        blocks = block_tables[:, : -(-length // block_size)]
        first = None
        if blocks.shape[1] == 1:
            ids = blocks.flatten().tolist()
            if ids == list(range(ids[0], ids[0] + len(ids))):
                first = ids[0]
        return cls(len(blocks), length, first, blocks.flatten())

    def read(self, cache: Tensor) -> tuple[Tensor, Tensor]:
        """K and V, each [num_seqs, num_kv_heads, length, head_dim]; slots past a sequence's end hold whatever they hold."""
        if self.first_block is not None:
            rows = cache[self.first_block : self.first_block + self.num_seqs]
            return keys(rows).transpose(2, 3)[:, :, : self.length], values(rows)[:, :, : self.length]
        held = cache.index_select(0, self.blocks)
        by_seq = (self.num_seqs, -1)
        k = keys(held).unflatten(0, by_seq).permute(0, 2, 1, 4, 3).flatten(2, 3)
        v = values(held).unflatten(0, by_seq).transpose(1, 2).flatten(2, 3)
        return k[:, :, : self.length], v[:, :, : self.length]
