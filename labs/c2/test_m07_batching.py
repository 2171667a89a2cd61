"""Checks of 2.7: what every scheduler must do, who is in each step, and how many steps a queue takes."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_equal
from labs.kit.conformance import checks as suite
from labs.kit.conformance.requests import NO_MODEL, make_request
from labs.kit.conformance.simulation import Simulation
from minillm.kv.paged import PagedKV
from minillm.scheduler import SchedulerConfig

pytestmark = checks("ContinuousScheduler")


def simulation(lab, seqs=4, budget=16, num_blocks=64, block_size=4, caching=False, watermark=0.0, **config) -> Simulation:
    """No model: tokens come from arithmetic. The simulation fails where a running request misses a step."""
    kv = PagedKV(NO_MODEL, num_blocks, block_size, torch.float32, enable_prefix_caching=caching)
    return Simulation(lab.ContinuousScheduler(kv, SchedulerConfig(seqs, budget, watermark=watermark, **config)))


def add(sim, name, prompt, max_tokens, **options):
    ids = [5 + (7 * p + len(sim.live)) % 80 for p in range(prompt)]
    return sim.add(make_request(ids, max_tokens, name=name, ignore_eos=True, **options))


def step(sim) -> dict[str, int]:
    """One step; {request: tokens computed}."""
    plan = sim.step()
    return {r.request_id: n for r, n in zip(plan.requests, plan.num_new_tokens, strict=True)}


@pytest.mark.parametrize("check", suite("scheduler"), ids=lambda check: check.__name__.removeprefix("check_"))
def test_any_scheduler(lab, check):
    check(lab.ContinuousScheduler)


def test_a_freed_place_is_filled_in_the_next_step(lab):
    sim = simulation(lab, seqs=2)
    for name, answer in (("a", 2), ("b", 5), ("c", 2), ("d", 1)):
        add(sim, name, 3, answer)
    got = [step(sim) for _ in range(5)]
    expected = [{"a": 3, "b": 3}, {"a": 1, "b": 1}, {"b": 1, "c": 3}, {"b": 1, "c": 1}, {"b": 1, "d": 3}]
    assert_equal(
        got, expected, "tokens computed in each of five steps",
        inputs="2 places; prompts of 3 tokens, answers of 2, 5, 2 and 1: a is done after step 2, c after step 4",
        hint="decode all that run and compute the newcomer's prompt in one and the same step; the prompt's step gives a token",
    )  # fmt: skip


def known_beginning(lab, budget, **config):
    """A scheduler in whose cache the tokens 10 to 17 have been computed, by a request that has gone; blocks of 4."""
    sim = simulation(lab, budget=budget, caching=True, **config)
    sim.add(make_request(range(10, 18), 1, name="first"))
    sim.run(max_steps=5)
    return sim


def test_who_cannot_be_admitted_holds_nothing_and_was_not_admitted(lab):
    sim = known_beginning(lab, budget=10, enable_chunked_prefill=False)
    request = sim.add(make_request(range(10, 30), 2, name="long"))
    inputs = "enable_chunked_prefill=False, 8 of 20 tokens cached, a budget of 10"
    assert_equal(len(sim.scheduler.schedule().requests), 0, "the number of planned requests", inputs=inputs)
    inputs = "the same: kv.start found 8 computed tokens, and the other 12 are more than a step may hold"
    hint = "after kv.start, whatever stops the admission: kv.free(request) and num_computed_tokens = 0"
    got = request.block_ids, request.num_computed_tokens
    assert_equal(got, ([], 0), "its block_ids and num_computed_tokens", inputs=inputs, hint=hint)
    hint = "note_scheduled() when nothing can stop it any more: the time in the queue ends there"
    assert_equal(request.times.scheduled, None, "the time of its admission", inputs=inputs, hint=hint)


def test_whether_a_prompt_fits_a_step_is_asked_of_what_is_left_of_it(lab):
    sim = known_beginning(lab, budget=10)
    add(sim, "other", 6, 3)
    sim.add(make_request(range(10, 25), 2, name="long"))
    assert_equal(
        [step(sim) for _ in range(2)], [{"other": 6}, {"other": 1, "long": 7}], "tokens computed in two steps",
        inputs="a budget of 10; a prompt of 6 tokens, and one of 15 of which 8 are cached: 6 + 7 are over it, 1 + 7 are not",
        hint="compare what is left after kv.start with the budget: num_tokens counts what is cached, too",
    )  # fmt: skip


def test_a_single_token_is_not_committed_at_once(lab):
    sim = simulation(lab, block_size=1, caching=True)
    for length in (1, 2):
        sim.add(make_request([7, 8][:length], 1, name=f"{length} tokens"))
    assert_equal(
        step(sim), {"1 tokens": 1, "2 tokens": 2}, "tokens computed in the first step",
        inputs="blocks of 1 token; the prompts [7] and [7, 8]",
        hint="commit a newcomer at once if it has more than one token: a step computes its single tokens last",
    )  # fmt: skip


@pytest.mark.parametrize("seqs, answer", [(1, 1), (3, 7), (4, 50)])
def test_equal_answers_waste_nothing(lab, seqs, answer):
    sim = simulation(lab, seqs=seqs, budget=64)
    for i in range(5 * seqs):
        add(sim, f"r{i}", 2, answer)
    assert_equal(
        sim.run(max_steps=20 * answer + 20), 5 * answer, "the number of steps",
        inputs=f"{5 * seqs} requests, {seqs} places, {answer} tokens each",
        hint="one step a generation more means that a freed place stays empty, or is filled and not computed, for a step",
    )  # fmt: skip


@given(seqs=st.integers(1, 5), answers=st.lists(st.integers(1, 12), max_size=15))
def test_no_place_is_empty_while_somebody_waits(lab, seqs, answers):
    sim = simulation(lab, seqs=seqs, budget=64)
    for i, answer in enumerate(answers):
        add(sim, f"r{i}", 2, answer)
    while sim.live:
        expected = min(seqs, len(sim.live))
        inputs = f"{seqs} places, answers of {answers} tokens, step {sim.num_steps + 1}"
        assert_equal(len(step(sim)), expected, "requests computed in a step", inputs=inputs)


def test_the_head_of_the_queue_is_not_passed_by_what_would_fit(lab):
    sim = simulation(lab, num_blocks=6)  # 24 tokens
    add(sim, "runs", 8, 5)  # two blocks, three with its answer
    step(sim)
    add(sim, "large", 19, 1)  # five blocks: not beside "runs"
    for i in range(8):
        add(sim, f"small{i}", 2, 1)
    got = [sorted(step(sim)) for _ in range(5)]
    assert_equal(
        got[:4], [["runs"]] * 4, "who computes in steps 2 to 5",
        inputs="a cache of 6 blocks; one runs (3 blocks), one of 5 blocks is next in the queue, eight small ones come behind",
        hint="if the head does not fit, stop admitting: small requests that keep passing would keep it out for ever",
    )  # fmt: skip
    assert_equal(got[4][0], "large", "the first to compute when the cache is free", inputs="as before")


def test_a_prompt_that_fits_a_step_is_never_cut(lab):
    sim = simulation(lab, budget=10)
    add(sim, "a", 3, 3)
    add(sim, "b", 8, 2)
    add(sim, "c", 2, 1)
    assert_equal(
        [step(sim) for _ in range(5)], [{"a": 3}, {"a": 1, "b": 8}, {"a": 1, "b": 1, "c": 2}, {}, {}],
        "tokens computed in each step", inputs="a budget of 10; prompts of 3, 8 and 2 tokens: 3 + 8 are over it, 1 + 8 are not",
        hint="b waits for a step that can hold it whole, and c waits behind b",
    )  # fmt: skip


def test_a_prompt_that_no_step_can_hold_is_cut_at_once(lab):
    sim = simulation(lab, budget=10)
    add(sim, "a", 3, 4)
    add(sim, "b", 15, 2)
    got = [step(sim) for _ in range(3)]
    expected = [{"a": 3, "b": 7}, {"a": 1, "b": 8}, {"a": 1, "b": 1}]
    assert_equal(got, expected, "tokens computed in each step", inputs="a budget of 10, prompts of 3 and of 15 tokens")


def test_a_prompt_that_no_step_can_hold_waits_where_cutting_is_forbidden(lab):
    kv = PagedKV(NO_MODEL, 64, 4, torch.float32)
    scheduler = lab.ContinuousScheduler(kv, SchedulerConfig(4, 10, enable_chunked_prefill=False))
    request = make_request([7] * 15)
    scheduler.add(request)
    inputs = "a budget of 10, a prompt of 15 tokens, enable_chunked_prefill=False"
    assert_equal(len(scheduler.schedule().requests), 0, "the number of planned requests", inputs=inputs)
    assert_equal(
        (request.block_ids, request.num_computed_tokens, kv.num_free), ([], 0, 64),
        "its block_ids, its num_computed_tokens and the free blocks", inputs=inputs, hint="undo kv.start if it cannot go on",
    )  # fmt: skip
    scheduler.check_integrity()


def test_a_long_prompt_makes_nobody_miss_a_step(lab):
    """The less urgent ones stand behind the prompt: a token must be set aside for each."""
    sim = simulation(lab, budget=6, policy="priority")
    for name in "ab":
        add(sim, name, 2, 9, priority=1)
    step(sim)
    add(sim, "urgent", 20, 2, priority=0)
    got = [step(sim) for _ in range(3)]
    assert_equal(got[1:], [{"urgent": 4, "a": 1, "b": 1}] * 2, "steps 3 and 4", inputs="a budget of 6, a and b decode",
                 hint="before you give a request its share, set one token aside for each running request behind it")  # fmt: skip


def test_the_watermark_is_kept_beside_others_and_not_alone(lab):
    sim = simulation(lab, num_blocks=10, watermark=0.3, budget=64)
    add(sim, "fills", 16, 5, priority=0)
    assert_equal(step(sim), {"fills": 16}, "the first step", inputs="10 blocks, 4 are needed, watermark 0.3")
    add(sim, "second", 16, 1)  # four more blocks leave two
    got = [sorted(step(sim)) for _ in range(2)]
    assert_equal(got, [["fills"]] * 2, "who computes", inputs="4 of 10 blocks taken, 4 wanted, 3 to stay free",
                 hint="pass keep_free=self._keep_free if anybody runs")  # fmt: skip
    together = simulation(lab, num_blocks=10, watermark=0.3, budget=64)
    for name in ("first", "second"):
        add(together, name, 16, 5)
    assert_equal(step(together), {"first": 16}, "the first step", inputs="the same two, waiting side by side",
                 hint="whoever was admitted in this very step runs, too")  # fmt: skip
    alone = simulation(lab, num_blocks=4, watermark=0.5)
    add(alone, "all", 16, 1)
    planned = [request.request_id for request in alone.scheduler.schedule().requests]
    assert_equal(planned, ["all"], "who computes", inputs="one request, which fills all 4 blocks; watermark 0.5; nobody runs",
                 hint="keep_free=0 if nobody runs, or what fills the cache could never begin")  # fmt: skip


def test_who_gave_way_comes_before_newcomers(lab):
    sim = simulation(lab, seqs=3, num_blocks=4, block_size=4)
    for name in "ab":
        add(sim, name, 8, 4)
    step(sim)  # both hold two blocks: all four
    add(sim, "new", 1, 1)
    plan = sim.step()
    assert_equal([r.request_id for r in plan.preempted], ["b"], "who gave way", inputs="a cache of 4 blocks, a wants a fifth")
    assert_equal([r.request_id for r in plan.requests], ["a"], "who computes in that step", inputs="the same",
                 hint="admit nobody in a step in which somebody gave way")  # fmt: skip
    sim.run(max_steps=40)
    assert_equal(sim.finished[0].request_id, "a", "the first to be done", inputs="the same")


def test_the_same_text_in_one_step_is_shared(lab):
    sim = simulation(lab, budget=64, caching=True)
    for name in "abc":
        sim.add(make_request(range(10, 22), 2, name=name))
    assert_equal(step(sim), {"a": 12, "b": 4, "c": 4}, "the first step", inputs="three times the same 12 tokens, blocks of 4",
                 hint="commit what a newcomer computes before you start the next")  # fmt: skip


def test_every_piece_of_a_prompt_is_committed(lab):
    sim = simulation(lab, budget=8, caching=True)
    for name in ("first", "again"):
        request = sim.add(make_request(range(10, 26), 1, name=name))
        sim.run(max_steps=10)
    assert_equal(
        request.num_cached_tokens, 12, "tokens found in the cache by the same prompt, asked later",
        inputs="16 tokens, computed as 8 and 8; blocks of 4, of which the last must be computed again",
        hint="commit what running requests compute, too",
    )  # fmt: skip


def test_the_time_of_admission_is_noted(lab):
    sim = simulation(lab, seqs=1)
    first, second = add(sim, "a", 2, 3), add(sim, "b", 2, 1)
    step(sim)
    assert first.times.scheduled is not None, "call note_scheduled() on whom you admit: the queue's length is measured by it"
    assert second.times.scheduled is None, "b still waits, and note_scheduled() was called"


def test_it_beats_a_static_batch_by_what_the_longest_costs(lab):
    rng = random.Random(7)
    answers = [rng.randint(1, 128) for _ in range(512)]
    sim = simulation(lab, seqs=8, budget=64, num_blocks=512)
    for i, answer in enumerate(answers):
        add(sim, f"r{i}", 1, answer)
    static = sum(max(answers[i : i + 8]) for i in range(0, 512, 8))
    gain = static / sim.run(max_steps=static + 1)
    said = "8 places, 512 answers of 1 to 128 tokens: a static batch needs"
    assert 1.7 < gain < 1.9, f"{said} {gain:.2f} times as many steps, and should need 1.8 times as many"
