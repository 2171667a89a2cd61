"""A guard for an own scheduler: a plan keeps its limits, and a step moves each of its requests on."""

from __future__ import annotations

from collections.abc import Callable

from minillm.kv.base import KVCache
from minillm.mine.faults import Origin
from minillm.mine.guard import Guard
from minillm.request import FinishReason, Request, SampledToken, StepOutput
from minillm.scheduler import SchedulePlan, SchedulerConfig


class SchedulerGuard(Guard):
    """See minillm.scheduler.Scheduler for what is promised."""

    def __init__(self, origin: Origin, factory: Callable, kv: KVCache, config: SchedulerConfig):
        super().__init__(origin, factory, kv, config)
        self._config, self._cache = config, kv
        self._unfinished: dict[str, Request] = {}
        self._num_empty = 0  # plans in a row that held nothing

    def add(self, request: Request) -> None:
        self._unfinished[request.request_id] = request
        self._call(self._subject.add, request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        self._unfinished.pop(request.request_id, None)
        self._call(self._subject.finish, request, reason)

    def schedule(self) -> SchedulePlan:
        plan = self._call(self._subject.schedule)
        if not isinstance(plan, SchedulePlan) or len(plan.requests) != len(plan.num_new_tokens):
            raise self._fault("must return a SchedulePlan from schedule, with a number of tokens for each request")
        self._num_empty = self._num_empty + 1 if self._unfinished and not plan.requests else 0
        if self._num_empty > 1:
            raise self._fault(f"planned nothing, twice, while {len(self._unfinished)} requests are unfinished")
        if len(plan.requests) > self._config.max_num_seqs:
            raise self._fault(f"planned {len(plan.requests)} requests; max_num_seqs is {self._config.max_num_seqs}")
        tokens, budget = sum(plan.num_new_tokens), self._config.max_num_batched_tokens
        if tokens > budget:
            raise self._fault(f"planned {tokens} tokens in a step; max_num_batched_tokens is {budget}")
        for request, count in zip(plan.requests, plan.num_new_tokens, strict=True):
            self._check_share(request, count)
            if plan.requests.count(request) > 1:
                raise self._fault(f"planned {request.request_id} twice in a step")
        return plan

    def _check_share(self, request: Request, count: int) -> None:
        """What one request gets of a step."""
        name = getattr(request, "request_id", request)
        if self._unfinished.get(name) is not request:
            raise self._fault(f"planned {name!r}, which is no unfinished request")
        left = request.num_tokens - request.num_computed_tokens
        if type(count) is not int or not 1 <= count <= left:
            raise self._fault(f"planned {count!r} tokens of {name}, which has {left} left to compute")
        if len(request.block_ids) * self._cache.block_size < request.num_computed_tokens + count:
            raise self._fault(f"planned {count} tokens of {name} without room in the cache for them")

    def update(self, plan: SchedulePlan, sampled: list[SampledToken]) -> list[StepOutput]:
        due = sorted(r.request_id for i, r in enumerate(plan.requests) if plan.yields_token(i))
        computed = [r.num_computed_tokens + n for r, n in zip(plan.requests, plan.num_new_tokens, strict=True)]
        outputs = self._call(self._subject.update, plan, sampled)
        if not isinstance(outputs, list) or not all(isinstance(o, StepOutput) for o in outputs):
            raise self._fault("must return a list of StepOutput from update")
        got = sorted(o.request.request_id for o in outputs)
        if got != due:
            raise self._fault(f"gave tokens of {', '.join(got) or 'nobody'} in update; due were {', '.join(due) or 'none'}")
        for request, expected in zip(plan.requests, computed, strict=True):
            if request.num_computed_tokens != expected:
                is_at = f"{request.request_id} at {request.num_computed_tokens} computed tokens"
                raise self._fault(f"left {is_at} in update; after this step it has {expected}")
        for output in outputs:
            if output.finish_reason is not None:
                self._unfinished.pop(output.request.request_id, None)
        return outputs
