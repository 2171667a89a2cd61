"""Answers to labs/c2/m07_batching.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

from bisect import insort

from labs.kit import exercise
from minillm.request import Request
from minillm.scheduler import SchedulePlan, Scheduler


@exercise(reference="minillm.schedulers:ContinuousScheduler", part="scheduler.continuous")
class ContinuousScheduler(Scheduler):
    def schedule(self) -> SchedulePlan:
        plan = SchedulePlan()
        shares = []  # what is in the plan
        budget = self.config.max_num_batched_tokens

        for place, request in enumerate(list(self.running)):
            if place >= len(self.running):
                break  # it has given way, and so have all behind it
            behind = len(self.running) - place - 1
            share = self._share(request, budget - behind)
            while place < len(self.running) and not self.kv.allocate(request, share):
                self._preempt_last(plan)
            if place < len(self.running):
                plan.add(request, share)
                shares.append((request, share))
                budget -= share

        while self.waiting and not plan.preempted and len(self.running) < self.config.max_num_seqs and budget > 0:
            head = self.waiting[0]
            share = self._admit(head, budget)
            if not share:
                break
            del self.waiting[0]
            insort(self.running, head, key=self.order)
            head.note_scheduled()
            plan.add(head, share)
            shares.append((head, share))
            budget -= share
            if share > 1:
                self.kv.commit(head, share)

        for request, share in shares:
            self.kv.commit(request, share)
        return plan

    def _admit(self, head: Request, budget: int) -> int:
        """Give the head of the queue its memory. Returns how many tokens it computes in this step; 0: it must wait."""
        if not self.kv.start(head, keep_free=self._keep_free if self.running else 0):
            return 0
        left = head.num_tokens - head.num_computed_tokens
        never_whole = left > self.config.max_num_batched_tokens
        share = self._share(head, budget)
        if (left <= budget or (never_whole and self.config.enable_chunked_prefill)) and self.kv.allocate(head, share):
            return share
        self.kv.free(head)
        head.num_computed_tokens = 0
        return 0
