"""Whether two runs of a model said the same, given that sums in another order differ in the last bits.

"The same tokens" means: logits within 1e-4 in float32, and equal tokens. Only a greedy choice between two logits less
than 1e-3 apart may differ, and the comparison of that request ends there: the two runs read different texts from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minillm.engine import Engine
from minillm.request import Request, SampledToken

LOGITS_ATOL = 1e-4
CLOSE_CALL = 1e-3


@dataclass
class Answer:
    """What one request got: its tokens, and the logits from which each was chosen."""

    token_ids: list[int]
    logits: list[Tensor]  # each [vocab] float32
    is_greedy: bool


class Recorder:
    """Stands in a sampler's place for a while and keeps what passes through it.

    with Recorder(engine) as answers: …run…; answers[request_id]
    """

    def __init__(self, engine: Engine):
        self._engine, self._sampler = engine, engine.sampler
        self.answers: dict[str, Answer] = {}

    def __enter__(self) -> dict[str, Answer]:
        self._engine.sampler = self
        return self.answers

    def __exit__(self, *_) -> None:
        self._engine.sampler = self._sampler

    def __call__(self, logits: Tensor, requests: list[Request]) -> list[SampledToken]:
        rows = logits.clone()  # a sampler may work in place
        tokens = self._sampler(logits, requests)
        for request, row, token in zip(requests, rows, tokens, strict=True):
            answer = self.answers.setdefault(request.request_id, Answer([], [], request.params.temperature == 0))
            answer.token_ids.append(token.token_id)
            answer.logits.append(row)
        return tokens


def assert_same(got: Answer, expected: Answer, name: str = "", complete: bool = True) -> int:
    """Compare token by token; the number of positions compared. complete=False: `got` may have ended early (an abort)."""
    for i, (a, b) in enumerate(zip(got.logits, expected.logits, strict=False)):
        error = (a - b).abs().max().item()
        assert error <= LOGITS_ATOL, f"{name}: logits of answer token {i} differ by {error:.2g}, more than {LOGITS_ATOL:g}"
        if got.token_ids[i] != expected.token_ids[i]:
            top = torch.topk(b, 2).values
            gap = (top[0] - top[1]).item()
            assert got.is_greedy and gap <= CLOSE_CALL, (
                f"{name}: answer token {i} is {got.token_ids[i]}, expected {expected.token_ids[i]}, from logits that differ by "
                f"{error:.2g}; the best two are {gap:.2g} apart"
            )
            return i + 1
    if complete:
        assert len(got.token_ids) == len(expected.token_ids), (
            f"{name}: {len(got.token_ids)} tokens, expected {len(expected.token_ids)}"
        )
    return len(got.token_ids)
