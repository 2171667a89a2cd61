"""What distinguishes the four schedulers, and who gives way when the cache is full. Without a model."""

import pytest
import torch

from labs.kit.conformance.requests import NO_MODEL, make_request
from labs.kit.conformance.simulation import Simulation
from minillm.kv.paged import PagedKV
from minillm.kv.prefix import match_prefix
from minillm.scheduler import Scheduler, SchedulerConfig
from minillm.schedulers import ContinuousScheduler, PrefillFirstScheduler, StaticScheduler


def simulation(
    kind=Scheduler, num_blocks=64, block_size=4, seqs=4, budget=16, watermark=0.0, caching=True, **config
) -> Simulation:
    kv = PagedKV(NO_MODEL, num_blocks, block_size, torch.float32, enable_prefix_caching=caching)
    scheduler = kind(kv, SchedulerConfig(seqs, budget, watermark=watermark, **config))
    return Simulation(scheduler, serves_all=kind is not PrefillFirstScheduler)


def prompt(i: int, length: int) -> list[int]:
    return [100 * (i + 1) + p for p in range(length)]


def add(sim: Simulation, i: int, length: int, max_tokens: int = 4, **options):
    return sim.add(make_request(prompt(i, length), max_tokens, name=f"r{i}", ignore_eos=True, **options))


def step(sim: Simulation) -> dict[str, int]:
    """One step; {name: tokens computed}."""
    plan = sim.step()
    return {r.request_id: n for r, n in zip(plan.requests, plan.num_new_tokens, strict=True)}


def test_a_long_prompt_leaves_every_running_request_a_token():
    sim = simulation(budget=10)
    add(sim, 0, 3, max_tokens=20)
    assert step(sim) == {"r0": 3}
    add(sim, 1, 30)
    add(sim, 2, 30)
    assert step(sim) == {"r0": 1, "r1": 9}
    assert step(sim) == {"r0": 1, "r1": 9}
    assert step(sim) == {"r0": 1, "r1": 9}
    assert step(sim) == {"r0": 1, "r1": 3, "r2": 6}
    assert step(sim) == {"r0": 1, "r1": 1, "r2": 8}


def test_of_two_long_prompts_that_run_the_later_gets_at_least_one_token():
    sim = simulation(budget=10, long_prefill_token_threshold=6)
    add(sim, 0, 30)
    add(sim, 1, 30)
    assert step(sim) == {"r0": 6, "r1": 4}
    assert step(sim) == {"r0": 6, "r1": 4}


@pytest.mark.parametrize("kind, steps", [
    (Scheduler, [{"r0": 5}, {"r0": 1, "r1": 15}, {"r0": 1, "r1": 5}, {"r0": 1, "r1": 1}]),
    (StaticScheduler, [{"r0": 5}, {"r0": 1}, {"r0": 1}, {"r0": 1}, {"r1": 16}, {"r1": 4}]),
    # one that arrives makes those that decode miss a step; a prompt in chunks goes on beside them
    (PrefillFirstScheduler, [{"r0": 5}, {"r1": 16}, {"r0": 1, "r1": 4}, {"r0": 1, "r1": 1}]),
])  # fmt: skip
def test_an_arrival_during_a_decode(kind, steps):
    sim = simulation(kind)
    add(sim, 0, 5)
    assert step(sim) == steps[0]
    add(sim, 1, 20)
    assert [step(sim) for _ in steps[1:]] == steps[1:]


def test_a_static_batch_fills_up_until_its_first_token_is_out():
    sim = simulation(StaticScheduler, budget=8)
    add(sim, 0, 12, max_tokens=2)
    assert step(sim) == {"r0": 8}
    add(sim, 1, 3, max_tokens=1)
    assert step(sim) == {"r0": 4, "r1": 3}
    add(sim, 2, 3)
    assert step(sim) == {"r0": 1}
    assert step(sim) == {"r2": 3}


def test_prefill_first_admits_several_prompts_in_one_step_and_decodes_all_after():
    sim = simulation(PrefillFirstScheduler)
    for i in range(3):
        add(sim, i, 5)
    assert step(sim) == {"r0": 5, "r1": 5, "r2": 5}
    assert step(sim) == {"r0": 1, "r1": 1, "r2": 1}


def test_prefill_first_finishes_a_prompt_in_chunks_before_it_admits_another():
    sim = simulation(PrefillFirstScheduler, budget=8)
    add(sim, 0, 12)
    assert step(sim) == {"r0": 8}
    add(sim, 1, 3)
    assert step(sim) == {"r0": 4}
    assert step(sim) == {"r1": 3}


def test_who_came_last_gives_way_and_comes_back_first():
    sim = simulation(num_blocks=5, seqs=3)
    first, second = (add(sim, i, 7, max_tokens=10) for i in range(2))
    third = add(sim, 2, 3)
    assert step(sim) == {"r0": 7, "r1": 7, "r2": 2}
    assert step(sim) == {"r0": 1, "r1": 1, "r2": 1}  # 8, 8 and 3 tokens in 5 blocks
    assert step(sim) == {"r0": 1}, "it needs a third block, and so does the second, which is the last by then"
    assert (first.num_preemptions, second.num_preemptions, third.num_preemptions) == (0, 1, 1)
    assert sim.scheduler.waiting == [second, third], "in order of arrival, ahead of whoever comes later"
    late = add(sim, 3, 3)
    assert sim.scheduler.waiting == [second, third, late]


def test_under_priority_the_least_urgent_gives_way_though_it_came_first():
    sim = simulation(num_blocks=4, policy="priority")
    slow = add(sim, 0, 7, priority=5)
    step(sim)
    urgent = add(sim, 1, 7, priority=1)
    step(sim)
    step(sim)
    assert (slow.num_preemptions, urgent.num_preemptions) == (1, 0)


def test_nobody_is_admitted_in_a_step_that_preempts():
    sim = simulation(num_blocks=4)
    add(sim, 0, 8)
    second = add(sim, 1, 7)
    assert step(sim) == {"r0": 8, "r1": 7}
    add(sim, 2, 1)
    assert step(sim) == {"r0": 1} and second.num_preemptions == 1


def test_a_request_that_finds_no_room_holds_up_those_behind():
    """Small ones must not slip past, or a stream of them starves it."""
    sim = simulation(num_blocks=6)
    add(sim, 0, 15, max_tokens=2)
    step(sim)
    add(sim, 1, 13)
    add(sim, 2, 1)
    assert step(sim) == {"r0": 1}
    assert step(sim) == {"r1": 13, "r2": 1}


@pytest.mark.parametrize("watermark, admitted", [(0.0, True), (0.25, True), (0.5, False)])
def test_the_watermark_keeps_room_to_grow_for_those_who_run(watermark, admitted):
    sim = simulation(num_blocks=8, watermark=watermark)
    add(sim, 0, 7)
    step(sim)
    add(sim, 1, 16)  # 4 of the 6 blocks that are free
    assert ("r1" in step(sim)) is admitted


def test_the_watermark_does_not_bar_a_request_that_is_alone():
    sim = simulation(num_blocks=8, watermark=0.9)
    add(sim, 0, 16)
    assert step(sim) == {"r0": 16}


def test_a_preempted_request_computes_only_what_the_cache_has_lost():
    sim = simulation(num_blocks=6, budget=32)
    add(sim, 0, 11, max_tokens=3)
    second = add(sim, 1, 11, max_tokens=6)
    assert step(sim) == {"r0": 11, "r1": 11}
    assert step(sim) == {"r0": 1, "r1": 1}
    assert step(sim) == {"r0": 1} and second.num_preemptions == 1 and second.num_computed_tokens == 0
    assert step(sim) == {"r1": 5}, "13 known tokens; two blocks were found, the third was overwritten"


def test_a_step_in_which_the_last_gives_way_to_itself_still_names_the_others_blocks():
    """Requests already in the plan are computed in this step whatever happens behind them: their full blocks can be found."""
    sim = simulation(num_blocks=4)
    first, second = add(sim, 0, 6, max_tokens=9), add(sim, 1, 7, max_tokens=9)
    for _ in range(2):
        step(sim)
    assert step(sim) == {"r0": 1} and second.num_preemptions == 1  # the first's eighth token, which fills its second block
    sharer = make_request([*first.token_ids[:8], 1])
    assert len(match_prefix(sharer, sim.scheduler.kv.block_size, sim.scheduler.kv.pool)) == 2


def test_continuous_computes_a_prompt_that_fits_one_step_in_one_step():
    sim = simulation(ContinuousScheduler, budget=10)
    add(sim, 0, 3, max_tokens=3)
    add(sim, 1, 10, max_tokens=1)
    add(sim, 2, 2, max_tokens=1)
    steps = [step(sim) for _ in range(4)]
    assert steps == [{"r0": 3}, {"r0": 1}, {"r0": 1}, {"r1": 10}], "r2 would have fitted, and waits behind r1"


def test_continuous_cuts_a_prompt_that_no_step_can_hold():
    sim = simulation(ContinuousScheduler, budget=10)
    add(sim, 0, 3, max_tokens=4)
    add(sim, 1, 15, max_tokens=2)
    assert [step(sim) for _ in range(3)] == [{"r0": 3, "r1": 7}, {"r0": 1, "r1": 8}, {"r0": 1, "r1": 1}]
