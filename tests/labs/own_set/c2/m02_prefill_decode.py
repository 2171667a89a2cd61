"""Answers to labs/c2/m02_prefill_decode.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labs.kit import exercise


@exercise(reference="shared.phases:phase_cost")
def phase_cost(
    batch: Sequence[tuple[int, int, int]],
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    bytes_per_weight: float = 2,
    bytes_per_kv: float = 2,
) -> tuple[float, float]:
    shape = (num_layers, hidden_size, num_heads, num_kv_heads, head_dim, intermediate_size, vocab_size)
    if not batch:
        raise ValueError("the batch is empty")
    if not all(number > 0 for number in (*shape, bytes_per_weight, bytes_per_kv)):
        raise ValueError("sizes, widths and counts of the model must be above zero")
    for new, cached, with_logits in batch:
        if new < 1 or cached < 0 or not 0 <= with_logits <= new:
            raise ValueError(f"a sequence of {new} new, {cached} cached and {with_logits} logit tokens cannot be")

    q, kv = num_heads * head_dim, num_kv_heads * head_dim
    in_layers = num_layers * hidden_size * (2 * q + 2 * kv + 3 * intermediate_size)  # weights
    in_head = hidden_size * vocab_size
    new_tokens = sum(new for new, _, _ in batch)
    logit_rows = sum(with_logits for _, _, with_logits in batch)
    pairs = sum(new * cached + new * (new + 1) // 2 for new, cached, _ in batch)
    flops = 2 * new_tokens * in_layers + 2 * logit_rows * in_head + 4 * q * num_layers * pairs

    weights = in_layers + (in_head if logit_rows else 0) + new_tokens * hidden_size
    kv_numbers = 2 * kv * num_layers * sum(new + cached for new, cached, _ in batch)
    return flops, weights * bytes_per_weight + kv_numbers * bytes_per_kv


@exercise(reference="shared.phases:fit_phase_cost")
def fit_phase_cost(timings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    if not all(number > 0 for timing in timings for number in timing):
        raise ValueError("FLOPs, bytes and seconds must be above zero")
    ordered = sorted(timings, key=lambda timing: timing[0] / timing[1])
    intensities = [flops / num_bytes for flops, num_bytes, _ in ordered]
    borders = [i for i in range(1, len(ordered)) if intensities[i - 1] != intensities[i]]
    if not borders:
        raise ValueError("timings of at least two different intensities are needed")

    def ceilings(border: int) -> tuple[float, float]:
        peak = _geometric_mean([flops / seconds for flops, _, seconds in ordered[border:]])
        return peak, _geometric_mean([num_bytes / seconds for _, num_bytes, seconds in ordered[:border]])

    def error(peak: float, bandwidth: float) -> float:
        return sum(math.log(max(flops / peak, num_bytes / bandwidth) / seconds) ** 2 for flops, num_bytes, seconds in ordered)

    return min((ceilings(border) for border in borders), key=lambda found: error(*found))


def _geometric_mean(numbers: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, numbers)) / len(numbers))
