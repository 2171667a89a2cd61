"""The scheduler alone, with a cache but no model: tokens are made up."""

import itertools
import random

import pytest
import torch

from minillm.config import ModelConfig
from minillm.kv.contiguous import ContiguousKV
from minillm.request import FinishReason, Request, SampledToken, SamplingParams
from minillm.scheduler import Scheduler, SchedulerConfig

TINY = ModelConfig("llama", 10, 8, 8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, max_position_embeddings=64)
EOS = 2


def make(num_rows=4, max_num_seqs=4, budget=16, max_len=64) -> Scheduler:
    return Scheduler(ContiguousKV(TINY, num_rows, max_len, torch.float32), SchedulerConfig(max_num_seqs, budget))


SERIAL = itertools.count()


def request(name: str, prompt_len: int = 3, max_tokens: int = 4, **params) -> Request:
    p = SamplingParams(max_tokens=None, **params)
    return Request(name, [5] * prompt_len, prompt_len, p, max_tokens, 0, frozenset({EOS}), serial=next(SERIAL))


def step(scheduler: Scheduler, token=7):
    """One step; returns {name: tokens computed} and the step's outputs."""
    plan = scheduler.schedule()
    given = {r.request_id: n for r, n in zip(plan.requests, plan.num_new_tokens, strict=True)}
    tokens = [SampledToken(token) for i in range(len(plan.requests)) if plan.yields_token(i)]
    outputs = scheduler.update(plan, tokens)
    scheduler.check_integrity()
    return given, outputs


def test_one_budget_covers_prefill_chunks_and_decodes_alike():
    s = make(budget=10)
    s.add(request("long", prompt_len=25))
    assert step(s)[0] == {"long": 10}
    s.add(request("short", prompt_len=3))
    assert step(s)[0] == {"long": 10}, "running requests come first"
    assert step(s)[0] == {"long": 5, "short": 3}
    assert step(s)[0] == {"long": 1, "short": 1}


def test_no_token_before_the_whole_prompt_is_computed():
    s = make(budget=8)
    s.add(request("a", prompt_len=20))
    assert [len(step(s)[1]) for _ in range(4)] == [0, 0, 1, 1]


def test_a_freed_place_is_taken_in_the_next_step_in_order_of_arrival():
    s = make(max_num_seqs=2)
    for name, n in (("a", 1), ("b", 3), ("c", 1), ("d", 1)):
        s.add(request(name, max_tokens=n))
    assert list(step(s)[0]) == ["a", "b"]
    assert list(step(s)[0]) == ["b", "c"]
    assert list(step(s)[0]) == ["b", "d"]
    assert not s.running and not s.waiting and s.kv.num_free == 4


def test_a_full_cache_makes_requests_wait_and_loses_none():
    s = make(num_rows=1)
    for name in "abc":
        s.add(request(name, max_tokens=2))
    finished = []
    for _ in range(6):
        finished += [o.request.request_id for o in step(s)[1] if o.finish_reason]
    assert finished == ["a", "b", "c"]


@pytest.mark.parametrize("token, params, reason, stop_reason", [
    (EOS, {}, FinishReason.STOP, None),
    (9, {"stop_token_ids": (9,)}, FinishReason.STOP, 9),
    (EOS, {"ignore_eos": True}, None, None),
    (EOS, {"min_tokens": 2}, None, None),
    (7, {}, None, None),
])  # fmt: skip
def test_how_a_request_ends(token, params, reason, stop_reason):
    s = make()
    s.add(request("a", **params))
    (output,) = step(s, token)[1]
    assert (output.finish_reason, output.request.stop_reason) == (reason, stop_reason)


def test_eos_on_the_last_allowed_token_counts_as_stop():
    s = make()
    s.add(request("a", max_tokens=1))
    assert step(s, EOS)[1][0].finish_reason == FinishReason.STOP
    s.add(request("b", max_tokens=1))
    assert step(s, 7)[1][0].finish_reason == FinishReason.LENGTH


def test_finish_from_outside_frees_a_running_and_a_waiting_request():
    s = make(max_num_seqs=1)
    a, b = request("a"), request("b")
    s.add(a), s.add(b)
    step(s)
    s.finish(b, FinishReason.ABORT)
    s.finish(a, FinishReason.STOP)
    s.finish(a, FinishReason.ABORT)  # the first reason stays
    assert (a.finish_reason, b.finish_reason) == (FinishReason.STOP, FinishReason.ABORT)
    assert step(s)[0] == {} and s.kv.num_free == 4


def test_random_traffic_keeps_the_books_and_starves_nobody():
    rng = random.Random(1)
    s = make(num_rows=5, max_num_seqs=4, budget=12)
    live, waited, done = {}, {}, 0
    for i in range(6000):
        if len(live) < 30 and rng.random() < 0.4:
            r = request(f"r{i}", rng.randint(1, 50), rng.randint(1, 14))
            live[r.request_id], waited[r.request_id] = r, 0
            s.add(r)
        if live and rng.random() < 0.1:
            r = live.pop(rng.choice(list(live)))
            s.finish(r, FinishReason.ABORT)
        given, outputs = step(s, rng.choice([7, 8, EOS]))
        assert sum(given.values()) <= 12
        decoding = [r for r in s.running if r.num_output_tokens > 0]
        for r in live.values():
            waited[r.request_id] = 0 if r.request_id in given else waited[r.request_id] + 1
        assert not given or sum(n for n in given.values()) > 0
        assert all(waited[r.request_id] <= 5 for r in decoding), "a running decode must not starve"
        # 30 live requests of at most 64 tokens each share 12 a step: nobody waits longer than all the others take
        assert max(waited.values(), default=0) <= 30 * 64
        for o in outputs:
            if o.finish_reason:
                live.pop(o.request.request_id)
                waited.pop(o.request.request_id)
                done += 1
        waited = {k: v for k, v in waited.items() if k in live}
    assert done > 500
