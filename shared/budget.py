"""Where the memory goes: parameters, weights, KV cache, and how many tokens and requests are left room for.

The first two functions take plain numbers; the rest take a `shared.models.Model`. GB is 1e9 bytes.
"""

from __future__ import annotations

import math

from shared import caches
from shared.layers import layers_of
from shared.models import Model
from shared.units import not_negative, positive

# Bits a weight takes in the layers' linear weights; embedding, head and norms stay at 16 bit where a format has fewer.
# A group of int4 weights shares a 16-bit scale and a 4-bit zero point (AWQ, GPTQ).
WEIGHT_BITS: dict[str, float] = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "int4-g128": 4 + 20 / 128,
    "int4-g64": 4 + 20 / 64,
    "int4-g32": 4 + 20 / 32,
}


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, bytes_per_element: float = 2) -> float:
    """Bytes of KV cache that one token takes: a key and a value for each layer and each key-value head.

    num_layers: decoder layers.
    num_kv_heads: heads of keys and values, not of queries; with grouped-query attention there are fewer.
    head_dim: elements of one head; not always hidden_size / num_heads.
    bytes_per_element: 2 for bf16 and fp16, 1 for fp8, 0.5 for 4 bit; a block's scales make it a fraction like 0.5625.
    Not rounded: a token may take a part of a byte. Raises ValueError unless each of the four is above zero.
    """
    positive(num_layers=num_layers, num_kv_heads=num_kv_heads, head_dim=head_dim, bytes_per_element=bytes_per_element)
    return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element


def kv_token_budget(
    memory_bytes: float,
    weight_bytes: float,
    bytes_per_token: float,
    *,
    overhead_bytes: float = 0,
    gpu_memory_utilization: float = 1.0,
) -> int:
    """Tokens of KV cache that fit beside the weights, for all requests together.

    memory_bytes: the card's memory. GB and GiB differ by 7 %: a "24 GB" card has 24,564 MiB, which is 25.76e9 bytes.
    weight_bytes: of the model.
    bytes_per_token: of KV cache, see kv_bytes_per_token; need not be a whole number.
    overhead_bytes: what else the engine needs: activations, CUDA context, graphs.
    gpu_memory_utilization: share of memory_bytes that the engine may take in all, weights included; above 0, at most 1.

    Whole tokens only, and 0 where the weights leave no room. Raises ValueError if memory_bytes, weight_bytes or bytes_per_token
    is not above zero, overhead_bytes is negative, or the utilization lies outside its range.
    """
    positive(memory_bytes=memory_bytes, weight_bytes=weight_bytes, bytes_per_token=bytes_per_token)
    not_negative(overhead_bytes=overhead_bytes)
    if not 0 < gpu_memory_utilization <= 1:
        raise ValueError(f"gpu_memory_utilization is a share above 0 and at most 1, got {gpu_memory_utilization}")
    left = memory_bytes * gpu_memory_utilization - weight_bytes - overhead_bytes
    return max(0, math.floor(left / bytes_per_token))


def max_requests(token_budget: int, tokens_per_request: int, block_size: int = 16) -> int:
    """How many requests of one length fit in the cache at once, each in whole blocks of block_size tokens.

    tokens_per_request: prompt and answer together, at their longest. Raises ValueError for a negative budget, or a length or
    block size that is not above zero.
    """
    not_negative(token_budget=token_budget)
    positive(tokens_per_request=tokens_per_request, block_size=block_size)
    return token_budget // block_size // math.ceil(tokens_per_request / block_size)


def parameters(model: Model) -> dict[str, int]:
    """Number of parameters by component: embedding, attention, mlp (dense, shared and routed experts), router, norms, head.

    Computed from the shapes alone. A tied head is the embedding, and counted once: its entry is 0.
    """
    layers, hidden = model.num_layers, model.hidden_size
    count = {
        "embedding": model.vocab_size * hidden,
        "attention": layers * attention_parameters(model),
        "mlp": layers * 3 * hidden * model.intermediate_size,
        "router": 0,
        "norms": (layers * model.norms_per_layer + 1) * hidden + layers * _head_norms(model),
        "head": 0 if model.tied else model.vocab_size * hidden,
    }
    if moe := model.moe:
        dense = moe.num_dense_layers * 3 * hidden * model.intermediate_size
        experts = moe.num_experts + moe.num_shared
        count["mlp"] = dense + model.num_moe_layers * experts * expert_parameters(model)
        count["router"] = model.num_moe_layers * (hidden + moe.router_bias) * moe.num_experts
    return count


def num_parameters(model: Model) -> int:
    """All of them, multi-token-prediction layers not included."""
    return sum(parameters(model).values())


def active_parameters(model: Model) -> int:
    """Parameters that take part in computing one token: all of a dense model, the routed and shared experts of a MoE."""
    total = num_parameters(model)
    if moe := model.moe:
        total -= model.num_moe_layers * (moe.num_experts - moe.num_active) * expert_parameters(model)
    return total


def linear_parameters(model: Model) -> int:
    """The matrices inside the layers, which quantized checkpoints shrink; embedding, head, router and norms stay as they are."""
    count = parameters(model)
    return count["attention"] + count["mlp"]


def weight_bytes(model: Model, dtype: str = "bf16") -> float:
    """Bytes of the weights as such a checkpoint holds them. dtype: a key of WEIGHT_BITS; raises ValueError for another."""
    if dtype not in WEIGHT_BITS:
        raise ValueError(f"there is no weight format {dtype!r}; choose one of {', '.join(WEIGHT_BITS)}")
    bits, linear = WEIGHT_BITS[dtype], linear_parameters(model)
    return (linear * bits + (num_parameters(model) - linear) * max(bits, 16)) / 8


def kv_bytes(model: Model, num_tokens: int, bytes_per_element: float = 2) -> float:
    """Bytes of KV cache of one sequence of num_tokens tokens.

    MLA keeps one latent and one rotary key a layer instead of heads; a layer with a sliding window keeps at most the window.
    Raises ValueError for a negative length, or an element size that is not above zero.
    """
    return caches.kv_bytes(layers_of(model), num_tokens, bytes_per_element)


def next_token_kv_bytes(model: Model, context: int = 0, bytes_per_element: float = 2) -> float:
    """Bytes that the cache grows by when one token follows `context` others: less once sliding windows are full."""
    return caches.kv_bytes_per_token(layers_of(model), context, bytes_per_element)


def kv_elements_per_layer(model: Model) -> int:
    """Elements one layer caches of one token."""
    return caches.kv_elements(layers_of(model)[0])


def attention_parameters(model: Model) -> int:
    """Of one layer: projections with their biases and sinks, without norms."""
    hidden, heads = model.hidden_size, model.num_heads
    if mla := model.mla:
        query = mla.q_lora_rank * (hidden + heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim))
        latent = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        return (
            query + latent + heads * mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim) + heads * mla.v_head_dim * hidden
        )
    q, kv = heads * model.head_dim, model.num_kv_heads * model.head_dim
    bias = q + 2 * kv + hidden if model.attention_bias else 0
    return hidden * (q + 2 * kv) + q * hidden + bias + (heads if model.attention_sinks else 0)


def expert_parameters(model: Model) -> int:
    """Of one expert: gate, up and down. Raises ValueError for a model without experts."""
    if model.moe is None:
        raise ValueError(f"{model.id} has no experts")
    size, hidden = model.moe.expert_size, model.hidden_size
    return 3 * hidden * size + (2 * size + hidden if model.moe.expert_bias else 0)


def _head_norms(model: Model) -> int:
    """Parameters of the norms inside one layer's attention."""
    if model.mla:
        return model.mla.q_lora_rank + model.mla.kv_lora_rank
    return 2 * model.head_dim if model.qk_norm else 0
