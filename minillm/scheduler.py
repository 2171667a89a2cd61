"""Who computes what in the next step: one rule, one token budget.

There is no prefill phase and no decode phase. A request has known tokens and computed tokens; each step shares
`max_num_batched_tokens` out among requests that have known tokens left to compute, running ones first. A decode is the
case "one left", a chunk of a long prompt is the case "more left than budget".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from minillm.request import FinishReason, Request, StepOutput


@dataclass
class SchedulePlan:
    """What one step computes: for each request, how many of its known tokens, starting at num_computed_tokens."""

    requests: list[Request]
    num_new_tokens: list[int]

    def __bool__(self) -> bool:
        return bool(self.requests)

    def yields_token(self, i: int) -> bool:
        """Whether request i's last known token is computed in this step, so that its next one can be sampled."""
        return self.requests[i].num_computed_tokens + self.num_new_tokens[i] == self.requests[i].num_tokens


class KVManager(Protocol):
    """What the scheduler needs of a cache."""

    def allocate(self, request: Request, num_new_tokens: int) -> bool: ...
    def free(self, request: Request) -> None: ...
    def check_integrity(self) -> None: ...


class Scheduler:
    def __init__(self, kv: KVManager, max_num_seqs: int, max_num_batched_tokens: int):
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self) -> SchedulePlan:
        """Share the budget out: running requests first, in order of arrival, then waiting ones while there is room."""
        plan, budget = SchedulePlan([], []), self.max_num_batched_tokens
        for request in self.running:
            budget -= self._give(request, budget, plan)
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            given = self._give(self.waiting[0], budget, plan)
            if not given:
                break  # no room in the cache: first come, first served, so those behind wait too
            self.running.append(self.waiting.popleft())
            budget -= given
        return plan

    def _give(self, request: Request, budget: int, plan: SchedulePlan) -> int:
        wanted = min(request.num_tokens - request.num_computed_tokens, budget)
        if wanted <= 0 or not self.kv.allocate(request, wanted):
            return 0
        plan.requests.append(request)
        plan.num_new_tokens.append(wanted)
        return wanted

    def update(self, plan: SchedulePlan, tokens: list[int]) -> list[StepOutput]:
        """Book what a step computed. tokens: one for each request of the plan that yields one, in the plan's order."""
        outputs, sampled = [], iter(tokens)
        for i, (request, computed) in enumerate(zip(plan.requests, plan.num_new_tokens, strict=True)):
            yields = plan.yields_token(i)
            request.num_computed_tokens += computed
            if not yields:
                continue
            token = next(sampled)
            request.token_ids.append(token)
            check_finished(request, token)
            outputs.append(StepOutput(request, [token], request.finish_reason))
            if request.is_finished:
                self.release(request)
        return outputs

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request from outside (a stop string, a client that left), whether it waits or runs. Idempotent."""
        request.finish_reason = request.finish_reason or reason
        self.release(request)

    def release(self, request: Request) -> None:
        self.kv.free(request)
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def check_integrity(self) -> None:
        """Raise AssertionError where the scheduler's and the cache's books disagree. For tests."""
        self.kv.check_integrity()
        assert not set(map(id, self.running)) & set(map(id, self.waiting)), "a request both waits and runs"
        assert len(self.running) <= self.max_num_seqs, f"{len(self.running)} run, {self.max_num_seqs} allowed"
        assert all(r.block_ids for r in self.running), "a running request holds no cache"
        assert not any(r.block_ids for r in self.waiting), "a waiting request holds cache"
        assert not any(r.is_finished for r in [*self.running, *self.waiting]), "a finished request is still scheduled"


def check_finished(request: Request, token: int) -> None:
    """Set finish_reason if `token`, just appended, ends the request."""
    params = request.params
    if request.num_output_tokens >= params.min_tokens:
        if token in params.stop_token_ids:
            request.finish_reason, request.stop_reason = FinishReason.STOP, token
        elif token in request.eos_token_ids and not params.ignore_eos:
            request.finish_reason = FinishReason.STOP
    if not request.is_finished and request.num_output_tokens >= request.max_tokens:
        request.finish_reason = FinishReason.LENGTH
