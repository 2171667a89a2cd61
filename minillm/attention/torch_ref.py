"""The readable backend: one sequence at a time, straight from the definition. The oracle for the faster ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.kv.storage import keys, values, write_kv
from minillm.model.ops import gqa_attention


class TorchAttention:
    def __init__(self, gqa_attention: Callable[..., Tensor] = gqa_attention):
        """gqa_attention: as minillm.model.ops.gqa_attention, the part `ops.gqa_attention`: attention of one sequence."""
        self.gqa_attention = gqa_attention

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        return partial(_attend, meta=meta, gqa_attention=partial(self.gqa_attention, scale=scale, sliding_window=sliding_window))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, cache: Tensor, meta: AttentionMetadata, gqa_attention: Callable[..., Tensor]
) -> Tensor:
    write_kv(k, v, cache, meta.slot_mapping)
    outputs = []
    for i, seq_len in enumerate(meta.seq_lens):
        num_blocks = -(-seq_len // meta.block_size)
        held = cache[meta.block_tables[i, :num_blocks]]
        # [blocks, heads, …] to [seq_len, num_kv_heads, head_dim]
        k_seq = keys(held).permute(0, 3, 1, 2).flatten(0, 1)[:seq_len]
        v_seq = values(held).transpose(1, 2).flatten(0, 1)[:seq_len]
        queries = q[meta.query_start_loc[i] : meta.query_start_loc[i + 1]]
        outputs.append(gqa_attention(queries, k_seq, v_seq))
    return torch.cat(outputs)
