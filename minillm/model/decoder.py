"""Llama, SmolLM2, Mistral, Qwen2 and Qwen3: one dense decoder, whose differences are flags of ModelConfig."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from minillm.attention.base import Attend, AttentionBackend, AttentionMetadata
from minillm.config import ModelConfig
from minillm.model.linear import Linear, LinearMethod, Rows, Unquantized
from minillm.model.ops import Ops, rope_cos_sin, rope_frequencies
from minillm.model.weights import copy_weights


class Decoder(nn.Module):
    """Token ids to hidden states to logits, over a flat batch of sequences.

    The weights are uninitialised memory until `load_weights` has filled them.
    """

    def __init__(
        self,
        config: ModelConfig,
        attention: AttentionBackend,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        linear_method: LinearMethod | None = None,
        ops: Ops | None = None,
    ):
        """linear_method: how every matrix but the embedding is stored; None: unquantized. ops: None: the reference operators."""
        super().__init__()
        self.config = config
        self.attention = attention
        factory = {"dtype": dtype, "device": device}
        method, ops = linear_method or Unquantized(), ops or Ops()
        # given as a weight: nn.Embedding would fill its own with random numbers, and torch's skip_init loads its whole compiler
        self.embed_tokens = nn.Embedding.from_pretrained(torch.empty(config.vocab_size, config.hidden_size, **factory))
        self.layers = nn.ModuleList(DecoderLayer(config, method, factory, ops) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, factory, ops)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, False, method, factory)
        self._shares_embedding = config.tie_word_embeddings and isinstance(method, Unquantized)
        if self._shares_embedding:
            self.lm_head.weight = self.embed_tokens.weight
        inv_freq = rope_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self.register_buffer("inv_freq", inv_freq.to(device), persistent=False)
        self.requires_grad_(False)

    def forward(self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], meta: AttentionMetadata) -> Tensor:
        """token_ids, positions [T] int64; kv_cache: a tensor a layer (see minillm.kv.storage), extended
        in place. Returns the normed hidden states [T, hidden_size] in the model's dtype."""
        x = self.embed_tokens(token_ids)
        cos, sin = rope_cos_sin(positions, self.inv_freq, x.dtype)
        attend = self.attention.plan(meta, self.config.head_dim**-0.5, self.config.sliding_window)
        for layer, cache in zip(self.layers, kv_cache, strict=True):
            x = layer(x, cos, sin, attend, cache)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [S, hidden_size], the rows from which a token is to be chosen. Returns [S, vocab_size] float32."""
        return self.lm_head(hidden).float()

    @property
    def dtype(self) -> torch.dtype:
        return self.norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.norm.weight.device

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Fill every parameter from (Hugging Face name, tensor) pairs, taken one at a time and cast to the model's dtype.

        Raises CheckpointError naming the first tensor that is missing, unknown, repeated or of the wrong shape.
        """
        copy_weights(weights, self._checkpoint_tensors())
        if (
            self.config.tie_word_embeddings and not self._shares_embedding
        ):  # rows are looked up in one form, multiplied in another
            self.lm_head.rows([self.config.vocab_size])[0].copy_(self.embed_tokens.weight)

    def _checkpoint_tensors(self) -> dict[str, Tensor | Rows]:
        """Each tensor name of a Hugging Face checkpoint, and the (part of a) parameter it fills."""
        tensors: dict[str, Tensor | Rows] = {
            "model.embed_tokens.weight": self.embed_tokens.weight,
            "model.norm.weight": self.norm.weight,
        }
        if not self.config.tie_word_embeddings:
            tensors["lm_head.weight"] = self.lm_head.rows([self.config.vocab_size])[0]
        for i, layer in enumerate(self.layers):
            tensors |= {f"model.layers.{i}.{name}": tensor for name, tensor in layer.checkpoint_tensors().items()}
        return tensors


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, method: LinearMethod, factory: dict, ops: Ops | None = None):
        super().__init__()
        c, self.ops = config, ops or Ops()
        self.head_dim, self.heads = c.head_dim, [c.num_heads, c.num_kv_heads, c.num_kv_heads]
        self.input_norm = RMSNorm(c.hidden_size, c.rms_norm_eps, factory, self.ops)
        self.qkv_proj = Linear(c.hidden_size, sum(self.heads) * c.head_dim, c.qkv_bias, method, factory)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps, factory, self.ops) if c.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps, factory, self.ops) if c.qk_norm else nn.Identity()
        self.o_proj = Linear(c.num_heads * c.head_dim, c.hidden_size, c.o_bias, method, factory)
        self.mlp_norm = RMSNorm(c.hidden_size, c.rms_norm_eps, factory, self.ops)
        self.gate_up_proj = Linear(c.hidden_size, 2 * c.intermediate_size, c.mlp_bias, method, factory)
        self.down_proj = Linear(c.intermediate_size, c.hidden_size, c.mlp_bias, method, factory)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend, cache: Tensor) -> Tensor:
        """x [T, hidden_size] to the same shape."""
        q, k, v = self.before_attention(x, cos, sin)
        return self.after_attention(x, attend(q, k, v, cache))

    def before_attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [T, num_heads, head_dim]; keys and values [T, num_kv_heads, head_dim]."""
        q, k, v = self.qkv_proj(self.input_norm(x)).unflatten(-1, (-1, self.head_dim)).split(self.heads, dim=1)
        return self.ops.rope(self.q_norm(q), cos, sin), self.ops.rope(self.k_norm(k), cos, sin), v

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """x, what the layer began with, and attention's [T, num_heads, head_dim] to what the layer returns."""
        x = x + self.o_proj(attended.flatten(1))
        gate, up = self.gate_up_proj(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down_proj(self.ops.swiglu(gate, up))

    def checkpoint_tensors(self) -> dict[str, Tensor | Rows]:
        """As Decoder's, below `model.layers.N.`; the fused projections appear as the parts a checkpoint stores."""
        q_rows, kv_rows, _ = (n * self.head_dim for n in self.heads)
        gate_rows = self.gate_up_proj.out_features // 2
        linears = {
            self.qkv_proj: {"self_attn.q_proj": q_rows, "self_attn.k_proj": kv_rows, "self_attn.v_proj": kv_rows},
            self.o_proj: {"self_attn.o_proj": self.o_proj.out_features},
            self.gate_up_proj: {"mlp.gate_proj": gate_rows, "mlp.up_proj": gate_rows},
            self.down_proj: {"mlp.down_proj": self.down_proj.out_features},
        }
        norms = {
            "input_layernorm": self.input_norm,
            "self_attn.q_norm": self.q_norm,
            "self_attn.k_norm": self.k_norm,
            "post_attention_layernorm": self.mlp_norm,
        }
        tensors: dict[str, Tensor | Rows] = {f"{name}.weight": m.weight for name, m in norms.items() if isinstance(m, RMSNorm)}
        for linear, parts in linears.items():
            tensors |= {f"{name}.weight": rows for name, rows in zip(parts, linear.rows(parts.values()), strict=True)}
            if linear.bias is not None:
                pieces = linear.bias.split(list(parts.values()))
                tensors |= {f"{name}.bias": piece for name, piece in zip(parts, pieces, strict=True)}
        return tensors


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float, factory: dict, ops: Ops):
        super().__init__()
        self.eps, self.ops = eps, ops
        self.weight = nn.Parameter(torch.empty(size, **factory))

    def forward(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, self.weight, self.eps)
