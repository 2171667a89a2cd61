"""Sampling parameters on their way through a running engine: chunks, batch-mates and preemption must not show."""

import dataclasses

import pytest

from minillm.errors import RequestError
from minillm.request import FinishReason, SamplingParams
from minillm.scheduler import SchedulePlan

PROMPT = [(7 * i + 3) % 290 + 5 for i in range(60)]
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}


def run(llm, *wishes, prompt=PROMPT):
    """Every request's deltas, all running together."""
    requests = [r for params in wishes for r in llm.engine.make_requests(prompt, params)]
    deltas = {r.request_id: [] for r in requests}
    for request in requests:
        llm.engine.add(request)
    while llm.engine.has_unfinished:
        for output in llm.engine.step_text():
            deltas[output.request_id].append(output)
        llm.engine.scheduler.check_integrity()
    return list(deltas.values()), requests


def tokens(deltas):
    return [token for delta in deltas for token in delta.token_ids]


def approx(entries):
    """One token's logprobs, comparable across batch shapes."""
    return entries and [(e.token_id, pytest.approx(e.logprob, abs=1e-4), e.rank) for e in entries]


def plain(entries):
    return entries and [(e.token_id, e.logprob, e.rank) for e in entries]


def test_logprobs_come_with_the_tokens_of_each_delta(tiny_llm):
    (deltas, silent), _ = run(tiny_llm(), SamplingParams(**GREEDY, logprobs=3), SamplingParams(**GREEDY))
    for delta in deltas:
        ((own, *likeliest),) = delta.logprobs
        assert own.token_id == delta.token_ids[0] == likeliest[0].token_id and own.rank == 1 and len(likeliest) == 3
        assert delta.prompt_logprobs is None
    assert all(delta.logprobs is None and delta.prompt_logprobs is None for delta in silent)


SCHEDULES = [
    {},
    {"max_num_seqs": 1},
    {"max_num_seqs": 4, "max_num_batched_tokens": 7},
    {"long_prefill_token_threshold": 1},
    {"kv": "contiguous", "max_num_batched_tokens": 32},
    {"scheduler": "static"},
    {"scheduler": "prefill_first", "max_num_batched_tokens": 40},
]


@pytest.mark.parametrize("options", SCHEDULES, ids=str)
def test_prompt_logprobs_are_whole_once_and_the_same_under_any_schedule(tiny_llm, options):
    wish = SamplingParams(**GREEDY, prompt_logprobs=2)
    ((expected,), _) = run(tiny_llm(), wish)
    llm = tiny_llm(**options)
    run(llm, SamplingParams(**GREEDY))  # fills the prefix cache, which has no logits to offer
    all_deltas, _ = run(llm, SamplingParams(temperature=1.0, seed=1, max_tokens=20), wish, SamplingParams(**GREEDY), wish)
    for deltas in (all_deltas[1], all_deltas[3]):
        assert [d.prompt_logprobs is None for d in deltas] == [False] + [True] * 7
        got = deltas[0].prompt_logprobs
        assert len(got) == len(PROMPT) and got[0] is None
        assert [entries[0].token_id for entries in got[1:]] == PROMPT[1:]
        assert [plain(entries) for entries in got] == [approx(entries) for entries in expected[0].prompt_logprobs]
    assert all(d.prompt_logprobs is None for d in all_deltas[0] + all_deltas[2])


def test_a_preemption_repeats_nothing(tiny_llm):
    wishes = [SamplingParams(temperature=t, seed=5, max_tokens=40, ignore_eos=True, logprobs=1, prompt_logprobs=1,
                             repetition_penalty=1.2, frequency_penalty=0.5, min_tokens=40) for t in (0, 1.0, 0.7)]  # fmt: skip
    alone = [run(tiny_llm(), wish)[0][0] for wish in wishes]
    together, requests = run(tiny_llm(block_size=4, kv_cache_memory_bytes=128 * 256), *wishes)
    assert sum(r.num_preemptions for r in requests) > 0, "the cache was to be too small for all"
    assert [len(r.prompt_logprobs) for r in requests] == [len(PROMPT) - 1] * 3
    for got, expected in zip(together, alone, strict=True):
        assert tokens(got) == tokens(expected)
        assert [plain(d.logprobs[0]) for d in got] == [approx(d.logprobs[0]) for d in expected]
        assert [plain(e) for e in got[0].prompt_logprobs] == [approx(e) for e in expected[0].prompt_logprobs]


def test_a_preemption_within_the_prompt_repeats_nothing(tiny_llm):
    wish = SamplingParams(**GREEDY, prompt_logprobs=1)
    ((expected,), _) = run(tiny_llm(), wish)
    llm = tiny_llm(max_num_batched_tokens=32)
    (request,) = llm.engine.make_requests(PROMPT, wish)
    llm.engine.add(request)
    llm.engine.step()
    assert len(request.prompt_logprobs) == 32
    scheduler = llm.engine.scheduler
    assert scheduler._preempt_last(SchedulePlan()) is request and request.num_computed_tokens == 0
    scheduler.config = dataclasses.replace(scheduler.config, max_num_batched_tokens=50)  # the next chunk ends elsewhere
    (first, *_) = [d for _ in range(2) for d in llm.engine.step_text()]
    assert [plain(e) for e in first.prompt_logprobs] == [approx(e) for e in expected[0].prompt_logprobs]


def test_a_prompt_of_one_token_has_one_entry_and_no_logprob(tiny_llm):
    ((deltas,), _) = run(tiny_llm(), SamplingParams(**GREEDY, prompt_logprobs=5), prompt=[9])
    assert deltas[0].prompt_logprobs == [None]


def test_long_prompts_logits_are_taken_a_piece_at_a_time(tiny_llm, monkeypatch):
    wish = SamplingParams(**GREEDY, prompt_logprobs=1)
    ((expected,), _) = run(tiny_llm(), wish)
    monkeypatch.setattr("minillm.runner.LOGPROB_ROWS", 9)
    llm, sizes = tiny_llm(), []
    logits = llm.engine.runner.model.logits
    llm.engine.runner.model.logits = lambda hidden: sizes.append(len(hidden)) or logits(hidden)
    ((deltas,), _) = run(llm, wish)
    assert sizes[:8] == [9] * 6 + [5, 1] and set(sizes[8:]) == {1}
    assert [plain(e) for e in deltas[0].prompt_logprobs] == [approx(e) for e in expected[0].prompt_logprobs]


def test_min_tokens_holds_every_end_off_and_then_lets_it_come(tiny_llm):
    bias = {2: 100.0, 7: 90.0}  # 2 is the end-of-sequence token; 7 is asked to stop
    for n in (1, 4):
        wish = SamplingParams(temperature=0, max_tokens=10, min_tokens=n, logit_bias=bias, stop_token_ids=(7,))
        ((deltas,), (request,)) = run(tiny_llm(), wish)
        assert len(tokens(deltas)) == n + 1 and tokens(deltas)[-1] == 2 and not {2, 7} & set(tokens(deltas)[:-1])
        assert request.finish_reason is FinishReason.STOP


def test_penalties_see_the_answer_grow(tiny_llm):
    """With a penalty that outweighs all logits, no token comes a second time."""
    wish = {"temperature": 0, "max_tokens": 30, "ignore_eos": True, "logit_bias": {5: 60.0}}
    (free, deltas), _ = run(tiny_llm(), SamplingParams(**wish), SamplingParams(**wish, repetition_penalty=1e6), prompt=[5, 6, 7])
    assert set(tokens(free)) == {5}
    assert not {5, 6, 7} & set(tokens(deltas)) and len(set(tokens(deltas))) == 30


@pytest.mark.parametrize("wish, field", [
    ({"logit_bias": {300: 1.0}}, "logit_bias"),
    ({"logit_bias": {-1: 1.0}}, "logit_bias"),
    ({"stop_token_ids": (5, 300)}, "stop_token_ids"),
])  # fmt: skip
def test_ids_outside_the_vocabulary_are_refused(tiny_llm, wish, field):
    with pytest.raises(RequestError, match="0 to 299") as e:
        tiny_llm().engine.make_requests([5], SamplingParams(**wish))
    assert e.value.param == field
