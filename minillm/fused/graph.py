"""A decode step of the fused decoder as one function of tensors, for a CUDA graph to record."""

from __future__ import annotations

from torch import Tensor

from minillm.fused.decoder import FusedDecoder
from minillm.kernels.kv_write import kv_write
from minillm.kernels.paged_decode import paged_decode
from minillm.kv.storage import keys, values


class FusedDecodeGraph:
    """One new token for each of B sequences. Where they lie and how long they are is data; what a launch looks like depends on
    shapes alone. So one recording serves every length up to max_seq_len: a short sequence leaves pieces of its grid empty."""

    def __init__(self, decoder: FusedDecoder, max_seq_len: int):
        self.decoder, self.max_seq_len = decoder, max_seq_len

    def __call__(self, token_ids: Tensor, positions: Tensor, block_tables: Tensor, kv_cache: list[Tensor]) -> Tensor:
        """As minillm.compiled.graph.DecodeGraph: token_ids, positions [B] int64, block_tables [B, W] int64 to normed hidden
        states [B, hidden_size]."""
        config, block_size = self.decoder.config, kv_cache[0].shape[-1]
        block = block_tables.gather(1, positions[:, None] // block_size)[:, 0]
        slots, seq_lens = block * block_size + positions % block_size, (positions + 1).int()

        def attend(q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
            kv_write(k, v, cache, slots)
            return paged_decode(
                q, keys(cache), values(cache), block_tables, seq_lens, self.max_seq_len,
                scale=config.head_dim**-0.5, sliding_window=config.sliding_window,
            )  # fmt: skip

        return self.decoder.run(token_ids, positions, kv_cache, attend)
