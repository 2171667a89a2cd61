import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minillm.request import FinishReason, Request, SampledToken, SamplingParams, StepOutput, TokenLogprob
from minillm.text.output import OutputProcessor

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


@pytest.fixture
def tokenizer(all_tokenizers):
    return all_tokenizers["smollm2"]


def start(tokenizer, prompt="Say it:", **params):
    prompt = tokenizer.encode(prompt)
    request = Request("r", list(prompt), len(prompt), SamplingParams(**{"max_tokens": 100, **params}), max_tokens=100, seed=0)
    processor = OutputProcessor(tokenizer)
    processor.add(request)
    return processor, request


def step(processor, request, *token_ids, reason=None, stop_reason=None):
    """As the scheduler does it: tokens booked on the request first."""
    request.token_ids += token_ids
    request.finish_reason, request.stop_reason = reason, stop_reason
    return processor.process(StepOutput(request, [SampledToken(t) for t in token_ids], reason))


def run(processor, request, token_ids, reason=LENGTH, per_step=1, stop_reason=None):
    """Deltas of an answer, as far as it goes."""
    chunks = [token_ids[i : i + per_step] for i in range(0, len(token_ids), per_step)]
    outputs = []
    for i, chunk in enumerate(chunks):
        ending = {"reason": reason, "stop_reason": stop_reason} if i == len(chunks) - 1 else {}
        outputs.append(step(processor, request, *chunk, **ending))
        if outputs[-1].finished:
            break
    return outputs


def text(outputs):
    return "".join(o.text for o in outputs)


def ids(outputs):
    return [token for o in outputs for token in o.token_ids]


def test_deltas_join_to_the_answer(tokenizer):
    processor, request = start(tokenizer, n=3)
    request.index, request.num_cached_tokens = 2, 5
    answer = tokenizer.encode(" Chào 👋🏽, world")
    outputs = run(processor, request, answer)
    assert text(outputs) == " Chào 👋🏽, world"
    assert [o.token_ids for o in outputs] == [[t] for t in answer]
    assert [o.num_output_tokens for o in outputs] == list(range(1, len(answer) + 1))
    assert [o.finish_reason for o in outputs] == [None] * (len(answer) - 1) + [LENGTH]
    last = outputs[-1]
    assert (last.request_id, last.index, last.num_prompt_tokens, last.num_cached_tokens) == ("r", 2, request.num_prompt_tokens, 5)


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({}, ""),
        ({"skip_special_tokens": False}, ""),
        ({"include_stop_str_in_output": True}, ""),
        ({"include_stop_str_in_output": True, "skip_special_tokens": False}, "<|im_end|>"),
    ],
)
def test_eos_is_counted_but_not_shown(tokenizer, params, shown):
    processor, request = start(tokenizer, **params)
    eos = tokenizer.eos_token_id
    outputs = run(processor, request, [*tokenizer.encode("Hi"), eos], reason=STOP)
    assert text(outputs) == "Hi" + shown
    assert outputs[-1].token_ids == [eos] and outputs[-1].num_output_tokens == len(tokenizer.encode("Hi")) + 1
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (STOP, None)


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_tokens_text(tokenizer, include):
    (token,) = tokenizer.encode(" end")
    processor, request = start(tokenizer, stop_token_ids=(token,), include_stop_str_in_output=include)
    outputs = run(processor, request, [*tokenizer.encode("The"), token], reason=STOP, stop_reason=token)
    assert text(outputs) == ("The end" if include else "The")
    assert (outputs[-1].stop_reason, outputs[-1].token_ids) == (token, [token])


def test_an_ignored_eos_does_not_end_the_text(tokenizer):
    processor, request = start(tokenizer, ignore_eos=True)
    outputs = run(processor, request, [*tokenizer.encode("a"), tokenizer.eos_token_id, *tokenizer.encode(" b")])
    assert text(outputs) == "a b"


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("per_step", [1, 2, 100])
def test_a_stop_string_ends_the_request(tokenizer, include, per_step):
    processor, request = start(tokenizer, stop=("\nUser:",), include_stop_str_in_output=include)
    answer = tokenizer.encode("Fine.\nUser: and you?")
    outputs = run(processor, request, answer, per_step=per_step)
    assert text(outputs) == ("Fine.\nUser:" if include else "Fine.")
    assert (request.finish_reason, request.stop_reason) == (STOP, "\nUser:")
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (STOP, "\nUser:")
    used = ids(outputs)
    assert used == answer[: len(tokenizer.encode("Fine.\nUser:"))]  # tokens of the step that follow are dropped
    assert outputs[-1].num_output_tokens == len(used)


def test_no_delta_ever_holds_part_of_a_stop_string(tokenizer):
    processor, request = start(tokenizer, stop=("</answer>",))
    shown = ""
    for output in run(processor, request, tokenizer.encode("x < y</ans </answer> z")):
        shown += output.text
        assert "x < y</ans ".startswith(shown)
    assert shown == "x < y</ans "


@pytest.mark.parametrize(("last", "reason"), [("eos", STOP), (None, LENGTH), (None, FinishReason.ABORT)])
def test_text_held_back_is_released_at_the_end(tokenizer, last, reason):
    processor, request = start(tokenizer, stop=("\nUser:",))
    answer = tokenizer.encode("Fine.\nUse") + ([tokenizer.eos_token_id] if last else [])
    outputs = run(processor, request, answer, reason=reason)
    assert text(outputs) == "Fine.\nUse"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (reason, None)


def test_an_unfinished_character_is_released_at_the_end(tokenizer):
    processor, request = start(tokenizer)
    crab = tokenizer.encode("🦀")
    assert len(crab) > 1
    outputs = run(processor, request, crab[:-1])
    assert [o.text for o in outputs] == [""] * (len(crab) - 2) + ["\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize("reason", [STOP, LENGTH])
def test_a_stop_string_counts_before_what_ends_the_same_step(tokenizer, reason):
    processor, request = start(tokenizer, stop=(".",))
    tail = [tokenizer.eos_token_id] if reason is STOP else []
    output = step(processor, request, *tokenizer.encode("Done."), *tail, reason=reason)
    assert (output.text, output.finish_reason, output.stop_reason) == ("Done", STOP, ".")


def test_stop_strings_do_not_count_before_min_tokens(tokenizer):
    tokens = tokenizer.encode("a.b.c.d.e")
    assert tokenizer.decode(tokens[5:6]) == "."
    processor, request = start(tokenizer, stop=(".",), min_tokens=5)
    outputs = run(processor, request, tokens)
    assert text(outputs) == "a.b.c" and len(outputs) == 6
    processor, request = start(tokenizer, stop=(".",), min_tokens=6)  # that "." is the sixth token: there are enough now
    assert text(run(processor, request, tokens)) == "a.b.c"
    processor, request = start(tokenizer, stop=(".",), min_tokens=7)
    assert text(run(processor, request, tokens)) == "a.b.c.d"


def test_requests_do_not_disturb_each_other(tokenizer):
    processor, first = start(tokenizer, stop=("!",))
    second = dataclasses.replace(first, request_id="s", token_ids=list(first.token_ids))
    processor.add(second)
    crab = tokenizer.encode("🦀")
    got = {"r": "", "s": ""}
    for a, b in zip(crab, [*tokenizer.encode("ab c"), *crab][: len(crab)], strict=True):
        got["r"] += step(processor, first, a).text
        got["s"] += step(processor, second, b).text
    assert got["r"] == "🦀" and got["s"].startswith("ab")
    processor.remove("r")
    processor.remove("r")  # a client may leave twice
    assert step(processor, second, *tokenizer.encode("!"), reason=None).finish_reason is STOP


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_text_does_not_depend_on_how_steps_cut_the_tokens(tokenizer, data):
    answer = tokenizer.encode(data.draw(st.text("ab .é👋\n", max_size=30))) or tokenizer.encode("a")
    stop = tuple(data.draw(st.lists(st.text("ab .é👋\n", min_size=1, max_size=3), max_size=2)))
    results = []
    for per_step in (1, data.draw(st.integers(2, 5))):
        processor, request = start(tokenizer, stop=stop)
        outputs = run(processor, request, answer, per_step=per_step)
        results.append((text(outputs), ids(outputs), request.finish_reason, request.stop_reason))
    assert results[0] == results[1]


def test_logprobs_are_those_of_the_tokens_shown(tokenizer):
    processor, request = start(tokenizer, stop=(".",), logprobs=0, prompt_logprobs=0)
    request.prompt_logprobs = [(TokenLogprob(t, -1.0, 1),) for t in request.token_ids[1:]]
    words = [tokenizer.encode("Done"), tokenizer.encode("."), tokenizer.encode(" More")]
    sampled = [[SampledToken(t, (TokenLogprob(t, -2.0, 3),)) for t in ids] for ids in words]
    request.token_ids += words[0]
    first = processor.process(StepOutput(request, sampled[0]))
    assert [entries[0].token_id for entries in first.logprobs] == words[0]
    assert first.prompt_logprobs == [None, *request.prompt_logprobs]
    request.token_ids += words[1] + words[2]
    second = processor.process(StepOutput(request, sampled[1] + sampled[2]))  # the stop string drops what follows
    assert [entries[0].token_id for entries in second.logprobs] == second.token_ids == words[1]
    assert second.prompt_logprobs is None, "they come once"


def test_no_logprobs_unless_asked_for(tokenizer):
    processor, request = start(tokenizer)
    output = step(processor, request, *tokenizer.encode("a"))
    assert output.logprobs is None and output.prompt_logprobs is None
