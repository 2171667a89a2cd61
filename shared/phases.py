"""Prefill and decode as two numbers, FLOPs and bytes, and a machine as two more, recovered from timings of such work.

`shared.operators` counts operator by operator, activations included, for sequences that are all alike. Here a step of any mixture
is counted whole: what its rows compute, and the weights, keys and values that have to be moved for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shared.units import not_negative, positive


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
    """FLOPs and bytes of one forward pass of a dense decoder over any batch. A multiply-add is two FLOPs.

    batch: for each sequence (new_tokens, cached_tokens, logit_tokens): tokens computed now, tokens before them whose keys and
        values are kept, and how many of the new ones get logits.
    Raises ValueError for an empty batch, new_tokens below 1, cached_tokens below 0, logit_tokens below 0 or above new_tokens, or
    a size or width that is not above zero.
    """
    positive(num_layers=num_layers, hidden_size=hidden_size, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    positive(intermediate_size=intermediate_size, vocab_size=vocab_size)
    positive(bytes_per_weight=bytes_per_weight, bytes_per_kv=bytes_per_kv, sequences=len(batch))
    for new, cached, logits in batch:
        positive(new_tokens=new)
        not_negative(cached_tokens=cached, logit_tokens=logits)
        if logits > new:
            raise ValueError(f"logit_tokens ({logits}) cannot be more than new_tokens ({new})")

    rows = sum(new for new, _, _ in batch)
    logit_rows = sum(logits for _, _, logits in batch)
    seen = sum(new * cached + new * (new + 1) // 2 for new, cached, _ in batch)  # query-key pairs under the causal mask
    kept = sum(new + cached for new, cached, _ in batch)

    q, kv = num_heads * head_dim, num_kv_heads * head_dim
    projections = hidden_size * (q + 2 * kv) + q * hidden_size
    layers = num_layers * (projections + 3 * hidden_size * intermediate_size)
    head = hidden_size * vocab_size

    flops = 2 * rows * layers + 2 * logit_rows * head + 4 * seen * q * num_layers
    weights = layers + (head if logit_rows else 0) + rows * hidden_size  # of the embedding a row a token
    return flops, weights * bytes_per_weight + kept * 2 * kv * num_layers * bytes_per_kv


def fit_phase_cost(timings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The two ceilings, (FLOP/s, bytes/s), that explain timings (flops, num_bytes, seconds) of work on one machine best.

    The roofline says max(flops / peak, num_bytes / bandwidth) seconds. Sorted by intensity, some first timings are bound by
    memory and the others by arithmetic; each border between two different intensities is tried. The peak is the geometric mean
    of FLOP/s beyond it, the bandwidth that of bytes/s before it, which minimises squared errors of log(seconds). The border
    whose roofline has the least sum of these over all timings wins, the lowest where several do.

    If all timings lie on one side, the other ceiling is only a lower bound. Raises ValueError for fewer than two different
    intensities, or a number that is not above zero.
    """
    for flops, num_bytes, seconds in timings:
        positive(flops=flops, num_bytes=num_bytes, seconds=seconds)
    ordered = sorted(timings, key=lambda t: t[0] / t[1])
    best = None
    for border in range(1, len(ordered)):
        (f0, b0, _), (f1, b1, _) = ordered[border - 1 : border + 1]
        if math.isclose(f0 / b0, f1 / b1, rel_tol=1e-12):
            continue
        peak = _geometric_mean([f / s for f, _, s in ordered[border:]])
        bandwidth = _geometric_mean([b / s for _, b, s in ordered[:border]])
        error = sum(math.log(max(f / peak, b / bandwidth) / s) ** 2 for f, b, s in ordered)
        if best is None or error < best[0]:
            best = error, peak, bandwidth
    if best is None:
        raise ValueError("timings of at least two different intensities are needed to tell computing from moving")
    return best[1], best[2]


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
