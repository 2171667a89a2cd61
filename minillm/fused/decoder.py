"""A decoder with fused operators: a layer's additions, norms, rotations and gates are 4 launches, not the 34 that torch makes.

Between two matrix products a layer does little arithmetic, and written as separate operators each of them reads and writes
the whole hidden state. Here the addition that ends one half of a layer and the norm that begins the next are one kernel, so
what travels from layer to layer is a pair: the normed state, and the residual it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.model.decoder import Decoder, DecoderLayer
from minillm.model.ops import rope_cos_sin


@dataclass(frozen=True)
class FusedOps:
    """The kernels that a fused decoder calls. The parts `kernels.<name>` of minillm.parts; contracts in minillm.kernels."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rope: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    silu_mul: Callable[[Tensor], Tensor]


class FusedDecoder:
    """A Decoder to whoever calls it: its weights, its attention backend, other operators."""

    def __init__(self, decoder: Decoder, ops: FusedOps):
        self.decoder, self.ops = decoder, ops
        self.config, self.dtype, self.device, self.attention = decoder.config, decoder.dtype, decoder.device, decoder.attention
        self.logits, self.parameters = decoder.logits, decoder.parameters

    def __call__(self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], meta: AttentionMetadata) -> Tensor:
        """As Decoder.forward."""
        attend = self.attention.plan(meta, self.config.head_dim**-0.5, self.config.sliding_window)
        return self.run(token_ids, positions, kv_cache, attend)

    def run(self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], attend: Attend) -> Tensor:
        """token_ids, positions [T] int64 to normed hidden states [T, hidden_size]."""
        decoder, layers = self.decoder, list(self.decoder.layers)
        residual = decoder.embed_tokens(token_ids)
        cos, sin = rope_cos_sin(positions, decoder.inv_freq, residual.dtype)
        norms = [*(layer.input_norm for layer in layers), decoder.norm]  # norms[i + 1] is what follows layer i
        normed = self.ops.rms_norm(residual, norms[0].weight, norms[0].eps)
        for layer, following, cache in zip(layers, norms[1:], kv_cache, strict=True):
            attended = self._attention(layer, normed, cos, sin, attend, cache)
            normed, residual = self.ops.add_rms_norm(attended, residual, layer.mlp_norm.weight, layer.mlp_norm.eps)
            fed = layer.down_proj(self.ops.silu_mul(layer.gate_up_proj(normed)))
            normed, residual = self.ops.add_rms_norm(fed, residual, following.weight, following.eps)
        return normed

    def _attention(self, layer: DecoderLayer, normed: Tensor, cos: Tensor, sin: Tensor, attend: Attend, cache: Tensor) -> Tensor:
        q, k, v = layer.qkv_proj(normed).unflatten(-1, (-1, layer.head_dim)).split(layer.heads, dim=1)
        if self.config.qk_norm:
            q = self.ops.rms_norm(q, layer.q_norm.weight, layer.q_norm.eps)
            k = self.ops.rms_norm(k, layer.k_norm.weight, layer.k_norm.eps)
        q, k = self.ops.rope(q, k, cos, sin)
        return layer.o_proj(attend(q, k, v, cache).flatten(1))
