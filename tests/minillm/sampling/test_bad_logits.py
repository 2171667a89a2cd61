"""NaN or infinity instead of logits ends the request it happens to, and no other."""

import dataclasses
import math

import pytest
import torch

from minillm.errors import BadLogitsError
from minillm.request import FinishReason, SamplingParams
from minillm.sampling.bad_logits import set_aside

BAD = 299  # the token whose embedding is NaN, and with it every key and value behind it
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logit_bias={BAD: -100.0}, logprobs=2)


@pytest.fixture
def make_llm(tiny_llm):
    def make(**options):
        llm = tiny_llm(**options)
        embedding = llm.engine.runner.model.embed_tokens
        embedding.register_forward_hook(lambda module, args, out: out.masked_fill((args[0] == BAD)[..., None], math.nan))
        return llm

    return make


def prompt(length, seed):
    return [(7 * i * (seed + 1) + 3 * seed) % 290 + 5 for i in range(length)]


def run(llm, prompts, params=GREEDY):
    """[(token ids, finish_reason)], all running together."""
    outputs = [generation.outputs[0] for generation in llm.generate(prompts, params)]
    llm.engine.scheduler.check_integrity()
    kv = llm.engine.scheduler.kv
    assert kv.num_free == kv.num_blocks
    return [(output.token_ids, output.finish_reason) for output in outputs]


def test_which_rows_are_bad(make_request):
    inf, nan = math.inf, math.nan
    rows = [[1.0, 2.0, 3.0], [nan] * 3, [1.0, nan, 3.0], [1.0, inf, -inf], [-inf] * 3, [-inf, 1.0, -inf], [-3e38, 3e38, 0.0]]
    logits, requests = torch.tensor(rows), [make_request() for _ in rows]
    assert set_aside(logits, requests) == requests[1:5]
    assert [row.tolist() for row in logits[1:5]] == [[0.0] * 3] * 4
    assert torch.equal(logits[[0, 5, 6]], torch.tensor([rows[0], rows[5], rows[6]]))
    assert set_aside(torch.empty(0, 3), []) == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 24, "max_num_seqs": 8},
        {"long_prefill_token_threshold": 4},
        {"kv": "contiguous"},
        {"attention": "torch"},
        {"scheduler": "static"},
    ],
    ids=str,
)
def test_neighbours_do_not_notice(make_llm, options):
    healthy = [prompt(n, n) for n in (5, 40, 18)]
    alone = [run(make_llm(), [p])[0] for p in healthy]
    bad = [BAD, *prompt(39, 1)]
    for params in (GREEDY, SamplingParams(temperature=1.0, seed=3, max_tokens=12, ignore_eos=True, logit_bias={BAD: -100.0})):
        expected = alone if params is GREEDY else [run(make_llm(), [p], params)[0] for p in healthy]
        got = run(make_llm(**options), [bad, *healthy, bad], params)
        assert [got[0], got[4]] == [([], FinishReason.ERROR)] * 2
        assert got[1:4] == expected


def test_nothing_bad_stays_in_the_cache(make_llm):
    """Neither under a name that others find, nor in blocks that others get and read past their end."""
    llm, bad = make_llm(), [*prompt(40, 1), BAD]
    healthy = [prompt(n, n) for n in (3, 50)]
    alone = [run(make_llm(), [p])[0] for p in healthy]
    for params in (GREEDY, dataclasses.replace(GREEDY, max_tokens=1)):  # whose blocks are free as soon as it has a token
        assert run(llm, [bad], params) == [([], FinishReason.ERROR)]
        assert is_finite(llm)
    assert run(llm, healthy) == alone
    outputs = llm.generate([bad[:-1]], GREEDY)[0].outputs
    assert outputs[0].num_cached_tokens == 0 and outputs[0].finish_reason is FinishReason.LENGTH


def is_finite(llm):
    return all(layer.isfinite().all() for layer in llm.engine.scheduler.kv.layers)


@pytest.mark.parametrize("options", [{}, {"kv": "contiguous"}, {"attention": "torch"}], ids=str)
def test_a_prompt_that_breaks_in_its_first_chunk_ends_there(make_llm, options):
    """Nobody sees a chunk's logits, and by the next its client may be gone, or the cache full, and its blocks another's."""
    llm, events = make_llm(max_num_batched_tokens=24, max_num_seqs=8, **options), []
    alone, healthy = run(make_llm(**options), [prompt(5, 5)])[0], prompt(5, 5)
    llm.engine.events.subscribe(events.append)
    (beside,), (bad,) = (llm.engine.make_requests(ids, GREEDY) for ids in (healthy, [*prompt(8, 1), BAD, *prompt(80, 2)]))
    llm.engine.add(beside)
    llm.engine.add(bad)
    tokens, ended = [], None
    while llm.engine.has_unfinished:
        for output in llm.engine.step_text():
            if output.request_id == bad.request_id:
                assert ended is None
                ended = output
                assert is_finite(llm) and not bad.block_ids and bad.num_computed_tokens < 24
            else:
                tokens += output.token_ids
    assert (ended.finish_reason, ended.token_ids, ended.num_output_tokens) == (FinishReason.ERROR, [], 0)
    assert (tokens, beside.finish_reason) == alone
    llm.engine.scheduler.check_integrity()
    (told,) = [e["finished"] for e in events if e["type"] == "step" and e["finished"] and e["finished"][0]["reason"] == "error"]
    assert [e["id"] for e in told] == [bad.request_id]
    assert run(llm, [[*prompt(8, 1), *healthy]])[0] == run(make_llm(**options), [[*prompt(8, 1), *healthy]])[0]


@pytest.mark.parametrize("when", ["in its first chunk", "at its last token"])
def test_a_step_that_dies_leaves_nothing_bad(make_llm, when):
    """Ctrl-C, or a part of the learner's own that raises, before anybody has looked at what was computed."""
    llm, bad = make_llm(max_num_batched_tokens=24, max_num_seqs=8), [BAD, *prompt(60 if "chunk" in when else 9, 1)]
    logits = llm.engine.runner.model.logits
    llm.engine.runner.model.logits = interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.generate([bad], GREEDY)
    assert is_finite(llm)
    llm.engine.runner.model.logits = logits
    assert run(llm, [prompt(3, 3)]) == run(make_llm(), [prompt(3, 3)])


def interrupted(hidden):
    raise KeyboardInterrupt


def test_an_answer_that_fails_on_the_way_keeps_what_it_had(make_llm, caplog):
    llm, events = make_llm(), []
    llm.engine.events.subscribe(events.append)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    (expected, _), *_ = run(make_llm(), [prompt(8, 1)], params)
    logits, calls = llm.engine.runner.model.logits, []

    def fails_at_the_fourth(hidden):
        calls.append(1)
        return logits(hidden) * (math.nan if len(calls) == 4 else 1.0)

    llm.engine.runner.model.logits = fails_at_the_fourth
    (request,) = llm.engine.make_requests(prompt(8, 1), params)
    llm.engine.add(request)
    outputs = []
    while llm.engine.has_unfinished:
        outputs += llm.engine.step_text()
    assert [t for o in outputs for t in o.token_ids] == expected[:3] == request.output_token_ids
    assert [o.finish_reason for o in outputs] == [None, None, None, FinishReason.ERROR]
    assert outputs[-1].num_output_tokens == 3 and outputs[-1].stop_reason is None
    (ended,) = events[-1]["finished"]
    assert (ended["reason"], ended["num_output_tokens"]) == ("error", 3)
    assert events[-1]["scheduled"][0]["num_sampled_tokens"] == 0
    assert str(BadLogitsError()) in caplog.text
