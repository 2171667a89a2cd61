"""Which tensors a checkpoint must hold: Hugging Face names and shapes, derived from the configuration alone."""

from __future__ import annotations

from collections.abc import Mapping

from minillm.config import ModelConfig
from minillm.errors import CheckpointError

Shape = tuple[int, ...]

# Kept by older exporters though they can be computed: RoPE's frequencies and the causal mask.
_DERIVED_SUFFIXES = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Name -> shape of every weight, in the order of the forward pass. A linear's weight is [out_features, in_features]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    tensors: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}

    def linear(name: str, out_features: int, in_features: int, bias: bool) -> None:
        tensors[f"{name}.weight"] = (out_features, in_features)
        if bias:
            tensors[f"{name}.bias"] = (out_features,)

    for i in range(config.num_layers):
        layer = f"model.layers.{i}"
        tensors[f"{layer}.input_layernorm.weight"] = (hidden,)
        linear(f"{layer}.self_attn.q_proj", q, hidden, config.qkv_bias)
        linear(f"{layer}.self_attn.k_proj", kv, hidden, config.qkv_bias)
        linear(f"{layer}.self_attn.v_proj", kv, hidden, config.qkv_bias)
        linear(f"{layer}.self_attn.o_proj", hidden, q, config.o_bias)
        if config.qk_norm:
            tensors[f"{layer}.self_attn.q_norm.weight"] = (config.head_dim,)
            tensors[f"{layer}.self_attn.k_norm.weight"] = (config.head_dim,)
        tensors[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
        linear(f"{layer}.mlp.gate_proj", inner, hidden, config.mlp_bias)
        linear(f"{layer}.mlp.up_proj", inner, hidden, config.mlp_bias)
        linear(f"{layer}.mlp.down_proj", hidden, inner, config.mlp_bias)
    tensors["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        tensors["lm_head.weight"] = (config.vocab_size, hidden)
    return tensors


def check_names(config: ModelConfig, found: Mapping[str, Shape], where: str) -> None:
    """Raise CheckpointError naming the first tensor that is missing, misshapen or unknown.

    A stored lm_head beside tied embeddings and tensors that can be recomputed are allowed; `weights()` leaves them out.
    """
    expected = expected_tensors(config)
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(f"{where}: tensor {name} is missing; fetch the checkpoint again, or correct its config.json")
        if tuple(found[name]) != shape:
            got = list(found[name])
            raise CheckpointError(f"{where}: {name} is {got}, but config.json asks for {list(shape)}; do they belong together?")
    for name in found:
        if name not in expected and not _ignorable(name, config):
            raise CheckpointError(f"{where}: {name} has no place in {config.model_type}; this is not a plain dense checkpoint")


def _ignorable(name: str, config: ModelConfig) -> bool:
    return name.endswith(_DERIVED_SUFFIXES) or (name == "lm_head.weight" and config.tie_word_embeddings)
