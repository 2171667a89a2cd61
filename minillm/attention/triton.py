"""The GPU's backend: our Triton kernels over the paged cache, which neither gather K and V nor wait for the GPU.

Decodes share one launch that cuts long sequences into pieces (minillm.kernels.paged_decode). Prompts all of whose tokens are in
this step need no block table: they attend to k and v as they come, in a launch of their own (minillm.kernels.flash_attention).
What is left, chunks of prompts and prompts with a known beginning, shares another (minillm.kernels.paged_attention). Each kernel
takes sequences that lie side by side. So where new prompts stand between others, all of them go the way of the chunks: to gather
them would cost more than it saves.

What the kernels need to know of a step goes to the device once, in `plan`. A layer's attention is then launches only, whose grids
follow from lengths known here: it can be recorded in a CUDA graph.

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

Write = Callable[[Tensor, Tensor, Tensor, Tensor], None]


@dataclass(frozen=True)
class AttentionKernels:
    """The kernels that attention is made of. The parts `kernels.<name>` of minillm.parts; contracts in minillm.kernels."""

    flash_attention: Callable[..., tuple[Tensor, Tensor]]  # flash_attention_varlen
    paged_attention: Callable[..., Tensor]
    paged_decode: Callable[..., Tensor]


class TritonAttention:
    def __init__(self, kernels: AttentionKernels | None = None):
        """kernels: None: the references. Raises ConfigError where Triton is not installed: only now is it imported, so that
        minillm does without it."""
        try:
            from minillm.kernels.flash_attention import flash_attention_varlen
            from minillm.kernels.kv_write import kv_write
            from minillm.kernels.paged_attention import paged_attention
            from minillm.kernels.paged_decode import paged_decode
        except ModuleNotFoundError as e:
            if e.name != "triton":
                raise
            raise ConfigError(
                "--attention triton needs Triton, which exists for Linux only: pip install triton, or choose --attention sdpa"
            ) from e
        self.kernels = kernels or AttentionKernels(flash_attention_varlen, paged_attention, paged_decode)
        self.kv_write: Write = kv_write

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        # the kernel's blocks have a power of two of slots; a contiguous cache has one block a sequence, as long as it likes
        write = self.kv_write if meta.block_size & (meta.block_size - 1) == 0 else write_kv
        return _Step(self.kernels, write, meta, scale, sliding_window)


class _Step:
    """One step's metadata on the device, used by every layer."""

    def __init__(
        self, kernels: AttentionKernels, write: Write, meta: AttentionMetadata, scale: float, sliding_window: int | None
    ):
        self.kernels, self.write, self.slot_mapping = kernels, write, meta.slot_mapping
        self.score = {"scale": scale, "sliding_window": sliding_window}
        numbers = {"dtype": torch.int32, "device": meta.block_tables.device}
        seq_lens = torch.tensor(meta.seq_lens, **numbers)
        self.decode = self.fresh = self.chunks = None
        if n := meta.num_decodes:
            self.decode = slice(n), (meta.block_tables[:n], seq_lens[:n], max(meta.seq_lens[:n]))
        fresh, chunks = _fresh_and_chunks(meta)
        if fresh:
            rows, starts, longest = _tokens(meta, fresh)
            ends = torch.tensor(starts, **numbers)
            self.fresh = rows, (ends, ends, longest)
        if chunks:
            rows, starts, longest = _tokens(meta, chunks)
            held = slice(chunks.start, chunks.stop)
            self.chunks = rows, (meta.block_tables[held], torch.tensor(starts, **numbers), seq_lens[held], longest)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
        self.write(k, v, cache, self.slot_mapping)
        if self.fresh and not self.decode and not self.chunks:
            return self._attend_fresh(q, k, v)
        held, out = (keys(cache), values(cache)), torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for kernel, part in ((self.kernels.paged_decode, self.decode), (self.kernels.paged_attention, self.chunks)):
            if part:
                rows, sequences = part
                kernel(q[rows], *held, *sequences, **self.score, out=out[rows])
        if self.fresh:
            rows, _ = self.fresh
            out[rows] = self._attend_fresh(q[rows], k[rows], v[rows])
        return out

    def _attend_fresh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        _, sequences = self.fresh
        return self.kernels.flash_attention(q, k, v, *sequences, **self.score)[0]


def _fresh_and_chunks(meta: AttentionMetadata) -> tuple[range, range]:
    """The sequences behind the decodes in two ranges, either of which may be empty: those whose every token is in this step, if
    they stand before or behind all others, and the rest."""
    first, last = meta.num_decodes, meta.num_seqs
    lengths = [end - start for start, end in pairwise(meta.query_start_loc)]
    is_fresh = [length == seq_len for length, seq_len in zip(lengths, meta.seq_lens, strict=True)][first:]
    count = sum(is_fresh)
    if all(is_fresh[:count]):
        return range(first, first + count), range(first + count, last)
    if all(is_fresh[len(is_fresh) - count :]):
        return range(last - count, last), range(first, last - count)
    return range(0), range(first, last)


def _tokens(meta: AttentionMetadata, sequences: range) -> tuple[slice, list[int], int]:
    """Of sequences side by side: their rows of the batch, where in these each ends, after a 0, and the longest's tokens."""
    starts = meta.query_start_loc[sequences.start : sequences.stop + 1]
    longest = max(end - start for start, end in pairwise(starts))
    return slice(starts[0], starts[-1]), [start - starts[0] for start in starts], longest
