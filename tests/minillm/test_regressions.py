"""Faults that other small engines have shipped: one test for each kind, at the level where a user would have met it.

kind                                                                covered
prompt or growth larger than the cache                              here
a prompt fully covered by cached blocks                             here; kv/test_paged.py
prefix hit after preemption, one token past a full block            here; kv/test_paged.py
two requests with one prefix in one step                            here; kv/test_blocks.py, kv/test_paged.py
temperature 0 refused; greedy and random rows mixed                 here; conformance/ (sampler)
eviction counted in tokens; evictable size counted twice            here; kv/test_paged.py (room beside what is found free)
prefill starves decode under load                                   here; test_scheduler_random.py (the bound)
stop string inside a token or across tokens; partial text shown     text/test_stop.py, text/test_output.py; conformance/
preemption resets a seeded generator                                here; test_schedules.py
over-long prompt dropped silently; finish_reason always "stop"      here
request fields parsed and ignored                                   server/test_errors.py
two EOS ids                                                         here
double BOS                                                          text/test_chat.py, text/test_tokenizer.py
duplicate insert in a radix tree; its locks; speculation; ranks     with those parts
cold first request, chunks counted as tokens, closed-loop latency   with the load generator
a step that died leaves names of blocks nobody filled               here (ours)
"""

import pytest

from minillm.errors import ConfigError, RequestError
from minillm.request import FinishReason, SamplingParams

PER_TOKEN = 256  # bytes of the tiny model's cache


def greedy(max_tokens: int, **params) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **{"ignore_eos": True, **params})


def run(engine, prompts, params, **options):
    """All at once, to the end; fails rather than hang."""
    requests = [engine.make_requests(list(p), q, **options)[0] for p, q in zip(prompts, params, strict=True)]
    for request in requests:
        engine.add(request)
    for _ in range(2000):
        if not engine.has_unfinished:
            return requests
        engine.step_text()
        engine.scheduler.check_integrity()
    raise AssertionError(f"{[r.request_id for r in requests if not r.is_finished]} hang")


@pytest.mark.parametrize("options", [{}, {"scheduler": "static"}, {"scheduler": "prefill_first"}, {"kv": "contiguous"}], ids=str)
def test_larger_than_the_cache_is_refused_and_as_large_runs(tiny_llm, options):
    engine = tiny_llm(block_size=4, kv_cache_memory_bytes=32 * PER_TOKEN, max_model_len=32, **options).engine
    (whole,) = run(engine, [range(3, 31)], [greedy(4)])
    assert whole.num_output_tokens == 4
    for prompt, max_tokens in ((range(3, 35), 1), (range(3, 31), 5), (range(3, 60), None)):
        with pytest.raises(RequestError, match="32"):
            engine.make_requests(list(prompt), greedy(max_tokens))
    requests = run(engine, [range(i, i + 20) for i in range(3, 8)], [greedy(12)] * 5)  # together five times the cache
    assert [r.num_output_tokens for r in requests] == [12] * 5


def test_growth_past_the_whole_cache_is_refused_at_once(tiny_llm):
    """An engine built by hand may have a cache smaller than max_model_len."""
    engine = tiny_llm(block_size=4, kv_cache_memory_bytes=32 * PER_TOKEN, max_model_len=32).engine
    engine.admission.max_model_len = 64
    with pytest.raises(RequestError, match="outgrow the whole cache"):
        engine.make_requests([5] * 30, greedy(3))
    (as_large,) = engine.make_requests([5] * 30, greedy(2))
    assert as_large.max_tokens == 2 and not engine.has_unfinished


def test_min_tokens_that_the_context_cannot_hold_is_refused(tiny_llm):
    with pytest.raises(RequestError, match="room for 4") as e:
        tiny_llm(max_model_len=16).engine.make_requests([5] * 12, SamplingParams(max_tokens=None, min_tokens=5))
    assert e.value.param == "min_tokens"


@pytest.mark.parametrize("length", [4, 8, 9])
def test_a_prompt_fully_cached(tiny_llm, length):
    engine, prompt = tiny_llm(block_size=4).engine, range(10, 10 + length)
    first, again = (run(engine, [prompt], [greedy(6)])[0] for _ in range(2))
    assert first.output_token_ids == again.output_token_ids
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, (length - 1) // 4 * 4)


def test_two_requests_with_one_prefix_in_one_step(tiny_llm):
    engine, prompt = tiny_llm(block_size=4).engine, range(10, 30)
    together = run(engine, [prompt] * 3, [greedy(9)] * 3)
    alone = run(tiny_llm(enable_prefix_caching=False).engine, [prompt], [greedy(9)])[0]
    assert [r.output_token_ids for r in together] == [alone.output_token_ids] * 3
    assert [r.num_cached_tokens for r in together] == [0, 16, 16]


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("block_size", [1, 4, 8])
def test_preempted_and_found_again(tiny_llm, block_size, seeded):
    """No token is lost, none repeated, and a seeded draw goes on where it was."""
    sampled = {"temperature": 1.0, "seed": 3} if seeded else {"temperature": 0}
    params = [SamplingParams(max_tokens=24, ignore_eos=True, **sampled)] * 3
    prompts = [range(start, start + 8) for start in (10, 40, 70)]
    small = tiny_llm(block_size=block_size, kv_cache_memory_bytes=40 * PER_TOKEN, max_model_len=40, watermark=0.0).engine
    squeezed, roomy = run(small, prompts, params), run(tiny_llm().engine, prompts, params)
    assert sum(r.num_preemptions for r in squeezed) >= 2
    assert [r.output_token_ids for r in squeezed] == [r.output_token_ids for r in roomy]


def test_greedy_and_random_rows_in_one_batch(tiny_llm):
    params = [greedy(8) if i % 2 else SamplingParams(temperature=1.0, seed=i, max_tokens=8, ignore_eos=True) for i in range(6)]
    engine, prompts = tiny_llm().engine, [range(5 + i, 15 + i) for i in range(6)]
    mixed = [r.output_token_ids for r in run(engine, prompts, params)]
    assert mixed == [run(engine, [p], [q])[0].output_token_ids for p, q in zip(prompts, params, strict=True)]


def test_what_is_cached_and_free_counts_as_free_once(tiny_llm):
    """A cache full of remembered prefixes has all its room: usage says 0, and a request as large as the cache runs."""
    engine = tiny_llm(block_size=4, kv_cache_memory_bytes=64 * PER_TOKEN, max_model_len=64).engine
    for start in (10, 100, 200):
        run(engine, [range(start, start + 40)], [greedy(2)])
        assert engine.scheduler.kv.usage == 0 and engine.scheduler.kv.num_free == 16
    (request,) = run(engine, [range(200, 262)], [greedy(2)])
    assert request.num_output_tokens == 2 and request.num_cached_tokens == 40


def test_decodes_go_on_under_a_stream_of_prompts(tiny_llm):
    engine = tiny_llm(max_num_seqs=4, max_num_batched_tokens=16).engine
    (decoding,) = engine.make_requests([5, 6, 7], greedy(30))
    engine.add(decoding)
    engine.step_text()
    for i in range(29):
        engine.add(engine.make_requests([10 + i] * 40, greedy(1))[0])
        engine.step_text()
        assert decoding.num_output_tokens == 2 + i, "a prompt made a decode miss a step"
    assert decoding.finish_reason == FinishReason.LENGTH


def test_each_way_to_end_says_its_own_reason(tiny_llm):
    engine = tiny_llm(max_model_len=16).engine
    (first,) = run(engine, [[5, 6, 7]], [greedy(3)])
    token = first.output_token_ids[0]
    (stopped,) = run(engine, [[5, 6, 7]], [greedy(3, stop_token_ids=(token,))])
    (full,) = run(engine, [[5, 6, 7]], [greedy(None)])
    (left,) = engine.make_requests([5, 6, 7], greedy(3))
    engine.add(left)
    engine.abort([left.request_id])
    reasons = [r.finish_reason for r in (first, stopped, full, left)]
    assert reasons == [FinishReason.LENGTH, FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT]
    assert (full.num_tokens, stopped.stop_reason, stopped.num_output_tokens) == (16, token, 1)


def test_each_of_two_eos_ids_ends_an_answer(tiny_llm):
    engine = tiny_llm().engine
    (whole,) = run(engine, [[5, 6, 7]], [SamplingParams(temperature=1.0, seed=1, max_tokens=8, ignore_eos=True)])
    early, late = whole.output_token_ids[2], whole.output_token_ids[5]
    for eos, length in (({early, 299}, 3), ({299, late}, 6), ({early, late}, 3)):
        (request,) = engine.make_requests([5, 6, 7], SamplingParams(temperature=1.0, seed=1, max_tokens=8))
        request.eos_token_ids = frozenset(eos)
        engine.add(request)
        while engine.has_unfinished:
            engine.step_text()
        assert (request.num_output_tokens, request.finish_reason, request.stop_reason) == (length, FinishReason.STOP, None)


def test_flags_with_which_a_prompt_would_wait_for_ever_are_refused(tiny_llm):
    """Without chunked prefill a prompt longer than the longest chunk could never be scheduled."""
    with pytest.raises(ConfigError, match="chunked"):
        tiny_llm(enable_chunked_prefill=False, max_num_batched_tokens=64)
    with pytest.raises(ConfigError, match="long-prefill-token-threshold"):
        tiny_llm(enable_chunked_prefill=False, long_prefill_token_threshold=5)


def test_a_step_that_died_leaves_nothing_to_be_found(tiny_llm):
    """Blocks are named when they are planned. If the forward pass then fails (Ctrl-C in a notebook), nobody filled them."""
    llm, prompt = tiny_llm(block_size=4), list(range(10, 30))
    forward, expected = llm.engine.runner.forward, tiny_llm().generate([prompt], greedy(8))[0].outputs[0].token_ids

    def interrupted(batch):
        raise KeyboardInterrupt

    llm.engine.runner.forward = interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.generate([prompt], greedy(8))
    llm.engine.runner.forward = forward
    (after,) = run(llm.engine, [prompt], [greedy(8)])
    assert after.num_cached_tokens == 0 and after.output_token_ids == expected
