"""Two older ways to schedule, kept so that the token budget can be compared with what it replaced."""

from __future__ import annotations

from minillm.kv.base import KVCache
from minillm.request import SampledToken, StepOutput
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
