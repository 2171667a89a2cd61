"""FLOPs and bytes of every operator in one step of a model: what the roofline needs to know about prefill and decode.

Counted as a good kernel would move them: each operator reads its weights and inputs once and writes its outputs once; attention
keeps its scores on the chip (FlashAttention). Norms, rotary embedding, activations and residuals ride along with their
neighbours and are left out: they do under one FLOP per byte and, fused, move next to nothing. A multiply-add is two FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shared.budget import kv_elements_per_layer
from shared.models import Model
from shared.units import not_negative, positive


@dataclass(frozen=True)
class Step:
    """What one forward pass computes: num_seqs sequences, each new_tokens long after cached_tokens that are in the cache.

    Prefill has many new tokens and none or few cached; decode has one new token. logit_tokens: tokens of each sequence whose
    logits are computed, counted from the last; engines need one. Bits are per element: weight_bits of the layers' linear
    weights, kv_bits of the cache, other_bits of activations, embedding, router and head.
    Raises ValueError for a count or size that is not above zero (cached_tokens and logit_tokens may be zero).
    """

    num_seqs: int
    new_tokens: int
    cached_tokens: int = 0
    logit_tokens: int = 1
    weight_bits: float = 16
    kv_bits: float = 16
    other_bits: float = 16

    def __post_init__(self):
        positive(num_seqs=self.num_seqs, new_tokens=self.new_tokens)
        positive(weight_bits=self.weight_bits, kv_bits=self.kv_bits, other_bits=self.other_bits)
        not_negative(cached_tokens=self.cached_tokens, logit_tokens=self.logit_tokens)
        if self.logit_tokens > self.new_tokens:
            raise ValueError(f"logit_tokens ({self.logit_tokens}) cannot be more than new_tokens ({self.new_tokens})")

    @property
    def tokens(self) -> int:
        """New tokens of all sequences: rows of every linear layer."""
        return self.num_seqs * self.new_tokens


@dataclass(frozen=True)
class Operator:
    """FLOPs and bytes of one kind of operator, summed over the layers."""

    name: str
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes


def operators(model: Model, step: Step) -> list[Operator]:
    """Every operator of a step, in the order of the forward pass, those of all layers summed.

    Experts are assumed to be chosen evenly, so that a step of N tokens reads num_experts * (1 - (1 - k/n)**N) of them.
    """
    found = [_embedding(model, step)]
    found += _mla(model, step) if model.mla else _attention(model, step)
    found += _mlp(model, step)
    return [*found, _head(model, step)]


def total(work: list[Operator]) -> Operator:
    """All of them as one, named "total"."""
    return Operator("total", sum(o.flops for o in work), sum(o.bytes for o in work))


def attended(step: Step, window: int | None = None) -> int:
    """Query-key pairs of one sequence under the causal mask: each new token sees all before it and itself, or its window."""
    first, last = step.cached_tokens + 1, step.cached_tokens + step.new_tokens
    if window is None or last <= window:
        return (first + last) * step.new_tokens // 2
    growing = max(0, window - first + 1)  # tokens that still see less than the whole window
    return (first + window) * growing // 2 + (step.new_tokens - growing) * window


def _linear(name: str, step: Step, rows: int, inputs: int, outputs: int, layers: int, weights: float | None = None) -> Operator:
    """A matrix [inputs, outputs] over `rows` tokens in each of `layers` layers. weights: elements read, where not all are."""
    weights = inputs * outputs if weights is None else weights
    moved = weights * step.weight_bits + rows * (inputs + outputs) * step.other_bits
    return Operator(name, 2 * rows * inputs * outputs * layers, moved / 8 * layers)


def _embedding(model: Model, step: Step) -> Operator:
    """A look-up: one row read and written for each token."""
    return Operator("embedding", 0, 2 * step.tokens * model.hidden_size * step.other_bits / 8)


def _head(model: Model, step: Step) -> Operator:
    rows = step.num_seqs * step.logit_tokens
    weights = model.hidden_size * model.vocab_size if rows else 0
    moved = weights + rows * (model.hidden_size + model.vocab_size)
    return Operator("lm_head", 2 * rows * model.hidden_size * model.vocab_size, moved * step.other_bits / 8)


def _attention(model: Model, step: Step) -> Iterator[Operator]:
    q, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    yield _linear("qkv_proj", step, step.tokens, model.hidden_size, q + 2 * kv, model.num_layers)
    flops = moved = 0.0
    windowed = model.num_window_layers
    for layers, window in ((model.num_layers - windowed, None), (windowed, model.sliding_window)):
        flops += layers * step.num_seqs * 4 * q * attended(step, window)  # scores, then the weighted sum of values
        moved += layers * (step.num_seqs * _visible(step, window) * 2 * kv * step.kv_bits + 2 * step.tokens * q * step.other_bits)
    yield Operator("attention", flops, moved / 8)
    yield _linear("o_proj", step, step.tokens, q, model.hidden_size, model.num_layers)


def _mla(model: Model, step: Step) -> Iterator[Operator]:
    """Decode absorbs kv_b into queries and outputs and attends over latents; prefill expands latents into heads (DeepSeek-V2)."""
    mla, heads, layers = model.mla, model.num_heads, model.num_layers
    head = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    latent = kv_elements_per_layer(model)
    yield _linear("q_a_proj", step, step.tokens, model.hidden_size, mla.q_lora_rank, layers)
    yield _linear("q_b_proj", step, step.tokens, mla.q_lora_rank, heads * head, layers)
    yield _linear("kv_a_proj", step, step.tokens, model.hidden_size, latent, layers)
    absorbed = step.new_tokens == 1
    visible = step.num_seqs * _visible(step, None)
    expanded = step.tokens if absorbed else visible
    yield _linear("kv_b_proj", step, expanded, mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim), layers)
    width = latent + mla.kv_lora_rank if absorbed else head + mla.v_head_dim  # of one pair's score and of its value
    keys = visible * (latent * step.kv_bits if absorbed else heads * width * step.other_bits)
    queries = step.tokens * heads * width * step.other_bits  # read, and as many outputs written as values are wide
    yield Operator("attention", layers * step.num_seqs * 2 * heads * width * attended(step), layers * (keys + queries) / 8)
    yield _linear("o_proj", step, step.tokens, heads * mla.v_head_dim, model.hidden_size, layers)


def _mlp(model: Model, step: Step) -> Iterator[Operator]:
    dense = model.num_layers - model.num_moe_layers
    if dense:
        yield from _gated(step, step.tokens, model.hidden_size, model.intermediate_size, dense, "")
    if moe := model.moe:
        layers = model.num_moe_layers
        moved = (model.hidden_size * moe.num_experts + step.tokens * (model.hidden_size + moe.num_experts)) * step.other_bits / 8
        yield Operator("router", 2 * step.tokens * model.hidden_size * moe.num_experts * layers, moved * layers)
        if moe.num_shared:
            yield from _gated(step, step.tokens, model.hidden_size, moe.num_shared * moe.expert_size, layers, "shared_")
        rows = step.tokens * moe.num_active
        yield from _gated(step, rows, model.hidden_size, moe.expert_size, layers, "experts_", experts_read(model, step.tokens))


def _gated(step: Step, rows: int, hidden: int, size: int, layers: int, prefix: str, copies: float = 1) -> Iterator[Operator]:
    """gate and up as one matrix, then down. copies: how many such matrices are read (distinct experts)."""
    yield _linear(f"{prefix}gate_up_proj", step, rows, hidden, 2 * size, layers, copies * 2 * hidden * size)
    yield _linear(f"{prefix}down_proj", step, rows, size, hidden, layers, copies * hidden * size)


def experts_read(model: Model, tokens: int) -> float:
    """Distinct routed experts that `tokens` tokens are expected to touch in a layer, if all are equally likely."""
    if model.moe is None:
        raise ValueError(f"{model.id} has no experts")
    missed = (1 - model.moe.num_active / model.moe.num_experts) ** tokens
    return model.moe.num_experts * (1 - missed)


def _visible(step: Step, window: int | None) -> int:
    """Tokens of one sequence whose keys and values are read at least once."""
    every = step.cached_tokens + step.new_tokens
    return every if window is None else min(every, window + step.new_tokens - 1)
