"""Mistakes planted in 2.7."""

from labs.kit.wrong import patch


def requests_are_served(subject):
    """The test one would write first: three requests, two places, and everybody gets his tokens."""
    import torch

    from labs.kit.conformance.requests import NO_MODEL, make_request
    from minillm.kv.paged import PagedKV
    from minillm.request import SampledToken
    from minillm.scheduler import SchedulerConfig

    scheduler = subject(PagedKV(NO_MODEL, 32, 4, torch.float32), SchedulerConfig(2, 16))
    requests = [make_request([5 + i] * 3, max_tokens=4, ignore_eos=True) for i in range(3)]
    for request in requests:
        scheduler.add(request)
    for _ in range(40):
        plan = scheduler.schedule()
        due = sum(plan.yields_token(i) for i in range(len(plan.requests)))
        scheduler.update(plan, [SampledToken(7)] * due)
    assert [request.num_output_tokens for request in requests] == [4, 4, 4]


ADMITS = "            wanted = self._admit(self.waiting[0], budget)\n"
LOOP = "        while self.waiting and not plan.preempted and len(self.running) < self.config.max_num_seqs:\n"
IS_CUT = "budget < left and (left <= self.config.max_num_batched_tokens or not self.config.enable_chunked_prefill)"
END = "            budget -= wanted\n        for request, wanted in zip("
STATIC = f"        idle = not plan\n{LOOP.replace('while ', 'while idle and ')}"
ONE = END.replace("        for", "            break\n        for")

WRONG = {
    "ContinuousScheduler": {
        "waits_for_the_batch": patch(LOOP, STATIC, "it is static"),
        "prefill_first": patch(
            "for request in list(self.running):",
            "for request in [] if self.waiting and len(self.running) != self.config.max_num_seqs else list(self.running):",
            "whoever decodes misses a step as long as somebody can be admitted",
        ),
        "refilled_not_computed": patch(
            "            insort(self.running, request, key=self.order)\n            plan.add(request, wanted)\n",
            "            insort(self.running, request, key=self.order)\n"
            "            if not plan:\n                plan.add(request, wanted)\n",
            "the place is taken, and its new owner computes only from the next step on: L / (L + 1)",
        ),
        "one_newcomer_a_step": patch(END, ONE, "only one is admitted a step"),
        "looks_behind_the_head": patch(
            ADMITS,
            "            wanted = 0\n"
            "            for head in list(self.waiting):\n"
            "                wanted = self._admit(head, budget)\n"
            "                if wanted:\n"
            "                    self.waiting.remove(head)\n"
            "                    self.waiting.insert(0, head)\n"
            "                    break\n",
            "whoever fits is admitted: small requests pass a large one for ever",
        ),
        "appends_to_running": patch(
            "insort(self.running, request, key=self.order)",
            "self.running.append(request)",
            "an urgent request runs last, and is the first to give way",
        ),
        "one_place_too_many": patch(
            "len(self.running) < self.config.max_num_seqs", "len(self.running) <= self.config.max_num_seqs", "off by one"
        ),
        "sets_nothing_aside": patch(
            "self._share(request, budget - behind)", "self._share(request, budget)", "a long prompt takes all of the budget"
        ),
        "cuts_to_fill_the_step": patch(
            IS_CUT, "budget < left and not self.config.enable_chunked_prefill", "prompts that fit a step are cut"
        ),
        "never_cuts": patch(IS_CUT, "budget < left", "a prompt longer than a step waits for ever"),
        "cuts_though_forbidden": patch(IS_CUT, IS_CUT.split(" or ")[0] + ")", "enable_chunked_prefill is not looked at"),
        "admits_after_preempting": patch("not plan.preempted and ", "", "newcomers take the room of whoever gave way"),
        "no_watermark": patch("keep_free=self._keep_free if self.running else 0", "keep_free=0", "nothing is kept free"),
        "watermark_when_alone": patch(
            "keep_free=self._keep_free if self.running else 0",
            "keep_free=self._keep_free",
            "a request that needs the whole cache waits for ever",
        ),
        "keeps_what_it_started": patch(
            "            self._take_back(request)\n        return 0", "        return 0", "a waiting request holds cache"
        ),
        "commits_late": patch(
            "                if wanted > 1:\n"
            "                    self.kv.commit(request, wanted)  # at once: those behind may share it in this very step\n",
            "",
            "two equal prompts that come together are both computed",
        ),
        "commits_newcomers_only": patch(
            END + "plan.requests, plan.num_new_tokens, strict=True):\n            self.kv.commit(request, wanted)\n",
            "            budget -= wanted\n",
            "the later pieces of a prompt are never found by others",
        ),
        "noted_before_it_is_sure": patch(
            "            wanted = self._share(request, budget)\n            is_cut",
            "            request.note_scheduled()\n            wanted = self._share(request, budget)\n            is_cut",
            "the time in the queue ends at the first try, and not at the admission",
        ),
        "found_tokens_kept": patch(
            "            self._take_back(request)\n        return 0",
            "            self.kv.free(request)\n        return 0",
            "the cache is given back, and the tokens found in it still count as computed",
        ),
        "asks_the_whole_prompt": patch(
            IS_CUT, IS_CUT.replace("(left <=", "(request.num_tokens <="), "cached tokens count as tokens to compute"
        ),
        "commits_single_tokens": patch(
            "                if wanted > 1:\n                    self", "                if wanted:\n                    self",
            "a token that is computed last can be shared by those computed first",
        ),
        "watermark_beside_old_ones_only": patch(
            "keep_free=self._keep_free if self.running else 0",
            "keep_free=self._keep_free if any(r.num_output_tokens for r in self.running) else 0",
            "newcomers of one step fill the cache between them",
        ),
        "time_not_noted": patch("                request.note_scheduled()\n", "", "the time in the queue is never measured"),
    }
}  # fmt: skip

HAPPY = {"ContinuousScheduler": requests_are_served}
