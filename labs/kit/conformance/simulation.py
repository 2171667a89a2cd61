"""A scheduler and its cache run without a model, every step checked."""

from __future__ import annotations

from collections.abc import Callable

from labs.kit.conformance.memory import Memory
from labs.kit.conformance.requests import EOS
from minillm.request import FinishReason, Request, SampledToken
from minillm.scheduler import SchedulePlan, Scheduler

Model = Callable[[Request], int]


def arithmetic_model(request: Request) -> int:
    """A next token that depends on the whole sequence, as a model's does: equal sequences go on equally."""
    return 3 + hash(tuple(request.token_ids)) % 90


class Simulation:
    """Adds, steps and aborts. `memory` stands for the forward pass: it is written and read exactly where that would.

    serves_all: every running request computes something in every step (not so where prompts go first).
    """

    def __init__(self, scheduler: Scheduler, model: Model = arithmetic_model, serves_all: bool = True):
        self.scheduler, self.model, self.serves_all = scheduler, model, serves_all
        self.memory = Memory(scheduler.kv)
        self.live: list[Request] = []
        self.finished: list[Request] = []
        self.num_steps = 0
        self._sampled: dict[str, list[int]] = {}

    def add(self, request: Request) -> Request:
        self.scheduler.add(request)
        self.live.append(request)
        self._sampled[request.request_id] = list(request.token_ids)
        return request

    def abort(self, request: Request) -> None:
        self.scheduler.finish(request, FinishReason.ABORT)
        self.live.remove(request)
        assert request.block_ids == [], f"{request.request_id} was aborted and still holds {request.block_ids}"
        self.scheduler.check_integrity()

    def step(self) -> SchedulePlan:
        scheduler, before = self.scheduler, list(self.scheduler.running)
        plan = scheduler.schedule()
        self._check_plan(plan, before)
        for request, count in self._pairs(plan):
            self.memory.write(request, count)
        for request, count in self._pairs(plan):  # a forward pass writes a layer's keys and values before it reads any
            self.memory.check(request, request.num_computed_tokens + count)
        yielding = [request for i, request in enumerate(plan.requests) if plan.yields_token(i)]
        tokens = [self.model(request) for request in yielding]
        for request, token in zip(yielding, tokens, strict=True):
            self._sampled[request.request_id].append(token)
        outputs = scheduler.update(plan, [SampledToken(token) for token in tokens])
        scheduler.check_integrity()
        self._check_outputs(yielding, outputs)
        self.num_steps += 1
        return plan

    def run(self, max_steps: int) -> int:
        """Step until nothing is left; the number of steps. Fails when that takes more than max_steps."""
        start = self.num_steps
        while self.live:
            assert self.num_steps - start < max_steps, f"after {max_steps} steps {_names(self.live)} are not done"
            self.step()
        assert self.scheduler.kv.num_free == self.scheduler.kv.num_blocks, "all is done and blocks are still held"
        return self.num_steps - start

    def _check_plan(self, plan: SchedulePlan, running_before: list[Request]) -> None:
        config, running = self.scheduler.config, self.scheduler.running
        assert len(set(map(id, plan.requests))) == len(plan.requests), f"planned twice: {_names(plan.requests)}"
        assert bool(plan) or not self.live, f"nothing is computed though {_names(self.live)} are not done: they wait for ever"
        assert sum(plan.num_new_tokens) <= config.max_num_batched_tokens, f"{plan.num_new_tokens} is over the budget"
        assert len(running) <= config.max_num_seqs, f"{len(running)} running, {config.max_num_seqs} allowed"
        for request, count in self._pairs(plan):
            left = request.num_tokens - request.num_computed_tokens
            assert 1 <= count <= left, f"{request.request_id} is to compute {count} tokens and knows {left} uncomputed ones"
            assert request in running, f"{request.request_id} is planned and does not run"
        for request in plan.preempted:
            assert request in self.scheduler.waiting, f"{request.request_id} was preempted and is lost"
            assert request.num_computed_tokens == 0, f"{request.request_id} was preempted and counts its tokens as computed"
        if self.serves_all:
            missed = [r for r in running_before if r in running and r not in plan.requests]
            assert not missed, f"{_names(missed)} run and miss a step: somebody else took the whole budget"

    def _check_outputs(self, yielding: list[Request], outputs: list) -> None:
        assert [o.request for o in outputs] == yielding, "a token went to a request that did not earn it, or got lost"
        for output in outputs:
            request = output.request
            assert request.token_ids == self._sampled[request.request_id], f"{request.request_id} got another one's tokens"
            assert output.finish_reason == request.finish_reason == _expected_end(request), (
                f"{request.request_id} has {request.num_output_tokens} of {request.max_tokens} tokens, the last is "
                f"{request.token_ids[-1]}, and its finish_reason is {request.finish_reason}"
            )
            if request.is_finished:
                assert request.block_ids == [], f"{request.request_id} is done and holds {request.block_ids}"
                self.live.remove(request)
                self.finished.append(request)

    @staticmethod
    def _pairs(plan: SchedulePlan) -> list[tuple[Request, int]]:
        return list(zip(plan.requests, plan.num_new_tokens, strict=True))


def _expected_end(request: Request) -> FinishReason | None:
    if request.token_ids[-1] == EOS and request.num_output_tokens >= request.params.min_tokens and not request.params.ignore_eos:
        return FinishReason.STOP
    return FinishReason.LENGTH if request.num_output_tokens == request.max_tokens else None


def _names(requests: list[Request]) -> list[str]:
    return [request.request_id for request in requests]
