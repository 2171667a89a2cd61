"""What a decoder keeps of a sequence: keys and values, a window of them, latents, or a state of fixed size.

layers = layers_of(models.load("gemma-3-4b"))       see shared/layers.py
kv_bytes_per_token(layers)                          139264, while the windows fill
kv_bytes_per_token(layers, context=1024)            20480, ever after
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.layers import Heads, Latent, Layer, State
from shared.units import not_negative, positive


def kv_bytes_per_token(layers: Sequence[Layer], context: int = 0, bytes_per_element: float = 2) -> float:
    """Bytes by which the cache of one sequence grows when a token follows `context` others.

    A layer of Heads takes a key and a value a head; with a window only until the window is full, for then the oldest token
    makes room. A Latent takes its rank and the rotary key, once for all heads. A State never grows.
    bytes_per_element: 2 for bf16 and fp16, 1 for fp8; a block's scales make it a fraction. Not rounded.
    Raises ValueError for no layers, a negative context, or an element size that is not above zero.
    """
    _check(layers, bytes_per_element)
    not_negative(context=context)
    grown = 0
    for layer in layers:
        is_full = isinstance(layer, Heads) and layer.window is not None and context >= layer.window
        if not is_full:
            grown += kv_elements(layer)
    return grown * bytes_per_element


def kv_bytes(layers: Sequence[Layer], num_tokens: int, bytes_per_element: float = 2) -> float:
    """Bytes of KV cache of one sequence of num_tokens tokens; states not included. Raises ValueError as kv_bytes_per_token."""
    _check(layers, bytes_per_element)
    not_negative(num_tokens=num_tokens)
    windows = [layer.window if isinstance(layer, Heads) else None for layer in layers]
    kept = [num_tokens if window is None else min(num_tokens, window) for window in windows]
    return bytes_per_element * sum(kv_elements(layer) * tokens for layer, tokens in zip(layers, kept, strict=True))


def state_bytes(layers: Sequence[Layer], bytes_per_element: float = 2) -> float:
    """Bytes of the states of one sequence, whatever its length, 1 token or a million. Layers that keep tokens have none.

    Raises ValueError for no layers, or an element size that is not above zero.
    """
    _check(layers, bytes_per_element)
    states = [layer for layer in layers if isinstance(layer, State)]
    matrices = sum(state.num_heads * state.key_dim * state.value_dim for state in states)
    inputs = sum(state.conv_channels * (state.conv_kernel - 1) for state in states)
    return (matrices + inputs) * bytes_per_element


def kv_elements(layer: Layer) -> int:
    """Elements this layer keeps of one token."""
    match layer:
        case Heads():
            return 2 * layer.num_kv_heads * layer.head_dim
        case Latent():
            return layer.kv_lora_rank + layer.qk_rope_head_dim
        case State():
            return 0


def _check(layers: Sequence[Layer], bytes_per_element: float) -> None:
    positive(layers=len(layers), bytes_per_element=bytes_per_element)
