"""The real engine behind a real port, asked by the openai client and by clients that vanish."""

import json
from types import SimpleNamespace

import httpx
import openai
import pytest

from minillm.request import SamplingParams

CONTEXT = 30_000  # chat_folder's: so long that only an abort can end an answer within a test
ENDLESS = {"ignore_eos": True, "temperature": 0, "max_tokens": CONTEXT - 100}


@pytest.fixture
def tiny(chat_llm, serving):
    with serving(chat_llm(max_num_seqs=3).engine, shutdown_timeout_s=0.2) as server:
        yield server


CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = ["Once upon a time", "1, 2, 3, 4,"]


@pytest.fixture(scope="module")
def real(smollm2, serving):
    """SmolLM2 behind a server; .offline holds what the same engine said before the server's thread took it over."""
    chat = smollm2.chat(CAPITAL, SamplingParams(temperature=0, max_tokens=20))
    texts = [g.text for g in smollm2.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12))]
    with serving(smollm2.engine) as server:
        server.offline = SimpleNamespace(chat=chat, texts=texts)
        yield server


def test_openai_client_chat(real):
    expected = real.offline.chat
    answer = real.client.chat.completions.create(model="smollm2-135m", messages=CAPITAL, temperature=0, max_tokens=20)
    assert answer.choices[0].message.content == expected.text
    assert "Paris" in expected.text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(expected.prompt_token_ids)
    assert answer.usage.completion_tokens == len(expected.outputs[0].token_ids)
    # an answer of ours, every field of it, is accepted as a message again
    again = [*CAPITAL, answer.choices[0].message.model_dump(), {"role": "user", "content": "Thanks"}]
    assert real.client.chat.completions.create(model="smollm2-135m", messages=again, max_tokens=2).usage.completion_tokens == 2


def test_openai_client_chat_streamed(real):
    messages = [{"role": "user", "content": "Say something with an emoji 🙂 in it."}]
    fields = dict(model="smollm2-135m", messages=messages, temperature=0, max_completion_tokens=30)
    whole = real.client.chat.completions.create(**fields)
    *chunks, last = real.client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices == []
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [getattr(last.usage, name) for name in counts] == [getattr(whole.usage, name) for name in counts]
    assert last.usage.prompt_tokens_details.cached_tokens > 0  # the prefix cache remembers the first time


def test_openai_client_completions(real):
    answer = real.client.completions.create(model="smollm2-135m", prompt=PROMPTS, temperature=0, max_tokens=12)
    assert [c.text for c in answer.choices] == real.offline.texts
    assert answer.usage.completion_tokens == 24
    texts = ["", ""]
    for chunk in real.client.completions.create(model="smollm2-135m", prompt=PROMPTS, temperature=0, max_tokens=12, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == real.offline.texts


def test_stop_strings(real):
    fields = dict(model="smollm2-135m", prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=40)
    whole = real.client.completions.create(**fields).choices[0]
    assert ", 8" in whole.text
    cut = real.client.completions.create(**fields, stop=["nope", ", 8"]).choices[0]
    assert cut.text == whole.text.partition(", 8")[0]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", ", 8")
    kept = real.client.completions.create(**fields, stop=", 8", extra_body={"include_stop_str_in_output": True}).choices[0]
    assert kept.text == cut.text + ", 8"
    streamed = real.client.completions.create(**fields, stop=", 8", stream=True)
    assert "".join(c.choices[0].text for c in streamed) == cut.text


def test_samples_differ_and_a_seed_repeats_them(real):
    fields = dict(model="smollm2-135m", messages=[{"role": "user", "content": "Tell me a story"}], max_tokens=12, n=2, seed=3)
    first = [c.message.content for c in real.client.chat.completions.create(**fields).choices]
    assert first[0] != first[1]
    assert [c.message.content for c in real.client.chat.completions.create(**fields).choices] == first


def test_openai_client_errors(tiny):
    client, name = tiny.client, tiny.engine.model_name
    with pytest.raises(openai.BadRequestError, match="context holds 30000") as caught:
        client.completions.create(model=name, prompt=[5] * CONTEXT, stream=True)
    assert caught.value.param == "prompt"
    with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
        client.completions.create(model=name, prompt=[5], max_tokens=CONTEXT)
    assert caught.value.param == "max_tokens"
    with pytest.raises(openai.BadRequestError, match="vocabulary"):
        client.completions.create(model=name, prompt=[5000])
    with pytest.raises(openai.NotFoundError, match="gpt"):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": "x"}], tools=[{"type": "function"}])
    tiny.assert_all_freed()


def test_a_model_without_a_template_completes_but_does_not_chat(tiny_llm, serving):
    with serving(tiny_llm().engine) as server:
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            server.client.chat.completions.create(model=server.engine.model_name, messages=[{"role": "user", "content": "x"}])
        assert server.client.completions.create(model=server.engine.model_name, prompt="x").usage.completion_tokens > 0


@pytest.mark.parametrize(
    "path, prompt",
    [("chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("completions", {"prompt": ["a", "b"]})],
)
def test_a_client_that_leaves_a_stream_frees_everything(tiny, path, prompt):
    # 2 to 4 samples, of which 3 may run: running and waiting ones alike
    body = {**prompt, **ENDLESS, "n": 2, "stream": True}
    with httpx.stream("POST", f"{tiny.url}/v1/{path}", json=body, timeout=60) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        for _ in range(6):
            next(lines)
        assert tiny.load()[0] >= 2
    tiny.assert_all_freed()


def test_a_client_that_stops_waiting_for_a_whole_answer_frees_it(tiny):
    body = {"prompt": ["a", "b"], **ENDLESS, "n": 2}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{tiny.url}/v1/completions", json=body, timeout=0.5)
    tiny.assert_all_freed()


def test_others_go_on_when_one_leaves(tiny):
    with httpx.stream(
        "POST", f"{tiny.url}/v1/completions", json={"prompt": "a", **ENDLESS, "stream": True}, timeout=60
    ) as response:
        next(response.iter_lines())
        fields = dict(model=tiny.engine.model_name, prompt="bcd", temperature=0, max_tokens=30, extra_body={"ignore_eos": True})
        beside = tiny.client.completions.create(**fields)
    tiny.assert_all_freed()
    assert tiny.client.completions.create(**fields).choices[0].text == beside.choices[0].text


def test_an_engine_that_dies_says_so_to_everyone(tiny, monkeypatch):
    body = {"prompt": "a", **ENDLESS, "stream": True}
    with httpx.stream("POST", f"{tiny.url}/v1/completions", json=body, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        monkeypatch.setattr(tiny.engine, "step", lambda: 1 / 0)
        last = list(lines)[-1]
    assert "ZeroDivisionError" in json.loads(last.removeprefix("data: "))["error"]["message"]
    health = httpx.get(f"{tiny.url}/health")
    assert (health.status_code, health.json()["status"]) == (503, "dead")
    with pytest.raises(openai.InternalServerError) as caught:
        tiny.client.completions.create(model=tiny.engine.model_name, prompt="x")
    assert caught.value.status_code == 503


def test_the_server_stops_although_an_answer_is_running(tiny):
    """The reader is told; the fixture's end asserts that the server's thread is gone."""
    with httpx.stream(
        "POST", f"{tiny.url}/v1/completions", json={"prompt": "a", **ENDLESS, "stream": True}, timeout=60
    ) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        tiny.stop()
        last = list(lines)[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_dead"
