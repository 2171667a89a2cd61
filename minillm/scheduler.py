"""Who computes what in the next step: one rule, one token budget.

There is no prefill phase and no decode phase. A request has known tokens and computed tokens; each step shares
`max_num_batched_tokens` out among requests that have known tokens left to compute, running ones first. A decode is the
case "one left"; a chunk of a long prompt is the case "more left than budget"; a hit in the prefix cache is "fewer left";
and a preempted request is one that has everything left again. (Agrawal et al., Sarathi-Serve, OSDI 2024; vLLM V1.)
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from minillm.kv.base import KVCache
from minillm.request import FinishReason, Request, SampledToken, StepOutput


@dataclass
class SchedulePlan:
    """What one step computes: for each request, how many of its known tokens, starting at num_computed_tokens."""

    requests: list[Request] = field(default_factory=list)
    num_new_tokens: list[int] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.requests)

    def add(self, request: Request, num_new_tokens: int) -> None:
        self.requests.append(request)
        self.num_new_tokens.append(num_new_tokens)

    def yields_token(self, i: int) -> bool:
        """Whether request i's last known token is computed in this step, so that its next one can be sampled."""
        return self.requests[i].num_computed_tokens + self.num_new_tokens[i] == self.requests[i].num_tokens


@dataclass(frozen=True)
class SchedulerConfig:
    max_num_seqs: int  # requests running at once
    max_num_batched_tokens: int  # tokens computed in one step
    policy: str = "fcfs"  # or "priority": a lower number goes first
    long_prefill_token_threshold: int = 0  # longest chunk of one prompt in one step; 0: only the budget limits it
    enable_chunked_prefill: bool = True
    watermark: float = 0.01  # share of the cache left free when a request is admitted beside others, for them to grow into


class Scheduler:
    """Both queues are kept in one order, arrival (or priority, then arrival): who comes first is served first, and when the
    cache is full the last one gives way."""

    def __init__(self, kv: KVCache, config: SchedulerConfig):
        self.kv, self.config = kv, config
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._keep_free = int(config.watermark * kv.num_blocks)

    def order(self, request: Request) -> tuple[int, int]:
        return (request.priority if self.config.policy == "priority" else 0, request.serial)

    def add(self, request: Request) -> None:
        insort(self.waiting, request, key=self.order)

    def schedule(self) -> SchedulePlan:
        """Share one step's budget out."""
        plan, budget = SchedulePlan(), self.config.max_num_batched_tokens
        budget = self._schedule_running(plan, budget)
        if not plan.preempted:  # whoever was just put out needs the room first
            self._schedule_waiting(plan, budget)
        for request, wanted in zip(plan.requests, plan.num_new_tokens, strict=True):
            self.kv.commit(request, wanted)
        return plan

    def _schedule_running(self, plan: SchedulePlan, budget: int) -> int:
        i = 0
        while i < len(self.running):
            request = self.running[i]
            # one token is kept for each request behind, so that no prompt, however long, makes a decode miss a step
            wanted = self._share(request, budget - (len(self.running) - i - 1))
            while not self.kv.allocate(request, wanted):
                if self._preempt_last(plan) is request:
                    return budget
            plan.add(request, wanted)
            budget -= wanted
            i += 1
        return budget

    def _schedule_waiting(self, plan: SchedulePlan, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            if not self.kv.start(request, keep_free=self._keep_free if self.running else 0):
                return  # no room: those behind wait too, or a stream of small requests would starve this one
            wanted = self._share(request, budget)
            left = request.num_tokens - request.num_computed_tokens
            if (wanted < left and not self.config.enable_chunked_prefill) or not self.kv.allocate(request, wanted):
                self._take_back(request)
                return
            if wanted > 1:
                # At once, so that those behind can share it in this very step: a runner computes prompts before decodes.
                # What a single token fills is named after the plan is made, so nobody in the plan depends on a decode.
                self.kv.commit(request, wanted)
            request.note_scheduled()
            insort(self.running, self.waiting.pop(0), key=self.order)
            plan.add(request, wanted)
            budget -= wanted

    def _share(self, request: Request, budget: int) -> int:
        wanted = min(request.num_tokens - request.num_computed_tokens, budget)
        threshold = self.config.long_prefill_token_threshold
        return min(wanted, threshold) if threshold else wanted

    def _preempt_last(self, plan: SchedulePlan) -> Request:
        """Take the cache of the last running request; it will compute its known tokens again, generated ones included.

        The last one cannot be in the plan yet: the plan is filled in the same order.
        """
        request = self.running.pop()
        self._take_back(request)
        request.num_preemptions += 1
        plan.preempted.append(request)
        insort(self.waiting, request, key=self.order)
        return request

    def _take_back(self, request: Request) -> None:
        self.kv.free(request)
        request.num_computed_tokens = 0

    def update(self, plan: SchedulePlan, sampled: list[SampledToken]) -> list[StepOutput]:
        """Book what a step computed. sampled: one for each request of the plan that yields a token, in the plan's order."""
        outputs, tokens = [], iter(sampled)
        for i, (request, computed) in enumerate(zip(plan.requests, plan.num_new_tokens, strict=True)):
            yields = plan.yields_token(i)
            request.num_computed_tokens += computed
            if not yields:
                continue
            token = next(tokens)
            request.token_ids.append(token.token_id)
            check_finished(request, token.token_id)
            outputs.append(StepOutput(request, [token], request.finish_reason))
            if request.is_finished:
                self.release(request)
        return outputs

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request from outside (a stop string, a client that left), whether it waits or runs. Idempotent."""
        request.finish_reason = request.finish_reason or reason
        self.release(request)

    def release(self, request: Request) -> None:
        for requests in (self.running, self.waiting):
            if request in requests:
                requests.remove(request)
        self.kv.free(request)  # last: a cache that raises here must not leave the request in a queue

    def check_integrity(self) -> None:
        """Raise AssertionError where the scheduler's and the cache's books disagree. For tests."""
        self.kv.check_integrity()
        both = [*self.running, *self.waiting]
        assert len(set(map(id, both))) == len(both), "a request stands in the queues twice"
        assert self.running == sorted(self.running, key=self.order), "the running requests are out of order"
        assert self.waiting == sorted(self.waiting, key=self.order), "the waiting requests are out of order"
        assert len(self.running) <= self.config.max_num_seqs, f"{len(self.running)} run, {self.config.max_num_seqs} allowed"
        assert all(r.block_ids for r in self.running), "a running request holds no cache"
        assert not any(r.block_ids for r in self.waiting), "a waiting request holds cache"
        assert not any(r.is_finished for r in both), "a finished request is still scheduled"
        assert all(r.num_computed_tokens < r.num_tokens for r in both), "a request has nothing left to compute"


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
