"""Mistakes planted in 2.4."""

import math

import torch

from labs.kit.wrong import patch, replace
from minillm.attention.mla import mla_attend
from shared.layers import Heads, Latent


def two_models(subject):
    """The test one would write first: a model with grouped queries and one with latents."""
    assert subject([Heads(8, 128)] * 32) == 131_072
    assert subject([Latent(512, 64)] * 61) == 70_272


def a_decode_equals_the_expanded_form(subject):
    """One query over a few latents, P = 8 and R = 4, against the definition."""
    g = torch.Generator().manual_seed(0)
    shapes = [(1, 2, 8), (1, 2, 4), (5, 16), (5, 4), (2, 8, 16), (2, 6, 16)]
    inputs = [torch.randn(shape, generator=g) for shape in shapes]
    assert (subject(*inputs) - mla_attend(*inputs)).abs().max() < 1e-5


def a_square_window(subject):
    assert subject(4, 4, 2).tolist() == [[s in (p, p - 1) for s in range(4)] for p in range(4)]


def keys_for_each_head(q_nope, q_pe, latents, k_pe, w_uk, w_uv, scale=None):
    """Absorbed, but latent and rotary key lie side by side and are copied for every head, as a kernel for many heads wants."""
    heads = q_nope.shape[1]
    scale = (q_nope.shape[-1] + q_pe.shape[-1]) ** -0.5 if scale is None else scale
    q = torch.cat([torch.einsum("thp,hpr->thr", q_nope, w_uk), q_pe], dim=-1)
    k = torch.cat([latents, k_pe], dim=-1)[:, None].repeat(1, heads, 1)
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    scores = (torch.einsum("thd,shd->hts", q, k) * scale).masked_fill(~mask, -math.inf)
    return torch.einsum("hts,sr,hvr->thv", scores.softmax(-1), latents, w_uv)


def values_expanded(q_nope, q_pe, latents, k_pe, w_uk, w_uv, scale=None):
    """Keys are absorbed, and then the values are formed after all."""
    scale = (q_nope.shape[-1] + q_pe.shape[-1]) ** -0.5 if scale is None else scale
    scores = torch.einsum("thr,sr->hts", torch.einsum("thp,hpr->thr", q_nope, w_uk), latents)
    scores = (scores + torch.einsum("thr,sr->hts", q_pe, k_pe)) * scale
    mask = torch.ones(len(q_nope), len(k_pe), dtype=torch.bool).tril(len(k_pe) - len(q_nope))
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return torch.einsum("hts,shv->thv", weights, torch.einsum("sr,hvr->shv", latents, w_uv))


HEADS = "return 2 * layer.num_kv_heads * layer.head_dim"
LATENT = "return layer.kv_lora_rank + layer.qk_rope_head_dim"
STATE = "            return 0\n"
FULL = "is_full = isinstance(layer, Heads) and layer.window is not None and context >= layer.window"
GROWN = "        if not is_full:\n            grown += kv_elements(layer)\n"
BYTES = "return grown * bytes_per_element"

Q_LATENT = 'q_latent = torch.einsum("thp,hpr->thr", q_nope, w_uk)'
SCORES = 'scores = torch.einsum("thr,sr->hts", q_latent, latents) + torch.einsum("thr,sr->hts", q_pe, k_pe)'
WEIGHTS = "weights = _weights(scores, head_dim**-0.5 if scale is None else scale)"
LAST = 'return torch.einsum("thr,hvr->thv", attended, w_uv)'
MASK = "mask = causal_mask(*scores.shape[1:], device=scores.device)"
SOFTMAX = "return (scores * scale).masked_fill(~mask, -math.inf).softmax(dim=-1)"

QUERY = "query = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]"
RECENT = "recent = key > query - window"
SEEN = "return (key <= query) & (recent | (key < num_sinks))"

WRONG = {
    "kv_bytes_per_token": {
        "keys_only": patch(HEADS, "return layer.num_kv_heads * layer.head_dim", "values are kept too"),
        "latent_for_keys_and_values": patch(
            LATENT, "return 2 * layer.kv_lora_rank + layer.qk_rope_head_dim", "keys and values are made from one latent"
        ),
        "rotary_key_forgotten": patch(LATENT, "return layer.kv_lora_rank", "what carries the position is kept beside the latent"),
        "rotary_key_twice": patch(LATENT, "return layer.kv_lora_rank + 2 * layer.qk_rope_head_dim", "values have no rotary part"),
        "window_one_too_long": patch(FULL, FULL.replace(">=", ">"), "W + 1 tokens are kept"),
        "window_one_too_short": patch(FULL, FULL.replace("context >=", "context + 1 >="), "the last slot stays empty"),
        "window_ignored": patch(FULL, "is_full = False", "all tokens are kept in every layer"),
        "windows_end_the_growth": patch(
            GROWN,
            "        if is_full:\n            return 0.0\n        grown += kv_elements(layer)\n",
            "one full window, and full layers do not grow either",
        ),
        "first_layer_for_all": patch(
            BYTES, "return kv_elements(layers[0]) * len(layers) * bytes_per_element", "a hybrid has several kinds"
        ),
        "state_grows": patch(
            STATE,
            "            return layer.num_heads * layer.key_dim * layer.value_dim\n",
            "a state is overwritten, not added to",
        ),
        "state_grows_by_a_key": patch(
            STATE, "            return layer.num_heads * (layer.key_dim + layer.value_dim)\n", "counted like a key and a value"
        ),
        "rounded": patch(BYTES, "return int(grown * bytes_per_element)", "a part of a byte is cut off"),
        "sixteen_bit_only": patch(BYTES, "return grown * 2", "bytes_per_element is not looked at"),
        "negative_context": patch("    not_negative(context=context)\n", "", "is not refused"),
    },
    "mla_attend_absorbed": {
        "scale_of_the_latent": patch(
            WEIGHTS,
            "weights = _weights(scores, (latents.shape[-1] + q_pe.shape[-1]) ** -0.5 if scale is None else scale)",
            "the size of what is multiplied now, not of the head it stands for",
        ),
        "scale_without_rope": patch(
            WEIGHTS, WEIGHTS.replace("head_dim**-0.5", "q_nope.shape[-1] ** -0.5"), "P ** -0.5: the rotary part is forgotten"
        ),
        "scale_argument_ignored": patch(
            WEIGHTS, "weights = _weights(scores, head_dim**-0.5)", "a given scale (YaRN) is not used"
        ),
        "rotary_part_unscaled": patch(
            SCORES, SCORES + " * (head_dim**0.5 if scale is None else 1 / scale)", "only the latent part meets the scale"
        ),
        "rotary_part_forgotten": patch(
            SCORES, 'scores = torch.einsum("thr,sr->hts", q_latent, latents)', "attention does not know positions"
        ),
        "expands": replace(mla_attend, "the expanded form: the right numbers, at the old price"),
        "keys_for_each_head": replace(keys_for_each_head, "latents and rotary keys are copied for every head"),
        "values_expanded": replace(values_expanded, "half of the absorption"),
        "no_causal_mask": patch(SOFTMAX, "return (scores * scale).softmax(dim=-1)", "a decode does not notice"),
        "mask_from_the_first_key": patch(
            MASK, "mask = torch.ones_like(scores[0], dtype=torch.bool).tril()", "query t is taken for position t"
        ),
        "softmax_over_queries": patch(SOFTMAX, SOFTMAX.replace("dim=-1", "dim=1").replace("-math.inf", "-1e9"), "another axis"),
        "overflows": patch(
            SOFTMAX,
            "e = (scores * scale).exp() * mask\n    return e / e.sum(-1, keepdim=True)",
            "exp of the score as it is",
        ),
        "in_float32": patch(
            SOFTMAX, SOFTMAX.replace("(scores * scale)", "(scores * scale).float()") + ".to(scores.dtype)", "rounds"
        ),
        "result_in_float32": patch(LAST, LAST + ".float()", "another dtype than the inputs'"),
        "heads_mixed": patch(LAST, LAST.replace("attended", "attended.mean(1, keepdim=True).expand_as(attended)"), "heads share"),
        "heads_in_reverse": patch(Q_LATENT, Q_LATENT.replace("w_uk)", "w_uk.flip(0))"), "another head's matrix"),
        "changes_its_query": patch(
            Q_LATENT, "q_pe *= 1\n    q_nope *= 1.5\n    " + Q_LATENT.replace("q_nope", "q_nope / 1.5"), "in place"
        ),
    },
    "sliding_window_mask": {
        "window_one_too_long": patch(RECENT, RECENT.replace(">", ">="), "the window comes on top of the token itself"),
        "window_one_too_short": patch(RECENT, RECENT + " + 1", "the token itself counts twice"),
        "sinks_ignored": patch(SEEN, "return (key <= query) & recent", "window and causal mask alone"),
        "sinks_before_their_time": patch(SEEN, "return ((key <= query) & recent) | (key < num_sinks)", "tokens see later sinks"),
        "sinks_hidden": patch(SEEN, "return (key <= query) & recent & (key >= num_sinks)", "and where or is meant"),
        "one_sink": patch(SEEN, SEEN.replace("(key < num_sinks)", "(key == 0) & (num_sinks > 0)"), "all but the first are lost"),
        "one_sink_too_many": patch(SEEN, SEEN.replace("key < num_sinks", "key <= num_sinks"), "with none, token 0 is seen"),
        "sinks_taken_from_the_window": patch(
            RECENT, "recent = key > query - max(1, window - num_sinks)", "window tokens in all, sinks included"
        ),
        "sinks_of_the_chunk": patch(
            SEEN,
            SEEN.replace("(key < num_sinks)", "((key >= num_keys - num_queries) & (key < num_keys - num_queries + num_sinks))"),
            "the first queries are taken for the first tokens",
        ),
        "queries_from_zero": patch(
            QUERY, "query = torch.arange(num_queries, device=device)[:, None]", "row t is taken for position t"
        ),
        "looks_ahead": patch(SEEN, "return (abs(key - query) < window) | (key < num_sinks)", "a window to both sides"),
        "additive": patch(SEEN, SEEN.replace("return ", "return (") + ").float()", "numbers, where True and False are asked for"),
        "transposed": patch(SEEN, SEEN.replace("return ", "return (") + ").T", "keys by queries"),
        "always_on_the_cpu": patch(
            "key = torch.arange(num_keys, device=device)", "key, device = torch.arange(num_keys), 'cpu'", "device"
        ),
        "too_many_queries": patch("if not 0 <= num_queries <= num_keys:", "if num_queries < 0:", "more queries than tokens"),
        "empty_window": patch("if window < 1 or num_sinks < 0:", "if window < 0 or num_sinks < 0:", "nobody sees anything"),
    },
}

HAPPY = {
    "kv_bytes_per_token": two_models,
    "mla_attend_absorbed": a_decode_equals_the_expanded_form,
    "sliding_window_mask": a_square_window,
}
