"""2.4 Attention variants: what a layer keeps of a token, attention over latents, and a window that keeps its sinks.

Write the three functions below, then run `labs check 2.4` (or `pytest labs/c2/test_m04_attention_variants.py`).
Stuck? `labs hint 2.4`. They do not depend on one another; 5 to 15 lines each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labs.kit import exercise
from shared.layers import Heads, Latent, Layer, State  # noqa: F401  yours to use


@exercise(reference="shared.caches:kv_bytes_per_token")
def kv_bytes_per_token(layers: Sequence[Layer], context: int = 0, bytes_per_element: float = 2) -> float:
    """Bytes by which the KV cache of one sequence grows when one more token follows `context` others.

    layers: the attention layers of a decoder, all of one kind or mixed. Each is one of

        Heads(num_kv_heads, head_dim, window)       keeps a key and a value of head_dim elements for each key-value head. How
                                                    many heads of queries share one does not matter.
            window None                             of every token
            window W                                of the newest W tokens: the cache grows until it holds W, and then each
                                                    new token takes the oldest one's place
        Latent(kv_lora_rank, qk_rope_head_dim)      keeps one latent of kv_lora_rank elements, from which the keys and values of
                                                    all heads are made, and one rotary key of qk_rope_head_dim for all heads
        State(num_heads, key_dim, value_dim, ...)   linear attention: a matrix that is overwritten. It has a size, but does not
                                                    grow: 0 bytes a token

    bytes_per_element: 2 for bf16 and fp16, 1 for fp8, may be a fraction. The result is not rounded.
    Raises ValueError for no layers, a negative context, or bytes_per_element not above zero.

    61 x Latent(512, 64), DeepSeek-V3, grow by 70,272 bytes a token in 16 bit.
    """
    raise NotImplementedError


@exercise(reference="minillm.attention.mla:mla_attend_absorbed")
def mla_attend_absorbed(
    q_nope: Tensor, q_pe: Tensor, latents: Tensor, k_pe: Tensor, w_uk: Tensor, w_uv: Tensor, scale: float | None = None
) -> Tensor:
    """Multi-head latent attention of a sequence's last T tokens over its S >= T cached ones, without expanding the cache.

    q_nope   [T, H, P]   queries, the part without positions
    q_pe     [T, H, R]   queries, the part with rotary positions, already rotated
    latents  [S, r]      the cache: one latent a token, already normed, for all heads
    k_pe     [S, R]      the cache: one rotary key a token, already rotated, for all heads
    w_uk     [H, P, r]   head h's key of token s, without positions, would be  w_uk[h] @ latents[s]
    w_uv     [H, V, r]   head h's value of token s would be                   w_uv[h] @ latents[s]
    scale    the factor on all of the score, its rotary part included. None: (P + R) ** -0.5, the size of the query and key that
             are compared in the expanded form, whatever the latent's

    Returns [T, H, V], in the dtype of the inputs (float32 or float64, all the same) and computed in it:

        score[h, t, s] = scale * (q_nope[t, h] · (w_uk[h] @ latents[s])  +  q_pe[t, h] · k_pe[s])
        out[t, h]      = sum over s of softmax(score[h, t])[s] * (w_uv[h] @ latents[s])

    Query t stands at position S - T + t, and the softmax is over the tokens 0 to S - T + t alone. T is at least 1.

    To be *absorbed*, it must multiply in another order than this is written: no head's keys or values are ever formed, and k_pe
    is not copied for each head. Besides matrices of the size of scores, [H, T, S], nothing larger than the cache or the weights
    given may be made. Views (expand) take no memory and are allowed. The inputs are not changed.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.2.
    """
    raise NotImplementedError


@exercise(reference="minillm.attention.masks:sliding_window_mask")
def sliding_window_mask(
    num_queries: int, num_keys: int, window: int, num_sinks: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """Where each token may look, if only the newest tokens and the very first ones are kept.

    A sequence has num_keys tokens; the queries are the last num_queries of them (all of them in a prefill, one in a decode).
    Returns [num_queries, num_keys] bool on `device`: True where the query of that row may look at the key of that column.

    The token at position p sees
        the newest `window` tokens up to p, itself included: with window 1 only itself
        besides those, the sequence's first num_sinks tokens: they do not count towards the window, and may lie in it
        and never a token later than p, sink or not

    Raises ValueError unless 0 <= num_queries <= num_keys, window is at least 1 and num_sinks at least 0. With no queries the
    result has no rows. A window or a number of sinks larger than the sequence is fine.
    Sources: Mistral 7B, arXiv 2310.06825, section 2 (the window); StreamingLLM, arXiv 2309.17453 (the sinks).

    Of 6 tokens with window 2 and 1 sink, the last sees 0, 4 and 5.
    """
    raise NotImplementedError
