"""Which tokens may be drawn: temperature, min-p, top-k, top-p.

The order is vLLM's, each on what the one before it left. (transformers puts min-p last; that differs only where min-p and
top-p meet.) One row at a time: 16 rows of a vocabulary do not fit in a core's cache, one does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minillm.request import SamplingParams


def candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor | None, Tensor]:
    """The tokens that may be drawn, and weights proportional to their probabilities.

    logits [vocab] float32 -> ids [K] int64, ascending, or None for the whole vocabulary; and weights [K] float32, 1 for the
    likeliest token. params.temperature must be positive.
    """
    ids = None
    if 0 < params.top_k < len(logits):  # first: it is cheap, leaves little, and neither temperature nor min-p changes its choice
        ids, logits = keep(top_k_mask(logits, params.top_k), ids, logits)
    weights = weights_of(logits, params.temperature)
    if params.min_p > 0:
        ids, weights = keep(weights >= params.min_p, ids, weights)
    if params.top_p < 1:
        floor, mass = top_p_floor(weights, params.top_p)
        ids, weights = keep(weights >= floor, ids, weights)
        ids, weights = keep(top_p_mask(weights, params.top_p, mass), ids, weights)
    return ids, weights


def keep(mask: Tensor, ids: Tensor | None, values: Tensor) -> tuple[Tensor, Tensor]:
    """ids and values [K] where mask [K] is True; ids None: 0 to K - 1."""
    kept = mask.nonzero().flatten()
    return kept if ids is None else ids[kept], values[kept]


def weights_of(logits: Tensor, temperature: float) -> Tensor:
    """exp((logits - largest logit) / temperature) [K]: softmax without its sum, and nothing overflows."""
    # further out nothing changes any more, but float32 would turn the temperature into 0 or infinity
    return (logits - logits.amax()).div_(min(max(temperature, 1e-30), 1e30)).exp_()


def top_k_mask(logits: Tensor, k: int) -> Tensor:
    """True for the k largest of logits [V], and for all that tie with the k-th. 1 <= k <= V."""
    return logits >= logits.topk(k, sorted=False).values.amin()


def top_p_mask(weights: Tensor, p: float, mass: float | Tensor) -> Tensor:
    """True for the smallest set of the likeliest tokens whose weights [K] reach the share p of mass; never empty. Of equally
    likely tokens the first ones are taken.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
    """
    descending, order = weights.double().sort(descending=True, stable=True)
    before = descending.cumsum(0) - descending  # a token is in if the mass ahead of it has not reached p yet
    mask = torch.zeros_like(weights, dtype=torch.bool)
    mask[order[before < p * mass]] = True
    return mask


def top_p_floor(weights: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """A weight that every token of the nucleus reaches, and few others, so that `top_p_mask` need not sort a vocabulary,
    which takes milliseconds; and the mass of all. weights [K] float32 -> float32, float64.

    The upper half of a float32 that is not negative grows with it, in steps of less than 1 %. It serves as the number of a
    bucket in a histogram of mass; the floor is the lower edge of the bucket in which the share p is reached.
    """
    bucket = weights.view(torch.int32) >> 16
    mass = torch.bincount(bucket, weights.double()).cumsum(0)
    border = (mass[-1] - mass < p * mass[-1]).int().argmax()  # the lowest bucket above which p is not reached yet
    return (border.int() << 16).view(torch.float32), mass[-1]
