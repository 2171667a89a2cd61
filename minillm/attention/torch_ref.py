"""The readable backend: one sequence at a time, straight from the definition. The oracle for the faster ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.kv.storage import keys, values, write_kv
from minillm.model.ops import gqa_attention


class TorchAttention:
    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        return partial(_attend, meta=meta, scale=scale, sliding_window=sliding_window)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, cache: Tensor, meta: AttentionMetadata, scale: float, sliding_window: int | None
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
        outputs.append(gqa_attention(queries, k_seq, v_seq, scale, sliding_window))
    return torch.cat(outputs)
