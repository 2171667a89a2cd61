"""Every supported field, sent by the openai client to a real engine: each one shows its effect."""

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

MESSAGES = [{"role": "user", "content": "abc"}]
A, B = 68, 69  # two tokens of the byte-level tokenizer that are whole characters


@pytest.fixture(scope="module")
def server(chat_llm, serving):
    with serving(chat_llm(max_num_seqs=8, max_model_len=512).engine) as server:
        server.text_of = chat_llm().tokenizer.decode
        yield server


def chat(server, **fields):
    extra = fields.pop("extra", {})
    fields = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0} | fields
    return server.client.chat.completions.create(
        model=server.engine.model_name, extra_body={"ignore_eos": True} | extra, **fields
    )


def complete(server, **fields):
    extra = fields.pop("extra", {})
    fields = {"prompt": "abc", "max_tokens": 12, "temperature": 0} | fields
    return server.client.completions.create(model=server.engine.model_name, extra_body={"ignore_eos": True} | extra, **fields)


def test_logit_bias_decides_greedy_answers(server):
    for ask in (chat, complete):
        always = ask(server, logit_bias={str(A): 100}).choices[0]
        assert (always.message.content if ask is chat else always.text) == server.text_of([A]) * 12


def test_penalties_push_a_repeated_token_out(server):
    biased = {"logit_bias": {str(A): 50, str(B): 49}}
    a, b = server.text_of([A]), server.text_of([B])
    assert complete(server, max_tokens=4, **biased).choices[0].text == a * 4
    assert complete(server, max_tokens=4, **biased, presence_penalty=2).choices[0].text != a * 4
    text = complete(server, max_tokens=40, **biased, frequency_penalty=2).choices[0].text
    assert a in text and b in text and a * 10 not in text
    assert complete(server, max_tokens=4, **biased, extra={"repetition_penalty": 2.0}).choices[0].text != a * 4


def test_chat_logprobs(server):
    answer = chat(server, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens == 12
    for token in content:
        likeliest = [top.logprob for top in token.top_logprobs]
        assert len(likeliest) == 3 and likeliest == sorted(likeliest, reverse=True)
        assert token.logprob == likeliest[0] and token.bytes == token.top_logprobs[0].bytes  # greedy takes the likeliest
    spelled = bytes(byte for token in content for byte in token.bytes).decode("utf-8", "replace")
    assert spelled == answer.choices[0].message.content
    streamed = [
        token
        for chunk in chat(server, logprobs=True, top_logprobs=3, stream=True)
        if chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    assert [t.token for t in streamed] == [t.token for t in content]
    assert [t.logprob for t in streamed] == pytest.approx([t.logprob for t in content], abs=1e-4)


def test_completion_logprobs_and_echo(server):
    [choice] = complete(server, logprobs=2, echo=True).choices
    logprobs = choice.logprobs
    assert choice.text.startswith("abc")
    assert logprobs.token_logprobs[0] is None and None not in logprobs.token_logprobs[1:]
    assert len(logprobs.tokens) == 3 + 12
    assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs[1:])
    for token, offset, end in zip(logprobs.tokens, logprobs.text_offset, logprobs.text_offset[1:], strict=False):
        if "\ufffd" not in token:
            assert choice.text[offset:end] == token
    plain = complete(server, logprobs=2).choices[0]
    assert choice.text == "abc" + plain.text
    assert logprobs.token_logprobs[3:] == pytest.approx(plain.logprobs.token_logprobs, abs=1e-4)


def test_prompt_logprobs(server):
    tokens = httpx.post(f"{server.url}/tokenize", json={"messages": MESSAGES}).json()["tokens"]
    shown = chat(server, extra={"prompt_logprobs": 1}).model_extra["prompt_logprobs"]
    assert shown[0] is None
    assert [str(t) in entry for t, entry in zip(tokens[1:], shown[1:], strict=True)] == [True] * (len(tokens) - 1)
    assert all(1 <= len(entry) <= 2 and min(e["rank"] for e in entry.values()) == 1 for entry in shown[1:])


def test_where_an_answer_ends(server):
    assert complete(server).choices[0].finish_reason == "length"
    biased = {"logit_bias": {str(A): 100}}
    cut = complete(server, **biased, extra={"stop_token_ids": [A]})
    assert (cut.choices[0].finish_reason, cut.choices[0].stop_reason, cut.choices[0].text) == ("stop", A, "")
    kept = complete(server, **biased, extra={"stop_token_ids": [A], "include_stop_str_in_output": True})
    assert kept.choices[0].text == server.text_of([A])
    assert complete(server, **biased, extra={"stop_token_ids": [A], "min_tokens": 5}).usage.completion_tokens == 6
    forced = {"logit_bias": {"2": 100}}  # the end-of-sequence token
    assert complete(server, **forced, extra={"ignore_eos": False}).usage.completion_tokens == 1
    assert complete(server, **forced, extra={"ignore_eos": False, "min_tokens": 7}).usage.completion_tokens == 8
    assert complete(server, **forced).usage.completion_tokens == 12


def test_special_tokens_are_shown_on_request(server):
    special = min(server.engine.tokenizer.special_ids)
    name = httpx.post(f"{server.url}/detokenize", json={"tokens": [special]}).json()["prompt"]
    forced = {"logit_bias": {str(special): 100}, "max_tokens": 3}
    assert complete(server, **forced).choices[0].text == ""
    assert complete(server, **forced, extra={"skip_special_tokens": False}).choices[0].text == name * 3


def test_template_variables(server):
    plain, loud = chat(server), chat(server, extra={"chat_template_kwargs": {"shout": True}})
    assert loud.usage.prompt_tokens == plain.usage.prompt_tokens + len("LOUD")


def test_request_ids(server):
    assert chat(server, extra={"request_id": "mine"}).id == "chatcmpl-mine"
    assert complete(server, extra={"request_id": "mine"}).id == "cmpl-mine"


def test_salts_and_seeds(server):
    fields = {"prompt": "s" * 64, "temperature": 1, "seed": 3}
    first, again, other, salted, salted_again = (
        complete(server, **fields | more)
        for more in ({}, {}, {"seed": 4}, {"extra": {"cache_salt": "x"}}, {"extra": {"cache_salt": "x"}})
    )
    cached = [a.usage.prompt_tokens_details.cached_tokens for a in (first, again, salted, salted_again)]
    assert cached[0] == cached[2] == 0 and cached[1] == cached[3] > 0
    assert first.choices[0].text == again.choices[0].text == salted.choices[0].text != other.choices[0].text


def test_priority_needs_its_policy(server, chat_llm, serving):
    with pytest.raises(openai.BadRequestError, match="--scheduling-policy priority"):
        chat(server, extra={"priority": 1})
    with serving(chat_llm(scheduling_policy="priority").engine) as other:
        assert chat(other, extra={"priority": 1}).usage.completion_tokens == 12


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"logit_bias": {"5000": 1}}, "logit_bias"),
        ({"extra": {"stop_token_ids": [5000]}}, "stop_token_ids"),
        ({"extra": {"structured_outputs": {"regex": "a"}}}, "structured_outputs"),
    ],
)
def test_what_this_model_cannot_do(server, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(server, **fields)
    assert caught.value.param == param


def test_tokenize_and_detokenize_are_each_others_reverse(server):
    for text in ("", "abc", "é 🙂 <|im_end|>", "x" * 1000):
        tokens = httpx.post(f"{server.url}/tokenize", json={"prompt": text}).json()
        assert tokens["count"] == len(tokens["tokens"])
        assert httpx.post(f"{server.url}/detokenize", json={"tokens": tokens["tokens"]}).json()["prompt"] == text


def test_metrics_of_what_was_served(chat_llm, serving):
    with serving(chat_llm(max_num_seqs=2).engine) as server:
        for _ in range(2):
            complete(server, prompt="p" * 40, n=3, temperature=1)
        text = httpx.get(f"{server.url}/metrics").text
        values = {
            s.name.removeprefix("minillm:"): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
            if s.labels.get("finished_reason", "length") == "length" and "le" not in s.labels
        }
    assert values["request_success_total"] == 6
    assert values["prompt_tokens_total"] == values["prefix_cache_queries_total"] == 6 * 40
    assert values["generation_tokens_total"] == 6 * 12
    assert 0 < values["prefix_cache_hits_total"] == values["prompt_tokens_cached_total"] < 6 * 40
    assert values["inter_token_latency_seconds_count"] == 6 * 11
    assert values["request_params_n_sum"] == 6
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert values[f"{name}_count"] == 6
    ends = values["time_to_first_token_seconds_sum"] + values["request_decode_time_seconds_sum"]
    assert values["e2e_request_latency_seconds_sum"] == pytest.approx(ends)
    assert values["kv_cache_usage_perc"] == values["num_requests_running"] == values["num_requests_waiting"] == 0
