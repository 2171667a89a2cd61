"""The GPU's backend: our Triton kernels over the paged cache, which neither gather K and V nor wait for the GPU.

Decodes share one launch that cuts long sequences into pieces, everything else shares another (minillm.kernels.paged_decode and
paged_attention). What they need to know of a step goes to the device once, in `plan`. A layer's attention is then launches only,
whose grids follow from lengths known here: it can be recorded in a CUDA graph.

Without a GPU the kernels run in Triton's interpreter: correct, and thousands of times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.errors import ConfigError
from minillm.kv.storage import keys, values, write_kv


@dataclass(frozen=True)
class _Kernels:
    kv_write: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    paged_attention: Callable[..., Tensor]
    paged_decode: Callable[..., Tensor]


class TritonAttention:
    """Raises ConfigError where Triton is not installed: only now is it imported, so that minillm does without it."""

    def __init__(self):
        try:
            from minillm.kernels.kv_write import kv_write
            from minillm.kernels.paged_attention import paged_attention
            from minillm.kernels.paged_decode import paged_decode
        except ModuleNotFoundError as e:
            if e.name != "triton":
                raise
            raise ConfigError(
                "--attention triton needs Triton, which exists for Linux only: pip install triton, or choose --attention sdpa"
            ) from e
        self._kernels = _Kernels(kv_write, paged_attention, paged_decode)

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        return _Step(self._kernels, meta, scale, sliding_window)


class _Step:
    """One step's metadata on the device, used by every layer."""

    def __init__(self, kernels: _Kernels, meta: AttentionMetadata, scale: float, sliding_window: int | None):
        self.kernels = kernels
        self.score = {"scale": scale, "sliding_window": sliding_window}
        self.slot_mapping = meta.slot_mapping
        self.num_decodes = n = meta.num_decodes
        # the kernel's blocks have a power of two of slots; a contiguous cache has one block a sequence, as long as it likes
        self.write = kernels.kv_write if meta.block_size & (meta.block_size - 1) == 0 else write_kv
        numbers = {"dtype": torch.int32, "device": meta.block_tables.device}
        seq_lens = torch.tensor(meta.seq_lens, **numbers)
        self.decode = self.prefill = None
        if n:
            self.decode = meta.block_tables[:n], seq_lens[:n], max(meta.seq_lens[:n])
        if n < meta.num_seqs:
            starts = [start - n for start in meta.query_start_loc[n:]]
            longest = max(end - start for start, end in pairwise(starts))
            self.prefill = meta.block_tables[n:], torch.tensor(starts, **numbers), seq_lens[n:], longest

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
        self.write(k, v, cache, self.slot_mapping)
        held, n, out = (keys(cache), values(cache)), self.num_decodes, torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if self.decode:
            self.kernels.paged_decode(q[:n], *held, *self.decode, **self.score, out=out[:n])
        if self.prefill:
            self.kernels.paged_attention(q[n:], *held, *self.prefill, **self.score, out=out[n:])
        return out
