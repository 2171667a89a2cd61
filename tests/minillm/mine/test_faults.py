"""A learner's part that raises, or answers what cannot be used: the error says whose, where and what."""

from pathlib import Path

import pytest

from minillm.mine.faults import Origin, OwnPartError
from minillm.mine.guards import GUARDS, guarded
from minillm.parts import PARTS
from minillm.request import SamplingParams

PROMPT = [5, 6, 7]


def method(head, *lines):
    return "\n".join([f"    def {head}:", *(f"        {line}" for line in lines)]) + "\n"


UPDATE = "update(self, plan, sampled)"
WRONG = {
    "kv raises": ("kv.contiguous", method("allocate(self, r, n)", "rows = []", "return rows.pop()"),
                  r"raised IndexError: pop from empty list\."),
    "kv is built wrong": ("kv.contiguous", method("__init__(self, *args)", "super().__init__(*args)", "self.num_blocks += 1"),
                          r"was built with num_blocks \d+ and has \d+"),
    "kv has no layers": ("kv.contiguous", method("__init__(self, *args)", "super().__init__(*args)", "self.layers = []"),
                         "list of 2 tensors"),
    "kv start is None": ("kv.contiguous", method("start(self, r, keep_free=0)", "super().start(r, keep_free)"),
                         "returned None from start; True or False"),
    "kv start never": ("kv.contiguous", method("start(self, r, keep_free=0)", "return False"),
                       "refused to start a request of 3 tokens in an empty cache"),
    "kv no, but": ("kv.contiguous", method("start(self, r, keep_free=0)", "super().start(r)", "return False"),
                   "changed a request that start refused"),
    "kv no row": ("kv.contiguous", method("start(self, r, keep_free=0)", "return True"),
                  "promised room for 3 tokens in allocate; the request's blocks hold 0"),
    "kv no such row": ("kv.contiguous", method("start(self, r, keep_free=0)", "r.block_ids = [10**6]", "return True"),
                       "gave block 1000000 in start; there are 0 to"),
    "kv row is a float": ("kv.contiguous", method("start(self, r, keep_free=0)", "r.block_ids = [0.0]", "return True"),
                          r"gave block 0\.0 in start"),
    "kv no list": ("kv.contiguous", method("start(self, r, keep_free=0)", "r.block_ids = 0", "return True"),
                   "set block_ids to 0 in start"),
    "kv one row for all": ("kv.contiguous", method("start(self, r, keep_free=0)", "r.block_ids = [3]", "return True"),
                           "gave block 3 to request-1 in start, to write to, and it is held already"),
    "kv moves a row": ("kv.contiguous", method("allocate(self, r, n)", "r.block_ids = [r.block_ids[0] + 1]", "return True"),
                       r"turned blocks \[0\] into \[1\] in allocate"),
    "kv never grows": ("kv.contiguous", method("allocate(self, r, n)", "return n > 1"),
                       "refused room for 4 tokens in allocate"),
    "kv all computed": ("kv.contiguous",
                        method("start(self, r, keep_free=0)", "r.num_computed_tokens = 3", "return super().start(r)"),
                        "set num_computed_tokens to 3 in start"),
    "kv usage raises": ("kv.contiguous", "    @property\n" + method("usage(self)", "return 1 / 0"), "raised ZeroDivisionError"),
    "kv usage asks amiss": ("kv.contiguous", "    @property\n" + method("usage(self)", "return self.row"),
                            "raised AttributeError: .*row"),
    "kv usage is None": ("kv.contiguous", "    @property\n" + method("usage(self)", "pass"), "says that None of it is used"),
    "kv counts amiss": ("kv.contiguous", "    @property\n" + method("num_free(self)", "return -1"), "says that -1 of its"),
    "kv free raises": ("kv.contiguous", method("free(self, r)", "self._free[r.request_id]"), "raised TypeError"),
    "scheduler plans nothing": ("scheduler.token_budget",
                                method("schedule(self)", "from minillm.scheduler import SchedulePlan", "return SchedulePlan()"),
                                "planned nothing, twice, while 2 requests"),
    "scheduler no plan": ("scheduler.token_budget", method("schedule(self)", "return []"), "must return a SchedulePlan"),
    "scheduler over budget": ("scheduler.token_budget",
                              method("schedule(self)", "plan = super().schedule()", "plan.num_new_tokens[0] += 3000",
                                     "return plan"),
                              "planned 3006 tokens in a step; max_num_batched_tokens is 2048"),
    "scheduler too many tokens": ("scheduler.token_budget",
                                  method("schedule(self)", "plan = super().schedule()", "plan.num_new_tokens[0] += 1",
                                         "return plan"),
                                  "planned 4 tokens of request-0, which has 3 left"),
    "scheduler twice": ("scheduler.token_budget",
                        method("schedule(self)", "plan = super().schedule()", "plan.add(plan.requests[0], 1)", "return plan"),
                        "planned request-0 twice"),
    "scheduler too many": ("scheduler.token_budget",
                           method("schedule(self)", "plan = super().schedule()", "[plan.add(plan.requests[0], 1) for _ in 'abc']",
                                  "return plan"),
                           "planned 5 requests; max_num_seqs is 4"),
    "scheduler unknown": ("scheduler.token_budget",
                          method("schedule(self)", "import copy", "plan = super().schedule()",
                                 "plan.requests[0] = copy.copy(plan.requests[0])", "return plan"),
                          "planned 'request-0', which is no unfinished request"),
    "scheduler no room": ("scheduler.token_budget",
                          method("schedule(self)", "plan = super().schedule()", "plan.requests[0].block_ids = []", "return plan"),
                          "planned 3 tokens of request-0 without room"),
    "scheduler update None": ("scheduler.token_budget", method(UPDATE, "super().update(plan, sampled)"),
                              "must return a list of StepOutput"),
    "scheduler update loses": ("scheduler.token_budget", method(UPDATE, "return super().update(plan, sampled)[1:]"),
                               "gave tokens of request-1 in update; due were request-0, request-1"),
    "scheduler never counts": ("scheduler.token_budget",
                               method(UPDATE, "outputs = super().update(plan, sampled)",
                                      "for r in plan.requests:", "    r.num_computed_tokens = 0", "return outputs"),
                               "left request-0 at 0 computed tokens in update; after this step it has 3"),
    "sampler raises": ("sampling.pipeline", method("__call__(self, logits, requests)", "return logits + None"),
                       "raised TypeError"),
    "sampler loses a row": ("sampling.pipeline",
                            method("__call__(self, logits, requests)", "return super().__call__(logits, requests)[1:]"),
                            "must return a list of 2 SampledToken, one a row; it returned a list of 1: SampledToken"),
    "sampler gives ids": ("sampling.pipeline", method("__call__(self, logits, requests)", "return logits.argmax(-1)"),
                          r"it returned a tensor \[2\] int64"),
    "sampler leaves the vocabulary": ("sampling.pipeline",
                                      method("__call__(self, logits, requests)", "from minillm.request import SampledToken",
                                             "return [SampledToken(300) for r in requests]"),
                                      "chose token 300; the vocabulary is the whole numbers 0 to 299"),
    "attention gives another shape": ("attention.torch",
                                      method("plan(self, *args)", "attend = super().plan(*args)",
                                             "return lambda *a: attend(*a)[:, :1]"),
                                      r"return a tensor \[6, 4, 8\] float32, as the queries; it returned a tensor \[6, 1, 8\]"),
    "attention gives another type": ("attention.torch",
                                     method("plan(self, *args)", "attend = super().plan(*args)",
                                            "return lambda *a: attend(*a).double()"),
                                     r"it returned a tensor \[6, 4, 8\] float64"),
    "attention gives NaN": ("attention.torch",
                            method("plan(self, *args)", "attend = super().plan(*args)",
                                   "return lambda *a: attend(*a) * float('nan')"),
                            "returned NaN or infinity for finite queries"),
    "attention gives nothing": ("attention.torch", method("plan(self, *args)", "pass"), "returned NoneType from plan"),
    "stream raises at once": ("text.stream", method("__init__(self, *args)", "raise ValueError('no\\n  vocabulary')"),
                              r"raised ValueError: no vocabulary\."),
    "stream gives bytes": ("text.stream", method("push(self, token_id)", "return b'x'"), "returned b'x' from push"),
    "stream ends in nothing": ("text.stream", method("flush(self)", "pass"), "returned None from flush"),
    "stop gives None": ("text.stop", method("push(self, text)", "pass"), "returned None from push"),
    "stop makes one up": ("text.stop", method("push(self, text)", "self.matched = 'end'", "return ''"),
                          "says that 'end' ended the answer"),
}  # fmt: skip
FLAGS = {"kv.contiguous": {"kv": "contiguous"}, "attention.torch": {"attention": "torch"}}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_named_and_the_engine_goes_on(name, labs, tiny_llm):
    part, body, complaint = WRONG[name]
    file = labs.write(part, body)
    lab = f"2.{labs.numbers[part]}"
    where = rf"your {part} \(lab {lab}, \w+, labs/c2/{file.name}:\d+\) .*{complaint}.*`labs check {lab}` tests it; without --mine"

    def ask():
        llm = tiny_llm(mine=True, max_num_seqs=4, **FLAGS.get(part, {}))
        prompts = [PROMPT] if name in ("kv never grows", "kv no, but") else [PROMPT, PROMPT[:]]
        try:
            llm.generate(prompts, SamplingParams(max_tokens=4, ignore_eos=True))
            _ = llm.engine.scheduler.kv.usage, llm.engine.scheduler.kv.num_free  # as /health and events ask
        finally:
            assert not llm.engine.has_unfinished

    with pytest.raises(OwnPartError, match=where) as caught:
        ask()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_the_line_named_is_the_one_that_raised(labs, tiny_llm):
    file = labs.write("sampling.pipeline", method("__call__(self, logits, requests)", "one = 1", "return self.help(one)")
                      + method("help(self, one)", "two = one + 1", "return two.nothing"))  # fmt: skip
    line = file.read_text().splitlines().index("        return two.nothing") + 1
    with pytest.raises(OwnPartError, match=rf"{file.name}:{line}\) raised AttributeError") as caught:
        tiny_llm(mine=True).generate([PROMPT])
    assert isinstance(caught.value.__cause__, AttributeError)  # with its own traceback, for a notebook


def test_a_part_further_in_keeps_its_own_name(labs, tiny_llm):
    """A learner's scheduler asks a learner's cache that raises: the cache is to blame."""
    labs.write("scheduler.token_budget", method("schedule(self)", "return super().schedule()"))
    labs.write("kv.contiguous", method("allocate(self, r, n)", "raise KeyError(r.request_id)"))
    with pytest.raises(OwnPartError, match=r"^your kv\.contiguous .*raised KeyError: 'request-0'"):
        tiny_llm(mine=True, kv="contiguous").generate([PROMPT])


def test_logprobs_that_are_asked_for_and_missing(labs, tiny_llm):
    body = method("__call__(self, logits, requests)", "from dataclasses import replace",
                  "return [replace(t, logprobs=None) for t in super().__call__(logits, requests)]")  # fmt: skip
    labs.write("sampling.pipeline", body)
    llm = tiny_llm(mine=True)
    assert llm.generate([PROMPT])[0].outputs[0].token_ids
    with pytest.raises(OwnPartError, match="gave no logprobs"):
        llm.generate([PROMPT], SamplingParams(logprobs=1))


def test_no_guard_complains_of_the_references(tiny_llm, labs):
    """A cache too small, shared prefixes, stop strings: as much as requests can do, all of it through guards."""
    for part in ("scheduler.token_budget", "sampling.pipeline", "attention.sdpa", "text.stream", "text.stop"):
        labs.write(part, "    pass\n")
    options = dict(block_size=4, max_model_len=64, max_num_seqs=4, max_num_batched_tokens=16, kv_cache_memory_bytes=24 * 4 * 256)
    prompts = [[7] * n + [k] for n in (21, 3, 8) for k in (1, 3, 9)] + [[7] * 21 + [1]]
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=3, stop=("q", "xy"), logprobs=2)
    plain, events = tiny_llm(**options), []
    plain.engine.events.subscribe(events.append)
    expected = [g.outputs[0] for g in plain.generate(prompts, params)]
    assert any(o.num_cached_tokens for o in expected) and any(e.get("preempted") for e in events)
    paged = {"kv.paged": guard_of("kv.paged")}
    for llm in (tiny_llm(mine=True, **options), tiny_llm(mine=paged, **options)):
        assert len(llm.own_parts) in (1, 5)
        got = [g.outputs[0] for g in llm.generate(prompts, params)]
        assert [(o.token_ids, o.text, o.finish_reason) for o in got] == [(o.token_ids, o.text, o.finish_reason) for o in expected]
        llm.engine.scheduler.check_integrity()


def guard_of(part):
    """A reference behind the guard that would stand before a learner's."""
    return guarded(Origin(part, "X", "0.0", Path("x.py"), "x.py", 1), PARTS[part].load())


def test_what_a_learner_calls_pool_is_not_looked_into(labs, tiny_llm):
    """The engine's events ask a cache for its block pool."""
    labs.write("kv.contiguous", method("__init__(self, *args)", "super().__init__(*args)", "self.pool = set()"))
    llm, events = tiny_llm(kv="contiguous", mine=True), []
    llm.engine.events.subscribe(events.append)
    llm.generate([PROMPT], SamplingParams(max_tokens=3, ignore_eos=True))
    assert [e["type"] for e in events].count("step") == 3


def test_a_part_without_a_guard_of_its_own_is_still_named():
    origin = Origin("engine.async", "run", "3.1", Path(__file__), "labs/c3/m01.py", 7)
    assert origin.part not in GUARDS
    assert guarded(origin, lambda x: x + 1)(1) == 2
    with pytest.raises(OwnPartError, match=r"your engine\.async \(lab 3\.1, run, labs/c3/m01\.py:\d+\) raised ZeroDivisionError"):
        guarded(origin, lambda x: x / 0)(1)


def test_what_is_missing_and_what_fails_inside_are_told_apart():
    class Mine:
        x = 1

        @property
        def broken(self):
            return self.missing

        def ask(self):
            return self.missing

    made = guarded(Origin("new.part", "Mine", "9.9", Path(__file__), "labs/c9/m09.py", 1), Mine)()
    assert made.x == 1 and getattr(made, "missing", None) is None
    for use in (lambda: made.broken, lambda: made.ask()):
        with pytest.raises(OwnPartError, match=r"your new\.part .*raised AttributeError: .*missing"):
            use()
