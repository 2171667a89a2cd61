"""Three older ways to schedule, kept so that the token budget can be compared with what it replaced."""

from __future__ import annotations

from bisect import insort

from minillm.kv.base import KVCache
from minillm.request import Request, SampledToken, StepOutput
from minillm.scheduler import SchedulePlan, Scheduler, SchedulerConfig


class StaticScheduler(Scheduler):
    """Requests are taken in a batch, and no other is admitted before the last of the batch is done.

    What serving was before Orca (Yu et al., OSDI 2022): the short answers of a batch wait for its longest.
    """

    def __init__(self, kv: KVCache, config: SchedulerConfig):
        super().__init__(kv, config)
        self._batch_is_closed = False

    def _schedule_waiting(self, plan: SchedulePlan, budget: int) -> None:
        """A batch whose prompts take several steps may fill up until its first token is out."""
        self._batch_is_closed = self._batch_is_closed and bool(self.running)
        if not self._batch_is_closed:
            super()._schedule_waiting(plan, budget)

    def update(self, plan: SchedulePlan, sampled: list[SampledToken]) -> list[StepOutput]:
        outputs = super().update(plan, sampled)
        self._batch_is_closed = self._batch_is_closed or bool(outputs)
        return outputs


class PrefillFirstScheduler(Scheduler):
    """A step computes whole prompts if any can be admitted, and decodes only otherwise.

    vLLM's first scheduler: best time to first token, but every arrival makes all running requests miss a step, and under
    sustained load their gaps between tokens grow without bound.
    """

    def schedule(self) -> SchedulePlan:
        plan = SchedulePlan()
        if not self._prompts_unfinished():
            self._schedule_waiting(plan, self.config.max_num_batched_tokens)
        if not plan:
            self._schedule_running(plan, self.config.max_num_batched_tokens)
        for request, wanted in zip(plan.requests, plan.num_new_tokens, strict=True):
            self.kv.commit(request, wanted)
        return plan

    def _prompts_unfinished(self) -> bool:
        """A prompt longer than the budget goes on before others are admitted."""
        return any(request.num_tokens - request.num_computed_tokens > 1 for request in self.running)


class ContinuousScheduler(Scheduler):
    """Each step asks anew who computes: all that run, and whoever fits into the places that have become free.

    Iteration-level scheduling (Yu et al., Orca, OSDI 2022). A prompt that fits into one step is computed in one step. The
    token budget, which would cut it to fill the step before, is the other Scheduler's.
    """

    def schedule(self) -> SchedulePlan:
        plan, budget = SchedulePlan(), self.config.max_num_batched_tokens
        for request in list(self.running):
            if request not in self.running:
                break  # it gave way to one before it, and so did all behind it
            behind = len(self.running) - len(plan.requests) - 1  # each is sure of one token
            wanted = self._share(request, budget - behind)
            while request in self.running and not self.kv.allocate(request, wanted):
                self._preempt_last(plan)
            if request in self.running:
                plan.add(request, wanted)
                budget -= wanted
        while self.waiting and not plan.preempted and len(self.running) < self.config.max_num_seqs:
            wanted = self._admit(self.waiting[0], budget)
            if not wanted:
                break  # those behind wait too, or a stream of small requests would keep this one out for ever
            request = self.waiting.pop(0)
            insort(self.running, request, key=self.order)
            plan.add(request, wanted)
            budget -= wanted
        for request, wanted in zip(plan.requests, plan.num_new_tokens, strict=True):
            self.kv.commit(request, wanted)
        return plan

    def _admit(self, request: Request, budget: int) -> int:
        """Give a waiting request cache, and say how many tokens it computes in this step; 0: not now, and nothing changed."""
        if budget and self.kv.start(request, keep_free=self._keep_free if self.running else 0):
            left = request.num_tokens - request.num_computed_tokens
            wanted = self._share(request, budget)
            is_cut = budget < left and (left <= self.config.max_num_batched_tokens or not self.config.enable_chunked_prefill)
            if not is_cut and self.kv.allocate(request, wanted):
                if wanted > 1:
                    self.kv.commit(request, wanted)  # at once: those behind may share it in this very step
                request.note_scheduled()
                return wanted
            self._take_back(request)
        return 0
