"""The map: four numbers worth having in the head before the rest of the course.

Write the functions below, then run `labs check start` (or `pytest labs/start`). Stuck? `labs hint start`.
Each takes one to five lines. None needs a GPU, a model or an import.
"""

from __future__ import annotations

from labs.kit import exercise


@exercise(reference="shared.roofline:ridge_point")
def ridge_point(peak_flops: float, bandwidth: float) -> float:
    """The arithmetic intensity, in FLOP per byte, at which a machine's computing and its memory take equally long.

    Work with fewer FLOPs per byte than this waits for memory; work with more waits for the arithmetic units.

    peak_flops: FLOP/s, dense, for the number format in use.
    bandwidth: bytes/s between memory and chip.
    Returns FLOP/byte, not rounded. Raises ValueError unless both are above zero.

    An RTX 4090 in bf16, 165.2e12 FLOP/s and 1.008e12 bytes/s, has its ridge at 163.9.
    Source: Williams, Waterman, Patterson, "Roofline", 2009.
    """
    raise NotImplementedError


@exercise(reference="shared.budget:kv_bytes_per_token")
def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, bytes_per_element: float = 2) -> float:
    """Bytes of KV cache that one token takes: a key and a value for each layer and each key-value head.

    num_layers: decoder layers.
    num_kv_heads: heads of keys and values, not of queries; with grouped-query attention there are fewer.
    head_dim: elements of one head; a key has as many, and so has a value.
    bytes_per_element: 2 for bf16 and fp16, 1 for fp8, 0.5 for 4 bit, 0.5625 where blocks of 32 share a 16-bit scale.
    Returns bytes, not rounded: a token may take a part of a byte. Raises ValueError unless each of the four is above zero.

    Llama-3.1-8B has 32 layers, 8 key-value heads and 128 elements a head: 131,072 bytes a token in bf16.
    """
    raise NotImplementedError


@exercise(reference="shared.budget:kv_token_budget")
def kv_token_budget(
    memory_bytes: float,
    weight_bytes: float,
    bytes_per_token: float,
    *,
    overhead_bytes: float = 0,
    gpu_memory_utilization: float = 1.0,
) -> int:
    """Tokens of KV cache that fit beside the weights, for all requests together.

    memory_bytes: all the memory of the card.
    weight_bytes: what the model's weights take of it.
    bytes_per_token: of KV cache; need not be a whole number.
    overhead_bytes: what else the engine needs: numbers in flight between layers, the driver, libraries.
    gpu_memory_utilization: the share of memory_bytes that the engine may take in all: weights, overhead and cache together fit
        into that share. Above 0, at most 1.

    Returns whole tokens, an int: a token that does not fit entirely does not fit. 0 where there is no room for any.
    Raises ValueError if memory_bytes, weight_bytes or bytes_per_token is not above zero, overhead_bytes is negative, or
    gpu_memory_utilization lies outside its range.

    16,060,522,496 bytes of weights and 131,072 bytes a token on 24,564 MiB, of which the engine may take 0.92 and needs 1e9
    itself: 50,629 tokens.
    """
    raise NotImplementedError


@exercise(reference="shared.cost:bot_cost")
def bot_cost(
    num_requests: int,
    prompt_tokens: int,
    prefix_tokens: int,
    answer_tokens: int,
    *,
    input_price: float,
    cached_price: float,
    output_price: float,
    reasoning_tokens: int = 0,
    hit_rate: float = 1.0,
) -> float:
    """What a chat bot's requests cost, in US dollars, at a provider that bills a cached prefix of the prompt at a lower price.

    num_requests: how many requests, all alike.
    prompt_tokens: tokens of one prompt, the prefix included.
    prefix_tokens: tokens at the start of the prompt that are the same in every request, 0 if each begins differently. Only
        these can be found in the provider's cache.
    answer_tokens: tokens of one answer, as the user sees it.
    input_price, cached_price, output_price: US dollars per million tokens of prompt, of cached prompt, of output. A token of
        the prompt is billed once: at the cached price if it was found in the cache, else at the input price.
    reasoning_tokens: tokens the model thinks before it answers; they are billed as output, though the user never sees them.
    hit_rate: the share of requests that find the prefix in the cache, 0 to 1; the others pay the full input price for it.

    Returns the sum for all requests, not rounded. Counts and prices of zero are fine: no requests, or prompts and answers of no
    tokens, cost 0. A cached price above the input price is unusual, and billed as it stands.
    Raises ValueError if a count or price is negative, prefix_tokens is more than prompt_tokens, or hit_rate is outside 0 to 1.

    1,000 requests of 3,200 tokens with 300 tokens of answer each, at 0.55, 0.14 and 2.19 dollars: 2.417 dollars without a common
    prefix, 1.187 with one of 3,000 tokens.
    """
    raise NotImplementedError
