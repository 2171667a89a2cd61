"""1.7 The memory budget: what a card's memory goes to, and how many users that leaves room for.

Write the functions below, then run `labs check 1.7` (or `pytest labs/c1/test_m07_memory_budget.py`). Stuck? `labs hint 1.7`
shows one more each time. `minillm plan` is built on these three. Plain arithmetic: no model, no GPU.

    Budget(weights, adapters, activations, runtime, kv_cache, outside)      a named tuple, bytes

A layer of a model is one of three kinds, by what it keeps of a request (`shared.layers`, all sizes in elements):

    Heads(num_kv_heads, head_dim, window=None)      a key and a value, head_dim each, for each head and token; with a window of
                                                    so many tokens, only of the newest
    Latent(kv_lora_rank, qk_rope_head_dim)          one vector of both lengths together for each token (DeepSeek's MLA)
    State(num_heads, key_dim, value_dim, ...)       linear attention: the same at any length
"""

from __future__ import annotations

from collections.abc import Sequence

from labs.kit import exercise
from shared.layers import Layer
from shared.memory_plan import Budget


@exercise(reference="shared.memory_plan:activation_bytes")
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
    """Bytes of the tensors that are alive at once, at the worst moment of one step of a dense decoder.

    num_tokens: tokens computed in the step, of all requests together.
    num_seqs: requests among them. Each gets logits for one token, its last.
    hidden_size, intermediate_size: width of the model, and of its MLP.
    num_heads, num_kv_heads, head_dim: heads of queries; heads of keys, and as many of values; elements of each.
    bytes_per_element: of all tensors but one, see below.

    The layers run one after another in the same memory, so how many there are does not matter, and neither do weights and KV
    cache, which are counted elsewhere. The worst moment is one of three:

    - in a layer's attention, when its output projection writes. Alive for each token: the residual, the projection's output and
      the layer's normed input, hidden_size elements each; its queries, keys and values; the attention's own output, as wide as
      all queries.
    - in a layer's MLP, when its down projection writes. Alive for each token: the residual, the output and the normed input,
      hidden_size each; gate, up, and the product of the two, intermediate_size each.
    - at the head. Alive: the final hidden state of each token, and again that of each request's last token, hidden_size each;
      and for each request vocab_size logits, twice: in bytes_per_element, and converted to float32 (4 bytes) for the sampler.

    Returns bytes, not rounded. Raises ValueError for a number that is not above zero.

    Llama-3.1-8B (4,096 wide, MLP 14,336, 32 heads, 8 for keys and values, 128 each, vocabulary 128,256): 20,000 tokens of one
    request take 2,211,840,000 bytes, and one token each of 256 requests takes 201,195,520.
    """
    raise NotImplementedError


@exercise(reference="shared.memory_plan:memory_budget")
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
    """Divide a card's memory as an engine does when it starts: first what it must have; all that its share leaves is cache.

    memory_bytes: the whole card.
    linear_parameters: weights in the matrices of the layers. Quantized checkpoints store these in weight_bits each.
    other_parameters: embedding, output head, norms, routers. They are stored in weight_bits too, but never in fewer than 16:
        where the matrices have 4, they have 16; where the matrices have 32, they have 32. Can be 0.
    weight_bits: need not be whole; a group of 128 int4 weights with a scale and a zero point comes to 4.15625 each.
    adapter_bytes, activation_bytes, runtime_bytes: LoRA adapters; tensors of the largest step; CUDA context, libraries, graphs.
    gpu_memory_utilization: the engine's share of memory_bytes. Everything it has, cache included, fits in that share. It is a
        target and not a limit: whatever the other terms leave of it becomes cache, even if no request will ever need so much.

    Returns Budget(weights, adapters, activations, runtime, kv_cache, outside) in bytes, not rounded:
    - outside is the part of the card that is not the engine's share, whatever the other terms are.
    - kv_cache is what remains. It is not cut off at zero: below zero, so many bytes are missing. Nothing is raised for that.
    - the six add up to memory_bytes.
    Raises ValueError if memory_bytes, linear_parameters or weight_bits is not above zero, if one of the other amounts is
    negative, or if gpu_memory_utilization is not above 0 and at most 1.

    Llama-3.1-8B has 6,979,321,856 linear and 1,050,939,392 other parameters. In int4 (4.15625 bits) that is 5.728e9 bytes, not
    the 4.015e9 of eight billion half bytes.
    """
    raise NotImplementedError


@exercise(reference="shared.memory_plan:max_concurrency")
def max_concurrency(
    layers: Sequence[Layer], kv_cache_bytes: float, context: int, *, block_size: int = 16, bytes_per_element: float = 2
) -> int:
    """How many requests of `context` tokens each, prompt and answer together, the cache holds at once.

    layers: of the model, in any mixture of the three kinds; see the top of this file.
    kv_cache_bytes: for all requests together. May be zero or negative: then nobody fits.
    block_size: tokens of a block. A request's tokens take whole blocks, in each layer of Heads or Latent.
    bytes_per_element: of keys, values, latents and states; may be a fraction.

    What one request takes, added up over the layers:
    - Heads without a window, and Latent: as many whole blocks as `context` tokens fill.
    - Heads with a window keep the newest `window` tokens. Those may begin anywhere in a block, so count as many blocks as
      `window` tokens in a row can touch at most, but never more than the whole context fills. A window of 1 touches one block.
    - State: `shared.caches.state_bytes([layer], bytes_per_element)`, at any context; it knows nothing of blocks.

    Returns whole requests, an int, never negative. Raises ValueError for no layers, or a context, block size or element size that
    is not above zero.

    32 layers of Heads(8, 128), 6.41e9 bytes, 5,000 tokens: each takes 313 blocks of 2,097,152 bytes, so 9 fit.
    """
    raise NotImplementedError
