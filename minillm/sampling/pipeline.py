"""From logits to one token a request: temperature, top-k, top-p, min-p, draw.

Each filter works on what the one before it left, renormalised, as transformers' processors do in this order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minillm.request import Request, SamplingParams
from minillm.sampling.rng import uniform


class Sampler:
    def __call__(self, logits: Tensor, requests: list[Request]) -> list[int]:
        """logits [S, vocab] float32, row i for requests[i]. Returns S token ids.

        Rows are independent: greedy and random ones mix freely, and a row's draw depends on its request alone.
        """
        best = logits.argmax(-1).tolist()
        return [
            token if request.params.temperature == 0 else draw(row, request)
            for token, row, request in zip(best, logits, requests, strict=True)
        ]


def draw(logits: Tensor, request: Request) -> int:
    """One token for one request: the point where the cumulative probability passes this position's uniform number."""
    ids, probs = candidates(logits, request.params)
    u = uniform(request.seed, position=request.num_tokens, index=request.index)
    # in token-id order: sorted by probability, two near-equal tokens could swap places with the last bit of a logit
    cumulative = probs.double().cumsum(0)
    chosen = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))
    return int(ids[min(chosen, len(ids) - 1)])


def candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, ids ascending, and their probabilities (summing to 1).

    logits [vocab] float32 -> ids [K] int64, probs [K] float32. params.temperature must be positive.
    """
    ids = torch.arange(logits.shape[0], device=logits.device)
    if 0 < params.top_k < logits.shape[0]:
        kept = top_k_mask(logits, params.top_k)
        ids, logits = ids[kept], logits[kept]
    probs = softmax_with_temperature(logits, params.temperature)
    if params.top_p < 1:
        kept = top_p_mask(probs, params.top_p)
        ids, probs = ids[kept], probs[kept]
    if params.min_p > 0:
        kept = probs >= params.min_p * probs.max()
        ids, probs = ids[kept], probs[kept]
    return ids, probs / probs.sum()


def softmax_with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """softmax(logits / temperature) [K]; the maximum is taken out first so that no temperature, however small, overflows."""
    return torch.softmax((logits - logits.max()) / temperature, dim=-1)


def top_k_mask(logits: Tensor, k: int) -> Tensor:
    """True for the k largest of logits [V], and for all that tie with the k-th."""
    return logits >= torch.topk(logits, k).values[-1]


def top_p_mask(probs: Tensor, p: float) -> Tensor:
    """True for the smallest set of the most probable tokens whose mass reaches p; never empty. probs [K] sums to 1.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
    """
    size = min(256, probs.shape[0])  # the nucleus is nearly always this small, and sorting a vocabulary costs milliseconds
    sorted_probs, order = torch.topk(probs, size)
    if sorted_probs.sum() < p and size < probs.shape[0]:
        sorted_probs, order = torch.sort(probs, descending=True)
    before = sorted_probs.cumsum(0) - sorted_probs  # a token is in if the mass ahead of it has not reached p yet
    mask = torch.zeros_like(probs, dtype=torch.bool)
    mask[order[before < p]] = True
    return mask
