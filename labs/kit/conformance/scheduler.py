"""Checks for a scheduler: what the token budget and the older ones all keep. subject: its class, called as (kv, config)."""

from __future__ import annotations

import random

import torch

from labs.kit.conformance.requests import EOS, NO_MODEL, make_request
from labs.kit.conformance.simulation import Simulation, arithmetic_model
from minillm.kv.paged import PagedKV
from minillm.request import FinishReason
from minillm.scheduler import SchedulerConfig


def _simulation(subject, num_blocks=32, block_size=4, seqs=4, budget=16, model=arithmetic_model, **config) -> Simulation:
    kv = PagedKV(NO_MODEL, num_blocks, block_size, torch.float32)
    return Simulation(subject(kv, SchedulerConfig(seqs, budget, **config)), model, serves_all=False)


def check_nothing_to_do_is_an_empty_plan(subject):
    simulation = _simulation(subject)
    assert not simulation.step()


def check_one_request_from_prompt_to_end(subject):
    simulation = _simulation(subject)
    request = simulation.add(make_request(range(10, 15), max_tokens=4))
    plans = [(plan.requests, plan.num_new_tokens) for plan in (simulation.step() for _ in range(4))]
    assert plans == [([request], [5])] + [([request], [1])] * 3, f"5 prompt tokens and 4 of answer were computed as {plans}"
    assert request.finish_reason == FinishReason.LENGTH and not simulation.live


def check_a_prompt_longer_than_the_budget_is_computed_in_chunks(subject):
    simulation = _simulation(subject, budget=8)
    request = simulation.add(make_request(range(10, 30), max_tokens=2))
    counts = [simulation.step().num_new_tokens for _ in range(4)]
    assert counts == [[8], [8], [4], [1]], f"20 tokens at 8 a step were computed as {counts}"
    assert request.num_output_tokens == 2, "the first token comes with the prompt's last chunk, none before"


def check_long_prefill_token_threshold_bounds_a_chunk(subject):
    simulation = _simulation(subject, budget=16, long_prefill_token_threshold=3)
    simulation.add(make_request(range(10, 17), max_tokens=1))
    counts = [simulation.step().num_new_tokens for _ in range(3)]
    assert counts == [[3], [3], [1]], f"7 tokens, at most 3 a step, were computed as {counts}"


def check_without_chunked_prefill_prompts_are_computed_whole(subject):
    simulation = _simulation(subject, budget=16, enable_chunked_prefill=False)
    for start in (10, 30, 50):
        simulation.add(make_request(range(start, start + 11), max_tokens=3))
    while simulation.live:
        plan = simulation.step()
        assert set(plan.num_new_tokens) <= {1, 11}, f"a prompt of 11 tokens was cut: {plan.num_new_tokens}"


def check_first_come_first_served(subject):
    simulation = _simulation(subject, seqs=2)
    requests = [simulation.add(make_request([10 + i] * 3, max_tokens=2)) for i in range(6)]
    order = []
    while simulation.live:
        order += [request for request in simulation.step().requests if request not in order]
    assert order == requests, f"asked in order, served as {[r.request_id for r in order]}"


def check_priority_goes_before_arrival(subject):
    simulation = _simulation(subject, seqs=1, policy="priority")
    low, middle, high, high_later = (simulation.add(make_request([10 + p] * 3, priority=p)) for p in (5, 3, 1, 1))
    simulation.run(max_steps=100)
    assert simulation.finished == [high, high_later, middle, low], "a lower number goes first, equal ones by arrival"


def check_the_end_frees_and_the_place_is_taken(subject):
    simulation = _simulation(subject, seqs=1, model=lambda request: EOS)
    first, second = (simulation.add(make_request([10 + i] * 3)) for i in range(2))
    assert simulation.step().requests == [first] and first.finish_reason == FinishReason.STOP
    assert simulation.step().requests == [second]


def check_finish_from_outside_waiting_or_running(subject):
    simulation = _simulation(subject, seqs=1)
    running, waiting, third = (simulation.add(make_request([10 + i] * 3)) for i in range(3))
    simulation.step()
    simulation.abort(waiting)
    simulation.abort(running)
    simulation.scheduler.finish(running, FinishReason.STOP)  # again, for another reason: ignored
    assert (running.finish_reason, waiting.finish_reason) == (FinishReason.ABORT, FinishReason.ABORT)
    assert simulation.step().requests == [third], "an aborted request is still in somebody's way"


def check_preempted_requests_lose_nothing(subject):
    """A cache of 6 blocks of 4 for three requests that grow to 16 tokens each: 12 blocks."""
    simulation = _simulation(subject, num_blocks=6, watermark=0)
    requests = [simulation.add(make_request(range(start, start + 6), max_tokens=10)) for start in (10, 30, 50)]
    simulation.run(max_steps=400)
    assert sum(request.num_preemptions for request in requests) > 0, "12 blocks cannot come from 6 without a preemption"
    assert [request.num_output_tokens for request in requests] == [10, 10, 10]


def check_a_full_cache_delays_and_drops_nobody(subject):
    simulation = _simulation(subject, num_blocks=4)
    requests = [simulation.add(make_request([10 + i] * 13, max_tokens=3)) for i in range(5)]
    simulation.run(max_steps=200)
    assert simulation.finished == requests


def check_a_repeated_prompt_is_computed_once(subject):
    simulation = _simulation(subject)
    first, again = (simulation.add(make_request(range(10, 22), max_tokens=1)) for _ in range(2))
    plan = simulation.step()
    counts = dict(zip([r.request_id for r in plan.requests], plan.num_new_tokens, strict=True))
    assert counts == {first.request_id: 12, again.request_id: 4}, f"12 tokens, 8 of them in full blocks before the last: {counts}"
    assert again.num_cached_tokens == 8, f"note_scheduled() notes what was found: 8 tokens, not {again.num_cached_tokens}"


def check_random_traffic(subject):
    """Everything at once, on pools that are too small. Each step is checked by the simulation."""
    rng = random.Random(0)
    for num_blocks, policy, watermark in ((6, "fcfs", 0.0), (9, "priority", 0.2), (20, "fcfs", 0.01)):
        simulation = _simulation(subject, num_blocks, seqs=3, budget=rng.choice([3, 7, 12]), policy=policy, watermark=watermark)
        for _ in range(400):
            if len(simulation.live) < 8 and rng.random() < 0.4:
                prompt = [3, 4, 5, 6, 7, 8, 9, 3, 4][: rng.randint(1, 9)] + [rng.randint(3, 5) for _ in range(rng.randint(0, 4))]
                simulation.add(make_request(prompt, rng.randint(1, 10), priority=rng.randint(0, 2)))
            if simulation.live and rng.random() < 0.1:
                simulation.abort(rng.choice(simulation.live))
            simulation.step()
        simulation.run(max_steps=2000)
