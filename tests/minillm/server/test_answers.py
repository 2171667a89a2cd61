"""What a served request looks like, streamed and whole, down to the counts."""

import json

import pytest
from starlette.testclient import TestClient

from minillm.config import EngineConfig
from minillm.errors import EngineDeadError
from minillm.request import FinishReason
from minillm.server.app import build_app

HI = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = len("<user>hi<assistant>")  # the fake's tokens are characters
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def events(response):
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = response.text.split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    payloads = [line.removeprefix("data: ") for line in lines]
    return [p if p == "[DONE]" else json.loads(p) for p in payloads]


def test_chat_whole(client):
    body = client.post(CHAT, json={"messages": HI, "model": "tiny/model"}).json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny/model"
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 3, "total_tokens": PROMPT_TOKENS + 3}
    assert body["usage"] == usage | {"prompt_tokens_details": {"cached_tokens": 0}}


def test_chat_streamed(client):
    *chunks, done = events(client.post(CHAT, json={"messages": HI, "stream": True, "request_id": "mine"}))
    assert done == "[DONE]"
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert {c["id"] for c in chunks} == {"chatcmpl-mine"}
    assert all("usage" not in c for c in chunks)
    deltas = [(c["choices"][0]["delta"], c["choices"][0]["finish_reason"]) for c in chunks]
    assert deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, None),
        ({}, "stop"),
    ]


def test_usage_comes_last_when_asked_for(client):
    fields = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last, done = events(client.post(CHAT, json=fields))
    assert done == "[DONE]"
    assert all(c["usage"] is None and c["choices"] for c in chunks)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == PROMPT_TOKENS + 3


def test_n_samples_count_the_prompt_once(client):
    body = client.post(CHAT, json={"messages": HI, "n": 3}).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in body["choices"]] == ["Hello"] * 3
    assert body["usage"]["prompt_tokens"] == PROMPT_TOKENS
    assert body["usage"]["completion_tokens"] == 9


def test_n_samples_streamed_keep_apart(client):
    *chunks, _ = events(client.post(CHAT, json={"messages": HI, "n": 2, "stream": True}))
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in mine) == "Hello"
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]


def test_completions_of_several_prompts(client, engine):
    body = client.post(COMPLETIONS, json={"prompt": ["ab", "abcd"], "n": 2}).json()
    assert body["object"] == "text_completion"
    assert [(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]] == [(i, "Hello", "stop") for i in range(4)]
    assert body["usage"]["prompt_tokens"] == (1 + 2) + (1 + 4)
    assert body["usage"]["completion_tokens"] == 12
    assert [prompt for prompt, _ in engine.submitted] == [[1, 97, 98], [1, 97, 98, 99, 100]]


@pytest.mark.parametrize("prompt, sent", [("ab", [[1, 97, 98]]), ([5, 6], [[5, 6]]), ([[5], [6, 7]], [[5], [6, 7]]), ("", [[1]])])
def test_prompt_forms(client, engine, prompt, sent):
    assert client.post(COMPLETIONS, json={"prompt": prompt}).status_code == 200
    assert [p for p, _ in engine.submitted] == sent


def test_completions_streamed(client):
    fields = {"prompt": ["a", "b"], "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last, done = events(client.post(COMPLETIONS, json=fields))
    assert done == "[DONE]"
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(c["text"] for c in mine) == "Hello"
        assert [c["finish_reason"] for c in mine] == [None, "stop"]
    assert last["usage"]["completion_tokens"] == 6


def test_length_is_reported(client_for, fake):
    client = client_for(fake(finish=FinishReason.LENGTH))
    assert client.post(CHAT, json={"messages": HI}).json()["choices"][0]["finish_reason"] == "length"


def test_cached_tokens_are_reported(client_for, fake):
    usage = client_for(fake(cached=4)).post(CHAT, json={"messages": HI}).json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}


@pytest.mark.parametrize(
    "error, message", [(EngineDeadError("the engine has stopped"), "stopped"), (KeyError("secret"), "internal")]
)
def test_an_error_in_mid_stream_is_the_last_event(client_for, fake, error, message):
    engine = fake(script=("a", error))
    *_, text, last = events(client_for(engine).post(CHAT, json={"messages": HI, "stream": True}))
    assert text["choices"][0]["delta"] == {"content": "a"}
    assert last["error"]["type"] == "server_error"
    assert message in last["error"]["message"]
    assert "secret" not in last["error"]["message"]
    assert not engine.open


def test_sampling_fields_reach_the_engine(client, engine):
    fields = {
        "temperature": 0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "stop": "x", "min_tokens": 1, "ignore_eos": True,
        "stop_token_ids": [3], "include_stop_str_in_output": True, "skip_special_tokens": False, "max_tokens": 9,
        "presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.5, "prompt_logprobs": 3,
        "logit_bias": {"50": -100, "7": 0.5},
    }  # fmt: skip
    for path, prompt in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})):
        assert client.post(path, json={**prompt, **fields}).status_code == 200
        params = engine.submitted[-1][1]
        expected = fields | {"stop": ("x",), "stop_token_ids": (3,), "logit_bias": ((7, 0.5), (50, -100.0))}
        for name, value in expected.items():
            assert getattr(params, name) == value


def test_priority_and_salt_reach_the_engine(client_for, fake):
    engine = fake()
    engine.engine.config = EngineConfig(scheduling_policy="priority")
    client = client_for(engine)
    for path, prompt in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})):
        assert client.post(path, json={**prompt, "priority": -3, "cache_salt": "s"}).status_code == 200
        assert engine.extras == {"priority": -3, "cache_salt": "s"}
        assert client.post(path, json=prompt).status_code == 200
        assert engine.extras == {"priority": 0, "cache_salt": None}


def test_template_variables_reach_the_template(client, engine):
    assert client.post(CHAT, json={"messages": HI, "chat_template_kwargs": {"enable_thinking": False}}).status_code == 200
    assert "".join(map(chr, engine.submitted[0][0])) == "{enable_thinking=False}<user>hi<assistant>"


def test_defaults_are_openais(client, engine):
    client.post(CHAT, json={"messages": HI})
    client.post(COMPLETIONS, json={"prompt": "x"})
    client.post(CHAT, json={"messages": HI, "max_completion_tokens": 5})
    assert [p.max_tokens for _, p in engine.submitted] == [None, 16, 5]
    assert {p.temperature for _, p in engine.submitted} == {1.0}


def test_messages_in_all_their_forms_reach_the_template(client, engine):
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None, "annotations": [], "audio": None},
        {"role": "user", "content": ""},
    ]
    assert client.post(CHAT, json={"messages": messages}).status_code == 200
    assert "".join(map(chr, engine.submitted[0][0])) == "<system>be kind<user>a\nb<assistant>c<user><assistant>"


def test_models_health_and_version(client, client_for, fake):
    [card] = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("tiny/model", "model", 64)
    assert client.get("/v1/models/tiny/model").json() == card
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/health").json() == {
        "status": "ok",
        "model": "tiny/model",
        "own_parts": [],
        "running": 0,
        "waiting": 0,
        "kv_cache_usage_perc": 0.0,
    }
    assert client.get("/version").json()["version"]
    renamed = client_for(fake(), served_model_name="nick")
    assert renamed.get("/v1/models").json()["data"][0]["id"] == "nick"
    assert renamed.post(CHAT, json={"messages": HI, "model": "nick"}).json()["model"] == "nick"
    assert renamed.post(CHAT, json={"messages": HI, "model": "tiny/model"}).status_code == 404


def test_the_app_starts_and_stops_its_engine(engine):
    with TestClient(build_app(engine)):
        assert engine.started and not engine.stopped
    assert engine.stopped
