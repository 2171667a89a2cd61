"""The sampler of --kernels triton: a whole batch in one launch where the logits are.

The rules are Sampler's and so are the random numbers (minillm.kernels.sample), so a request gets the same tokens from either;
only where a draw falls within float32's last bits of the border between two tokens may they part. Sampler draws row by row,
which on a GPU means a dozen launches and a wait for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm.kernels.argmax import argmax
from minillm.kernels.sample import sample
from minillm.kernels.softmax import softmax
from minillm.request import Request, SampledToken
from minillm.sampling.penalties import process
from minillm.sampling.pipeline import report


@dataclass(frozen=True)
class SamplingKernels:
    """The kernels of a sampler. The parts `kernels.<name>` of minillm.parts; contracts in minillm.kernels."""

    argmax: Callable[[Tensor], Tensor] = argmax
    sample: Callable[..., Tensor] = sample
    softmax: Callable[[Tensor], Tensor] = softmax


class TritonSampler:
    def __init__(self, kernels: SamplingKernels | None = None):
        """kernels: None: the references."""
        self.kernels = kernels or SamplingKernels()

    @torch.inference_mode()
    def __call__(self, logits: Tensor, requests: list[Request]) -> list[SampledToken]:
        """As minillm.sampling.pipeline.Sampler. Bias, penalties and logprobs are computed as there, for those who ask."""
        tokens = choose(process(logits, requests), requests, self.kernels).tolist()
        logprobs = report(logits, tokens, requests, self._normaliser)
        return [SampledToken(token, logprobs.get(i)) for i, token in enumerate(tokens)]

    def _normaliser(self, logits: Tensor) -> Tensor:
        """log_sum_exp by way of the probabilities: the largest is exp(max − ln Σ exp). It is 1 / vocab or more, so its logarithm
        loses nothing, where an unlikely token's own probability may be 0."""
        likeliest = self.kernels.softmax(logits).amax(-1, keepdim=True)
        return logits.amax(-1, keepdim=True) - likeliest.log()


def choose(logits: Tensor, requests: list[Request], kernels: SamplingKernels) -> Tensor:
    """Each row's token, greedy or drawn. logits [S, vocab] float32, bias and penalties in them -> [S] int64, on their device."""
    if all(request.params.temperature == 0 for request in requests):
        return kernels.argmax(logits)
    # two copies to the GPU, not seven
    integers = [[_signed(r.seed), r.num_tokens, r.index, r.params.top_k] for r in requests]
    reals = [[_temperature(r.params.temperature), r.params.min_p, r.params.top_p] for r in requests]
    seed, position, index, top_k = torch.tensor(integers, dtype=torch.int64, device=logits.device).T.contiguous()
    temperature, min_p, top_p = torch.tensor(reals, dtype=torch.float64, device=logits.device).T.contiguous()
    return kernels.sample(logits, temperature.float(), seed, position, index, top_k, top_p, min_p.float())


def _signed(seed: int) -> int:
    """The int64 with the same 64 bits."""
    return (seed + 2**63) % 2**64 - 2**63


def _temperature(temperature: float) -> float:
    """0 for argmax, and what float32 would make 0 or infinity kept apart from them, as minillm.sampling.filters does."""
    return temperature and min(max(temperature, 1e-30), 1e30)
