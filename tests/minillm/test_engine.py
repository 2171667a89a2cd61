"""The engine over a tiny random model: what a request gets must not depend on what runs beside it."""

import pytest

from minillm.errors import ConfigError, RequestError
from minillm.request import FinishReason, SamplingParams

PROMPTS = [[5], [7, 8, 9], list(range(3, 60)), [250] * 20, [4, 5] * 15, [100], list(range(200, 240)), [60, 3]]
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)


def tokens(generations) -> list[list[int]]:
    return [g.outputs[0].token_ids for g in generations]


def sampled(i: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, top_k=50, top_p=0.95, seed=i, max_tokens=20, ignore_eos=True)


@pytest.mark.parametrize(
    "params", [[GREEDY] * 8, [sampled(i) for i in range(8)], [GREEDY, sampled(1)] * 4], ids=["greedy", "seeded", "mixed"]
)
def test_a_batch_gives_what_each_request_gives_alone(tiny_llm, params):
    llm = tiny_llm()
    alone = [tokens(llm.generate([p], q))[0] for p, q in zip(PROMPTS, params, strict=True)]
    assert tokens(llm.generate(PROMPTS, params)) == alone


@pytest.mark.parametrize("options", [
    {"max_num_seqs": 1},
    {"max_num_seqs": 3},
    {"max_num_seqs": 2, "max_num_batched_tokens": 7},
    {"attention": "torch"},
    {"kv": "contiguous"},
    {"enable_prefix_caching": False},
    {"block_size": 4, "kv_cache_memory_bytes": 128 * 256},
    {"scheduler": "static", "max_num_seqs": 3},
    {"scheduler": "prefill_first"},
    {"long_prefill_token_threshold": 5},
], ids=str)  # fmt: skip
def test_the_schedule_changes_no_token(tiny_llm, options):
    params = [GREEDY if i % 2 else sampled(i) for i in range(8)]
    assert tokens(tiny_llm(**options).generate(PROMPTS, params)) == tokens(tiny_llm().generate(PROMPTS, params))


def test_everything_is_free_at_the_end(tiny_llm):
    llm = tiny_llm(max_num_seqs=3)
    llm.generate(PROMPTS, GREEDY)
    llm.engine.scheduler.check_integrity()
    assert llm.engine.runner.kv.usage == 0 and not llm.engine.has_unfinished and llm.engine.step() == []


def test_an_abort_changes_nothing_for_the_others(tiny_llm):
    llm = tiny_llm()
    expected = tokens(llm.generate(PROMPTS[1:3], GREEDY))
    groups = [llm.engine.make_requests(p, GREEDY) for p in PROMPTS[:3]]
    for (request,) in groups:
        llm.engine.add(request)
    for _ in range(4):
        llm.engine.step_text()
    llm.engine.abort([groups[0][0].request_id, "never heard of"])
    while llm.engine.has_unfinished:
        llm.engine.step_text()
        llm.engine.scheduler.check_integrity()
    assert [g[0].output_token_ids for g in groups[1:]] == expected
    assert groups[0][0].finish_reason == FinishReason.ABORT and groups[0][0].num_output_tokens == 4


def test_leaving_a_stream_early_frees_the_request(tiny_llm):
    llm = tiny_llm()
    for _ in llm.stream([5, 6], GREEDY):
        break
    assert not llm.engine.has_unfinished and llm.engine.runner.kv.usage == 0


def test_n_samples_differ_and_repeat(tiny_llm):
    params = SamplingParams(n=4, temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)
    first = tiny_llm().generate([[5, 6, 7]], params)[0]
    again = tiny_llm(max_num_seqs=2).generate([[5, 6, 7]], params)[0]
    assert [o.index for o in first.outputs] == [0, 1, 2, 3]
    assert len({tuple(o.token_ids) for o in first.outputs}) == 4
    assert [o.token_ids for o in first.outputs] == [o.token_ids for o in again.outputs]


def test_unseeded_requests_follow_the_engines_seed(tiny_llm):
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
    runs = {seed: tokens(tiny_llm(seed=seed).generate([[5], [5]], params)) for seed in (0, 1)}
    assert runs[0][0] != runs[0][1], "two requests draw their own numbers"
    assert runs[0] != runs[1] and runs[0] == tokens(tiny_llm(seed=0).generate([[5], [5]], params))


def test_a_full_context_ends_the_answer(tiny_llm):
    out = tiny_llm(max_model_len=16).generate(
        [list(range(5, 15))], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    )[0]
    assert len(out.outputs[0].token_ids) == 6 and out.outputs[0].finish_reason == FinishReason.LENGTH


@pytest.mark.parametrize("prompt, params, names", [
    ([], {}, "empty"),
    ([300], {}, "0 to 299"),
    ([-1], {}, "0 to 299"),
    ([5] * 128, {}, "128 tokens"),
    ([5] * 120, {"max_tokens": 9}, "at most 8"),
])  # fmt: skip
def test_what_can_never_be_served_is_refused_at_once(tiny_llm, prompt, params, names):
    llm = tiny_llm()
    with pytest.raises(RequestError, match=names):
        llm.generate([[5], prompt], [SamplingParams(max_tokens=3), SamplingParams(**params)])
    assert not llm.engine.has_unfinished


def test_the_same_id_twice_is_refused(tiny_llm):
    engine = tiny_llm().engine
    engine.add(engine.make_requests([5], GREEDY, "a")[0])
    with pytest.raises(RequestError, match="already being served"):
        engine.add(engine.make_requests([5], GREEDY, "a")[0])


@pytest.mark.parametrize("field, value", [
    ("temperature", -1), ("temperature", float("nan")), ("temperature", float("inf")), ("top_p", 0), ("top_p", 1.1),
    ("top_k", -2), ("min_p", 2), ("max_tokens", 0), ("min_tokens", -1), ("n", 0), ("seed", 2**64), ("stop", ("",)),
    ("stop", ("ab" * 3000,)),
])  # fmt: skip
def test_impossible_sampling_params_name_the_field(field, value):
    with pytest.raises(RequestError) as e:
        SamplingParams(**{field: value})
    assert e.value.param == field and field in str(e.value)


@pytest.mark.parametrize("options, names", [
    ({"dtype": "int3"}, "--dtype"),
    ({"attention": "magic"}, "--attention"),
    ({"max_model_len": 129}, "128 positions"),
    ({"max_num_seqs": 0}, "--max-num-seqs"),
    ({"max_num_seqs": 64, "max_num_batched_tokens": 63}, "--max-num-batched-tokens"),
])  # fmt: skip
def test_impossible_flags_name_the_flag(tiny_folder, options, names):
    from minillm.llm import LLM

    with pytest.raises(ConfigError, match=names):
        LLM(str(tiny_folder), load_format="dummy", **{"dtype": "float32", "threads": 1, **options})


@pytest.mark.parametrize("kv, most", [("paged", 64), ("contiguous", 78)])
def test_a_cache_that_cannot_fit_says_what_would(tiny_llm, kv, most):
    with pytest.raises(ConfigError, match=f"set --max-model-len to {most} or less"):  # 256 bytes a token, 16 tokens a block
        tiny_llm(kv=kv, kv_cache_memory_bytes=20_000)
    assert tiny_llm(kv=kv, kv_cache_memory_bytes=3 * 128 * 256).engine.runner.kv.num_blocks == (24 if kv == "paged" else 3)


def test_two_engines_in_one_process_do_not_touch(tiny_llm):
    a, b = tiny_llm(), tiny_llm(attention="torch", max_num_seqs=2)
    expected = tokens(a.generate(PROMPTS[:2], GREEDY))
    ra, rb = (llm.engine.make_requests(PROMPTS[0], GREEDY)[0] for llm in (a, b))
    a.engine.add(ra), b.engine.add(rb)
    while a.engine.has_unfinished or b.engine.has_unfinished:
        a.engine.step_text(), b.engine.step_text()
    assert ra.output_token_ids == rb.output_token_ids == expected[0]


def test_open_streams_and_generate_share_the_engine(tiny_llm):
    llm = tiny_llm()
    expected = tokens(llm.generate(PROMPTS[:3], GREEDY))
    a, b = llm.stream(PROMPTS[0], GREEDY), llm.stream(PROMPTS[1], GREEDY)
    got = [list(next(a).token_ids), list(next(b).token_ids)]
    assert tokens(llm.generate(PROMPTS[2:3], GREEDY)) == expected[2:]
    for mine, rest in zip(got, (a, b), strict=True):
        for output in rest:
            mine += output.token_ids
    assert got == expected[:2] and not llm.engine.has_unfinished and not llm._inboxes


def test_generate_joins_logprobs_of_all_tokens(tiny_llm):
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    (answer,) = tiny_llm().generate([[5, 6, 7]], params)[0].outputs
    assert [entries[0].token_id for entries in answer.logprobs] == answer.token_ids
    assert answer.prompt_logprobs[0] is None and [e[0].token_id for e in answer.prompt_logprobs[1:]] == [6, 7]
