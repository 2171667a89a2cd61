"""Does it fit, and for how many? A card's memory as six terms, and a cache's memory as so many users.

    budget = memory_budget(24_564 * 2**20, linear, other, activation_bytes=0.2e9, runtime_bytes=RUNTIME_BYTES)
    max_concurrency(layers_of(model), budget.kv_cache, 5_000)

The first functions take plain numbers; step_bytes and adapter_bytes take a `shared.models.Model`. GB is 1e9 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shared import caches
from shared.layers import Heads, Layer, State
from shared.models import Model
from shared.units import not_negative, positive

# An estimate of what a GPU engine holds outside the tensors of a step: CUDA context and libraries, 0.35 GiB on an RTX 3090
# (vLLM issue 10517, 2024-12), and CUDA graphs, 0.13 to 0.58 GiB in vLLM's logs (mellea pull request 416, 2026-02;
# vllm-backport issue 34, 2026-08). The two upper ends make 0.93 GiB. Older logs show 2.4 GiB of graphs (vLLM issue 7553).
RUNTIME_BYTES = 1e9


class Budget(NamedTuple):
    """Where a card's memory goes, in bytes. The six add up to the card; kv_cache below zero says how much is missing."""

    weights: float
    adapters: float
    activations: float
    runtime: float
    kv_cache: float
    outside: float


def memory_budget(
    memory_bytes: float,
    linear_parameters: int,
    other_parameters: int,
    *,
    weight_bits: float = 16,
    adapter_bytes: float = 0,
    activation_bytes: float = 0,
    runtime_bytes: float = 0,
    gpu_memory_utilization: float = 0.92,
) -> Budget:
    """Divide a card's memory as an engine does: first what it must have, then everything that is left of its share for the cache.

    memory_bytes: all of the card.
    linear_parameters: weights in the layers' matrices, which a format of fewer bits shrinks to weight_bits each.
    other_parameters: embedding, output head, norms, routers. They take weight_bits too, but never fewer than 16.
    weight_bits: a group's scale and zero point make it a fraction, 4.15625 for int4 in groups of 128.
    adapter_bytes, activation_bytes, runtime_bytes: LoRA adapters; the largest step's tensors; context, libraries and graphs.
    gpu_memory_utilization: the engine's share of memory_bytes, all terms included; above 0, at most 1. A target: what is left
        of it becomes cache, however little of that is ever used.

    kv_cache may be negative: then that many bytes are missing. outside is what the engine leaves to others.
    Raises ValueError if memory_bytes, linear_parameters or weight_bits is not above zero, another amount is negative, or the
    utilization lies outside its range.
    """
    positive(memory_bytes=memory_bytes, linear_parameters=linear_parameters, weight_bits=weight_bits)
    not_negative(other_parameters=other_parameters, adapter_bytes=adapter_bytes)
    not_negative(activation_bytes=activation_bytes, runtime_bytes=runtime_bytes)
    if not 0 < gpu_memory_utilization <= 1:
        raise ValueError(f"gpu_memory_utilization is a share above 0 and at most 1, got {gpu_memory_utilization}")
    weights = (linear_parameters * weight_bits + other_parameters * max(weight_bits, 16)) / 8
    allowed = memory_bytes * gpu_memory_utilization
    left = allowed - weights - adapter_bytes - activation_bytes - runtime_bytes
    return Budget(weights, adapter_bytes, activation_bytes, runtime_bytes, left, memory_bytes - allowed)


def activation_bytes(
    num_tokens: int,
    num_seqs: int,
    *,
    hidden_size: int,
    intermediate_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    vocab_size: int,
    bytes_per_element: float = 2,
) -> float:
    """Bytes of the tensors alive at once, at the worst moment of one step of a dense decoder.

    num_tokens: rows of the step, all requests' new tokens together. num_seqs: requests among them, each of which gets logits.
    Layers run one after another and reuse the same memory, so their number does not enter. There are three candidates:

    - a layer's attention, when its output projection writes: residual, normed input and output, hidden_size each; queries,
      keys and values; the attention's output, as wide as the queries. For each token.
    - a layer's MLP, when its down projection writes: residual, normed input and output, hidden_size each; gate and up, and
      their product, intermediate_size each. For each token.
    - the head: the final hidden states of all tokens; for each request its own again, and vocab_size logits, once in the
      model's format and once in float32, 4 bytes, for the sampler.

    Kernels' scratch memory and an allocator's rounding come on top. Attention keeps its scores on the chip (FlashAttention).
    Raises ValueError for a number that is not above zero.
    """
    positive(num_tokens=num_tokens, num_seqs=num_seqs, hidden_size=hidden_size, intermediate_size=intermediate_size)
    positive(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, vocab_size=vocab_size)
    positive(bytes_per_element=bytes_per_element)
    q, kv = num_heads * head_dim, num_kv_heads * head_dim
    widths = (3 * hidden_size + 2 * q + 2 * kv, 3 * hidden_size + 3 * intermediate_size)
    return _worst_moment(num_tokens, num_seqs, widths, hidden_size, vocab_size, bytes_per_element)


def step_bytes(model: Model, num_tokens: int, num_seqs: int, bytes_per_element: float = 2) -> float:
    """activation_bytes of any model of the table.

    A MoE layer holds, for each token and each expert it chose, gate and up, their product, and an output. MLA expands a
    prompt's latents into heads, and joins each key from two parts.
    """
    positive(num_tokens=num_tokens, num_seqs=num_seqs, bytes_per_element=bytes_per_element)
    hidden = model.hidden_size
    widths = [3 * hidden + _attention_width(model)]
    if model.num_moe_layers < model.num_layers:
        widths.append(3 * hidden + 3 * model.intermediate_size)
    if moe := model.moe:
        widths.append(3 * hidden + moe.num_active * (3 * moe.expert_size + hidden) + moe.num_experts)
        widths.append(3 * hidden + 3 * moe.num_shared * moe.expert_size)
    return _worst_moment(num_tokens, num_seqs, widths, hidden, model.vocab_size, bytes_per_element)


def adapter_bytes(model: Model, rank: int, num_adapters: int = 1, bytes_per_element: float = 2) -> float:
    """Bytes of LoRA adapters on every linear layer (Hu et al., arXiv 2106.09685): A [rank, inputs] and B [outputs, rank] each.

    Raises ValueError for experts or latent attention, whose adapters are laid out in several ways, and for a rank or element
    size that is not above zero.
    """
    positive(rank=rank, bytes_per_element=bytes_per_element)
    not_negative(num_adapters=num_adapters)
    if model.moe or model.mla:
        raise ValueError(f"adapters are counted for dense models with attention heads; {model.id} has experts or latents")
    hidden, inner = model.hidden_size, model.intermediate_size
    q, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    ends = 2 * (hidden + q) + 2 * (hidden + kv) + 3 * (hidden + inner)  # q and o, k and v, gate and up and down
    return num_adapters * rank * ends * model.num_layers * bytes_per_element


def max_concurrency(
    layers: Sequence[Layer], kv_cache_bytes: float, context: int, *, block_size: int = 16, bytes_per_element: float = 2
) -> int:
    """How many requests of `context` tokens, prompt and answer together, the cache holds at once; see request_bytes.

    kv_cache_bytes: none or a negative amount holds nobody: 0. Raises ValueError for no layers, or a context, block size or
    element size that is not above zero.
    """
    return max(0, math.floor(kv_cache_bytes / request_bytes(layers, context, block_size, bytes_per_element)))


def request_bytes(layers: Sequence[Layer], context: int, block_size: int = 16, bytes_per_element: float = 2) -> float:
    """Bytes one request of `context` tokens takes of a paged cache, which is handed out in blocks of block_size tokens.

    A layer of Heads or Latent takes whole blocks for all its tokens. With a window it keeps the newest `window` tokens, which
    can touch (window - 1) / block_size blocks, rounded up, and one more. A State takes the same at any length.
    """
    positive(context=context, block_size=block_size)
    taken = caches.state_bytes(layers, bytes_per_element)
    for layer in layers:
        if not isinstance(layer, State):
            taken += _blocks(layer, context, block_size) * block_size * caches.kv_elements(layer) * bytes_per_element
    return taken


def _blocks(layer: Layer, context: int, block_size: int) -> int:
    every = math.ceil(context / block_size)
    window = layer.window if isinstance(layer, Heads) else None
    return every if window is None else min(every, math.ceil((window - 1) / block_size) + 1)


def _worst_moment(
    num_tokens: int, num_seqs: int, widths: Sequence[int], hidden_size: int, vocab_size: int, bytes_per_element: float
) -> float:
    layer = num_tokens * max(widths) * bytes_per_element
    logits = num_seqs * vocab_size * (bytes_per_element + 4)
    return max(layer, (num_tokens + num_seqs) * hidden_size * bytes_per_element + logits)


def _attention_width(model: Model) -> int:
    """Elements a token has in one layer's attention, without residual, input and output."""
    if mla := model.mla:
        key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        expanded = model.num_heads * (2 * key + mla.qk_nope_head_dim + 2 * mla.v_head_dim)  # q, k; k and v before; output
        return expanded + mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim
    return 2 * model.num_heads * model.head_dim + 2 * model.num_kv_heads * model.head_dim
