"""A decode step as one function of tensors: what a compiler or a CUDA graph needs.

The decoder's own layers run; only attention differs. Everything that changes from step to step (which blocks, how long each
sequence is) is data in a tensor, nothing is a Python number, and no shape depends on it but the width of the block table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minillm.kv.storage import keys, values
from minillm.model.decoder import Decoder
from minillm.model.ops import rope_cos_sin


class DecodeGraph(nn.Module):
    """One new token for each of B sequences."""

    def __init__(self, decoder: Decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, token_ids: Tensor, positions: Tensor, block_tables: Tensor, kv_cache: list[Tensor]) -> Tensor:
        """token_ids, positions [B] int64; block_tables [B, W] int64; kv_cache as Decoder.forward's, extended in place.
        Returns the normed hidden states [B, hidden_size]."""
        decoder = self.decoder
        x = decoder.embed_tokens(token_ids)
        cos, sin = rope_cos_sin(positions, decoder.inv_freq, x.dtype)
        step = DecodeAttention(positions, block_tables, kv_cache[0].shape, decoder.config.sliding_window)
        for layer, cache in zip(decoder.layers, kv_cache, strict=True):
            x = layer(x, cos, sin, step.attend, cache)
        return decoder.norm(x)


class HeadGraph(nn.Module):
    """Hidden states [B, hidden_size] to logits [B, vocab_size] float32."""

    def __init__(self, decoder: Decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder.logits(hidden)


class DecodeAttention:
    """Attention of one query a sequence over its blocks, in plain arithmetic, written for a compiler that fuses it.

    Inductor turns each of the two sums into one loop that reads the blocks where they lie: gathering, conversion to float32
    and multiplication happen in registers. Scores are vectorised over the tokens of a block, outputs over head_dim, which is
    why storage keeps keys and values in different orders. The division by the softmax's sum is left to the end, where it is
    head_dim numbers a head instead of one a token.
    """

    def __init__(self, positions: Tensor, block_tables: Tensor, cache_shape: torch.Size, sliding_window: int | None):
        self.tables = block_tables
        _, _, kv_heads, dim, block_size = cache_shape
        self.places = _places(positions, block_tables, kv_heads, dim, block_size)
        token = torch.arange(block_tables.shape[1] * block_size, device=positions.device)
        visible = token <= positions[:, None]
        if sliding_window is not None:
            visible = visible & (token > positions[:, None] - sliding_window)
        self.visible = visible[:, None, None]  # [B, 1, 1, W * block_size]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
        """As Attend, for T = B sequences."""
        # one write to the whole tensor: the compiler does that in place, while of writes to parts of it it makes copies
        cache.view(-1).index_put_((self.places,), torch.stack([k, v], dim=1))
        (batch, width), (kv_heads, dim, block_size) = self.tables.shape, cache.shape[-3:]
        group = q.shape[1] // kv_heads
        held_k = keys(cache)[self.tables].transpose(1, 2).float()  # [B, kv_heads, W, D, block_size]
        held_v = values(cache)[self.tables].transpose(1, 2).float()  # [B, kv_heads, W, block_size, D]
        query = (q.float() * dim**-0.5).view(batch, kv_heads, group, 1, dim, 1)
        # one sum for each query head of a group: as one tensor, inductor would write all products to memory
        scores = torch.stack([(query[:, :, g] * held_k).sum(3) for g in range(group)], dim=2).flatten(3)
        scores = scores.masked_fill(~self.visible, -torch.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        total = weights.sum(-1, keepdim=True)
        weights = weights.view(batch, kv_heads, group, width, block_size, 1)
        out = torch.stack([(weights[:, :, g] * held_v).sum((2, 3)) for g in range(group)], dim=2)
        return (out / total).to(q.dtype).view(q.shape)


def _places(positions: Tensor, block_tables: Tensor, kv_heads: int, dim: int, block_size: int) -> Tensor:
    """Where in a layer's memory, as one row of numbers, each new key and value goes: [B, 2, kv_heads, dim] int64."""
    block, offset = block_tables.gather(1, positions[:, None] // block_size), (positions % block_size)[:, None, None]
    head, d = torch.arange(kv_heads, device=positions.device), torch.arange(dim, device=positions.device)
    key_head = ((block * 2 * kv_heads + head) * dim * block_size)[..., None]
    value_head = key_head + kv_heads * dim * block_size
    return torch.stack([key_head + d * block_size + offset, value_head + offset * dim + d], dim=1)
