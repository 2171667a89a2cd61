"""Cases of attention: over whole prompts, over a chunk whose beginning is in the paged cache, and of decoding sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from minillm.kernels.flash_attention import (
    flash_attention,
    flash_attention_torch,
    flash_attention_varlen,
    flash_attention_varlen_torch,
)
from minillm.kernels.paged_attention import paged_attention, paged_attention_torch
from minillm.kernels.paged_decode import paged_decode, paged_decode_torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from minillm.kv.storage import keys, values
from on_gpu.cases import Case, randn
from on_gpu.shapes import Shape


def cases(shape: Shape, tokens: int) -> list[Case]:
    s, t, d = shape, tokens, shape.head_dim

    def prompt(dtype, device):
        return tuple(randn(1, t, heads, d, dtype=dtype, device=device) for heads in (s.heads, s.kv_heads, s.kv_heads))

    def prompts(dtype, device):
        ends = torch.tensor([0, 1, t // 3, t // 3, t], dtype=torch.int32, device=device)  # one is a token long, one empty
        return *(x[0] for x in prompt(dtype, device)), ends, ends

    def paged(seq_lens, dtype, device):
        """(K, V, block tables, lengths) of sequences whose blocks lie scattered over a cache."""
        width = -(-max(seq_lens) // s.block_size)
        blocks = torch.randperm(len(seq_lens) * width, device=device).view(len(seq_lens), width)
        layer = randn(blocks.numel() + 1, 2, s.kv_heads, d, s.block_size, dtype=dtype, device=device)
        return keys(layer), values(layer), blocks, torch.tensor(seq_lens, dtype=torch.int32, device=device)

    def chunk(dtype, device):
        ends = torch.tensor([0, t // 3, t], dtype=torch.int32, device=device)
        cache = paged([t // 3, s.context], dtype, device)
        return randn(t, s.heads, d, dtype=dtype, device=device), *cache[:3], ends, cache[3]

    def decoding(count, even, dtype, device):
        lens = [s.context if even else max(1, s.context * (i + 1) // count - i) for i in range(count)]
        return randn(count, s.heads, d, dtype=dtype, device=device), *paged(lens, dtype, device)

    def flash(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def decode(q, k, v, tables, seq_lens):
        return paged_decode(q, k, v, tables, seq_lens, s.context)

    def decode_twin(q, k, v, tables, seq_lens):
        return paged_decode_torch(q, k, v, tables, seq_lens, s.context)

    def decode_case(count, even):
        name = f"paged_decode.{count}" if even else f"paged_decode.{count}_uneven"
        moved = lambda dtype: count * (2 * s.context * s.kv_heads * d + 2 * s.heads * d) * dtype.itemsize  # noqa: E731
        return Case(name, lambda dtype, at: decoding(count, even, dtype, at), decode, decode_twin, None, moved if even else None)

    short, rest = t // 3, t - t // 3
    pairs = short * short / 2 + rest * s.context - rest * rest / 2  # of a query and a key that it sees
    return [
        Case("flash_attention", prompt, flash_attention, flash_attention_torch, flash, flops=2.0 * s.heads * t * t * d),
        Case("flash_attention_varlen", prompts, lambda *x: flash_attention_varlen(*x, t),
             lambda *x: flash_attention_varlen_torch(*x, t)),
        Case("paged_attention", chunk, lambda *x: paged_attention(*x, t), lambda *x: paged_attention_torch(*x, t),
             flops=4.0 * s.heads * d * pairs),
        decode_case(1, even=True),
        decode_case(s.batch, even=True),
        decode_case(s.batch, even=False),
    ]  # fmt: skip
