"""Answers to labs/c2/m06_sampling.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.kit import exercise
from minillm.request import Request, SampledToken, SamplingParams
from minillm.sampling import filters, logprobs, penalties, rng

WORD = 0xFFFFFFFF


@exercise(reference="minillm.sampling.filters:candidates")
def candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor | None, Tensor]:
    scaled = (logits - logits.max()) / params.temperature
    weights = scaled.exp()
    ids = torch.arange(len(logits), device=logits.device)
    if params.min_p > 0:
        ids = ids[weights >= params.min_p]
    if 0 < params.top_k < len(ids):
        last = scaled[ids].topk(params.top_k).values[-1]
        ids = ids[scaled[ids] >= last]
    if params.top_p < 1:
        ordered, order = weights[ids].sort(descending=True, stable=True)
        sums = ordered.double().cumsum(0)
        count = int(torch.searchsorted(sums, params.top_p * sums[-1])) + 1  # the first sum that reaches the share, included
        ids = ids[order[:count]].sort().values
    return (None, weights) if len(ids) == len(logits) else (ids, weights[ids])


@exercise(reference="minillm.sampling.rng:philox4x32")
def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD, (p0 >> 32) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


@exercise(reference="minillm.sampling.pipeline:Sampler", part="sampling.pipeline")
class Sampler:
    def __call__(self, logits: Tensor, requests: list[Request]) -> list[SampledToken]:
        rows = penalties.process(logits, requests)
        return [self._sample(raw, row, request) for raw, row, request in zip(logits, rows, requests, strict=True)]

    def _sample(self, raw: Tensor, row: Tensor, request: Request) -> SampledToken:
        """One row: raw as it came in, row with the penalties."""
        token_id, count = self._choose(row, request), request.params.logprobs
        if count is None:
            return SampledToken(token_id, None)
        return SampledToken(token_id, logprobs.top_logprobs(raw[None], [token_id], count)[0])

    def _choose(self, row: Tensor, request: Request) -> int:
        if request.params.temperature == 0:
            return int((row == row.max()).nonzero()[0])  # argmax promises nothing about ties
        ids, weights = filters.candidates(row, request.params)
        sums = weights.double().cumsum(0)
        u = rng.uniform(request.seed, request.num_tokens, request.index)
        at = torch.searchsorted(sums, u * sums[-1], right=True)
        at = int(torch.minimum(at, torch.searchsorted(sums, sums[-1])))  # should the product have been rounded up to the sum
        return at if ids is None else int(ids[at])


@exercise(reference="minillm.model.fixed_split:fixed_split_linear")
def fixed_split_linear(x: Tensor, weight: Tensor, split: int = 64) -> Tensor:
    wide, weight = x.float(), weight.float()
    total = torch.zeros(x.shape[0], weight.shape[0], device=x.device)
    for start in range(0, x.shape[1], split):
        part = torch.zeros_like(total)
        for k in range(start, min(start + split, x.shape[1])):
            part = part + wide[:, k, None] * weight[:, k]
        total = total + part
    return total.to(x.dtype)
