"""Answers to labs/c2/m04_attention_variants.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labs.kit import exercise
from shared.layers import Heads, Latent, Layer


@exercise(reference="shared.caches:kv_bytes_per_token")
def kv_bytes_per_token(layers: Sequence[Layer], context: int = 0, bytes_per_element: float = 2) -> float:
    if not layers:
        raise ValueError("there are no layers")
    if context < 0:
        raise ValueError(f"context is {context}; 0 or more tokens are expected")
    if not bytes_per_element > 0:
        raise ValueError(f"bytes_per_element is {bytes_per_element}; a number above zero is expected")
    return sum(_elements(layer, context) for layer in layers) * bytes_per_element


def _elements(layer: Layer, context: int) -> int:
    """Numbers that a layer's cache grows by."""
    if isinstance(layer, Latent):
        return layer.kv_lora_rank + layer.qk_rope_head_dim
    if isinstance(layer, Heads) and (layer.window is None or context < layer.window):
        return 2 * layer.num_kv_heads * layer.head_dim
    return 0  # the window is full, or the layer has a state


@exercise(reference="minillm.attention.mla:mla_attend_absorbed")
def mla_attend_absorbed(
    q_nope: Tensor, q_pe: Tensor, latents: Tensor, k_pe: Tensor, w_uk: Tensor, w_uv: Tensor, scale: float | None = None
) -> Tensor:
    if scale is None:
        scale = (q_nope.shape[-1] + q_pe.shape[-1]) ** -0.5
    q_latent = torch.einsum("thp,hpr->thr", q_nope, w_uk)
    scores = torch.einsum("thr,sr->hts", q_latent, latents) + torch.einsum("thp,sp->hts", q_pe, k_pe)
    num_queries, num_keys = scores.shape[1:]
    positions = torch.arange(num_keys, device=scores.device)
    later = positions > positions[num_keys - num_queries :, None]
    weights = (scale * scores).masked_fill(later, -torch.inf).softmax(dim=-1)
    return torch.einsum("thr,hvr->thv", torch.einsum("hts,sr->thr", weights, latents), w_uv)


@exercise(reference="minillm.attention.masks:sliding_window_mask")
def sliding_window_mask(
    num_queries: int, num_keys: int, window: int, num_sinks: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    if not 0 <= num_queries <= num_keys:
        raise ValueError(f"{num_queries} queries of {num_keys} tokens: 0 to {num_keys} are expected")
    if window < 1 or num_sinks < 0:
        raise ValueError(f"a window of {window} and {num_sinks} sinks: at least 1 and 0 are expected")
    keys = torch.arange(num_keys, device=device)
    queries = keys[num_keys - num_queries :, None]
    return (keys <= queries) & ((keys > queries - window) | (keys < num_sinks))
