"""Every refusal is OpenAI-shaped, has the right status and names the field at fault."""

import json

import pytest

from minillm.async_engine import QueueFullError, ShuttingDownError

HI = [{"role": "user", "content": "hi"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def assert_error(response, status, param=None, mentions=""):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert error["param"] == param
    assert mentions in error["message"]
    assert "\n" not in error["message"]


UNSUPPORTED_CHAT = [
    ("tools", [{"type": "function"}]),
    ("tool_choice", "required"),
    ("functions", [{}]),
    ("response_format", {"type": "json_object"}),
    ("structured_outputs", {"json": {}}),
    ("store", True),
    ("service_tier", "flex"),
    ("priority", 1),
    ("echo", True),
    ("temprature", 1),
    ("best_of", 1),
]


@pytest.mark.parametrize("field, value", UNSUPPORTED_CHAT)
def test_chat_names_the_field_it_does_not_support(client, engine, field, value):
    assert_error(client.post(CHAT, json={"messages": HI, field: value}), 400, field, field)
    assert not engine.submitted


@pytest.mark.parametrize(
    "field, value",
    [("suffix", "x"), ("best_of", 3), ("top_logprobs", 1), ("structured_outputs", {"regex": "a"}), ("priority", -1), ("nope", 1)],
)
def test_completions_names_the_field_it_does_not_support(client, field, value):
    assert_error(client.post(COMPLETIONS, json={"prompt": "x", field: value}), 400, field, field)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": None, "tool_choice": "none", "functions": [], "logprobs": False, "top_logprobs": 0, "logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "response_format": {"type": "text"}},
        {"user": "me", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "k", "store": False},
        {"temperature": None, "top_p": None, "n": None, "stop": None, "seed": None, "stream": None, "max_tokens": None},
    ],
)
def test_values_that_ask_for_nothing_are_accepted(client, fields):
    assert client.post(CHAT, json={"messages": HI, **fields}).status_code == 200


WRONG_VALUES = [
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 10**12}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"n": 0}, "n"),
    ({"n": 10**9}, "n"),
    ({"stop": 5}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 65}, "stop"),
    ({"seed": 2**64}, "seed"),
    ({"seed": "a"}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"nope": 1}}, "stream_options.nope"),
    ({"min_tokens": 20, "max_tokens": 3}, "min_tokens"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"request_id": ""}, "request_id"),
    ({"model": 5}, "model"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": "a"}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "x"}}, "logit_bias"),
    ({"logit_bias": {"5": True}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"priority": 0.5}, "priority"),
    ({"priority": 2**40}, "priority"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": 5}, "cache_salt"),
]
NOT_FINITE = [
    (field, value)
    for field in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
    for value in ("NaN", "Infinity", "-Infinity", "1e999")
]


@pytest.mark.parametrize("field, value", NOT_FINITE)
def test_numbers_that_are_none(client, field, value):
    body = f'{{"prompt": "x", "{field}": {value}}}'
    assert_error(client.post(COMPLETIONS, content=body, headers={"content-type": "application/json"}), 400, field, field)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_bias_that_is_no_number(client, value):
    body = f'{{"prompt": "x", "logit_bias": {{"5": {value}}}}}'
    response = client.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert_error(response, 400, "logit_bias", "logit_bias")


@pytest.mark.parametrize(
    "path, fields, param",
    [
        (CHAT, {"logprobs": 1}, "logprobs"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        (COMPLETIONS, {"logprobs": True}, "logprobs"),
        (COMPLETIONS, {"logprobs": 21}, "logprobs"),
        (COMPLETIONS, {"echo": "yes"}, "echo"),
        (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs"),
        (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        (CHAT, {"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        (COMPLETIONS, {"chat_template_kwargs": {}}, "chat_template_kwargs"),
    ],
)
def test_wrong_values_of_one_endpoint(client, path, fields, param):
    assert_error(
        client.post(path, json={"messages": HI} | fields if path == CHAT else {"prompt": "x"} | fields), 400, param, param
    )


def test_logprobs_beyond_what_memory_should_hold(client_for, fake):
    client = client_for(fake(max_model_len=100_000))
    fields = {"prompt": ["x"] * 8, "n": 16, "max_tokens": 99_000, "logprobs": 5}
    assert_error(client.post(COMPLETIONS, json=fields), 400, "logprobs", "2,000,000")
    fields = {"prompt": [[5] * 90_000], "n": 16, "prompt_logprobs": 5}
    assert_error(client.post(COMPLETIONS, json=fields), 400, "prompt_logprobs", "2,000,000")


@pytest.mark.parametrize("name", ["tools", "functions", "response_format", "structured_outputs"])
def test_what_may_come_one_day_says_so(client, name):
    assert_error(client.post(CHAT, json={"messages": HI, name: [{"json": 1}]}), 400, name, "not supported yet")


@pytest.mark.parametrize("path, prompt", [(CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})])
@pytest.mark.parametrize("fields, param", WRONG_VALUES)
def test_wrong_values(client, path, prompt, fields, param):
    assert_error(client.post(path, json={**prompt, **fields}), 400, param, param.split("[")[0])


@pytest.mark.parametrize(
    "messages, param",
    [
        ("hi", "messages"),
        ([], "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "hi"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([*HI, {"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[1].tool_calls"),
        ([{"role": "user", "content": "x", "name": "Ann"}], "messages[0].name"),
        ([{"role": "user", "content": "x", "mood": "good"}], "messages[0].mood"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content"),
    ],
)
def test_wrong_messages(client, messages, param):
    assert_error(client.post(CHAT, json={"messages": messages}), 400, param, param)


@pytest.mark.parametrize("prompt", [None, 5, [], [[]], ["a", 1], [1, -1], [True], [[1], "a"], {"a": 1}, ["x"] * 129])
def test_wrong_prompts(client, prompt):
    assert_error(client.post(COMPLETIONS, json={"prompt": prompt}), 400, "prompt", "prompt")


def test_a_missing_field_is_named(client):
    assert_error(client.post(CHAT, json={}), 400, "messages", "messages")
    assert_error(client.post(COMPLETIONS, json={}), 400, "prompt", "prompt")


def test_two_different_limits_are_refused(client):
    fields = {"messages": HI, "max_tokens": 3, "max_completion_tokens": 4}
    assert_error(client.post(CHAT, json=fields), 400, "max_tokens", "max_completion_tokens")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"messages": [}',
        b'"text"',
        b"[1]",
        b"null",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"messages": [{"role":"user","content":"\\ud800"}]}',
    ],
)
def test_a_body_that_is_not_a_json_object(client, body):
    response = client.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_an_error_may_quote_anything(client):
    response = client.post(
        CHAT, content=b'{"messages": [], "\xf0\x9f\x98\x80' + b"x" * 5000 + b'": 1}', headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert len(response.json()["error"]["message"]) < 1100


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(client, content_type):
    headers = {"content-type": content_type} if content_type else {}
    response = client.post(CHAT, content=json.dumps({"messages": HI}).encode(), headers=headers)
    assert_error(response, 415, None, "application/json")


def test_content_type_parameters_are_fine(client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post(CHAT, content=json.dumps({"messages": HI}), headers=headers).status_code == 200


@pytest.mark.parametrize("path, prompt", [(CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})])
def test_a_model_that_is_not_served(client, path, prompt):
    assert_error(client.post(path, json={**prompt, "model": "gpt-9"}), 404, "model", "gpt-9")


def test_an_unknown_path_and_a_wrong_method(client):
    assert_error(client.get("/v1/embeddings"), 404, None, "/v1/embeddings")
    assert_error(client.get("/page/secret.txt"), 404, None, "secret.txt")
    response = client.get(CHAT)
    assert_error(response, 405, None, "GET")
    assert response.headers["allow"] == "POST"


def test_the_engines_refusal_names_the_endpoints_own_field(client):
    long = "x" * 100
    assert_error(client.post(COMPLETIONS, json={"prompt": long}), 400, "prompt", "101 tokens")
    assert_error(client.post(CHAT, json={"messages": [{"role": "user", "content": long}]}), 400, "messages", "tokens")
    assert_error(
        client.post(CHAT, json={"messages": [{"role": "user", "content": long}], "stream": True}), 400, "messages", "tokens"
    )


def test_one_refused_prompt_of_several_leaves_none_behind(client, engine):
    assert_error(client.post(COMPLETIONS, json={"prompt": ["fits", "x" * 100]}), 400, "prompt", "tokens")
    assert not engine.submitted
    assert not engine.open


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error, status, code", [(QueueFullError("full"), 429, "queue_full"), (ShuttingDownError("bye"), 503, "shutting_down")]
)
def test_come_back_later(client, engine, stream, error, status, code):
    engine.refusal = error
    for path, prompt in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})):
        response = client.post(path, json={**prompt, "stream": stream})
        assert response.status_code == status
        assert response.json()["error"]["code"] == code
        assert int(response.headers["retry-after"]) >= 1


def test_health_while_shutting_down(client, engine):
    engine.is_draining = True
    response = client.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "shutting down")


def test_a_dead_engine(client, engine):
    engine.error = RuntimeError("out of memory")
    assert_error(client.post(CHAT, json={"messages": HI}), 503, None, "restart")
    health = client.get("/health")
    assert health.status_code == 503
    assert health.json() == {"status": "dead", "reason": "out of memory"}


def test_an_unexpected_error_keeps_its_details_to_itself(client_for, fake):
    client = client_for(fake(script=("a", KeyError("secret"))))
    response = client.post(CHAT, json={"messages": HI})
    assert_error(response, 500, None, "log")
    assert "secret" not in response.text


def test_an_answer_cut_short_is_an_error(client_for, fake):
    engine = fake(script=("a", "b"), finish=None)
    assert_error(client_for(engine).post(CHAT, json={"messages": HI}), 503, None, "before the answer was complete")
    assert not engine.open


def test_a_large_body_is_refused_whatever_its_length_header_says(client_for, fake):
    client = client_for(fake(max_model_len=10**6), max_body_bytes=1000)
    fits = {"messages": [{"role": "user", "content": "x" * 500}]}
    assert client.post(CHAT, json=fits).status_code == 200
    large = json.dumps({"messages": [{"role": "user", "content": "x" * 1000}]}).encode()
    json_type = {"content-type": "application/json"}
    assert_error(client.post(CHAT, content=large, headers=json_type), 413, None, "1,000 bytes")
    chunks = (large[i : i + 100] for i in range(0, len(large), 100))  # sent chunked, with no length at all
    assert_error(client.post(CHAT, content=chunks, headers=json_type), 413, None, "1,000 bytes")
