"""Kinds of attention layers, by what they keep of a sequence; shared/caches.py counts it.

    layers_of(models.load("deepseek-v3"))       61 times Latent(kv_lora_rank=512, qk_rope_head_dim=64)

A model of one kind of layer, or a hybrid: any sequence of Heads, Latent and State.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.models import Model


@dataclass(frozen=True)
class Heads:
    """Keys and values of each key-value head: multi-head attention with as many as queries, grouped-query attention with
    fewer, multi-query attention with one. window: the layer keeps the newest so many tokens; None: all of them."""

    num_kv_heads: int
    head_dim: int
    window: int | None = None


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent for all heads' keys and values, one rotary key."""

    kv_lora_rank: int
    qk_rope_head_dim: int


@dataclass(frozen=True)
class State:
    """Linear attention: a key_dim x value_dim matrix a head, changed by every token, and the last conv_kernel - 1 inputs of a
    convolution over conv_channels channels (0: there is none)."""

    num_heads: int
    key_dim: int
    value_dim: int
    conv_channels: int = 0
    conv_kernel: int = 1


Layer = Heads | Latent | State


def layers_of(model: Model) -> tuple[Layer, ...]:
    """The attention layers of a model of shared.models."""
    if model.mla:
        return (Latent(model.mla.kv_lora_rank, model.mla.qk_rope_head_dim),) * model.num_layers
    full = Heads(model.num_kv_heads, model.head_dim)
    windowed = Heads(model.num_kv_heads, model.head_dim, model.sliding_window)
    return (full,) * (model.num_layers - model.num_window_layers) + (windowed,) * model.num_window_layers
