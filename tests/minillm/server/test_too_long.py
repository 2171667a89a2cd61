"""Prompts beyond the context: refused by OpenAI's code for it, and, where their bytes tell, before they are tokenized."""

import openai
import pytest

from minillm.server.serving import Serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def server(chat_llm, serving):
    with serving(chat_llm(max_model_len=400).engine) as server:
        yield server


def ask(client, endpoint, text, **more):
    if endpoint == CHAT:
        return client.chat.completions.create(model=None, messages=[{"role": "user", "content": text}], **more)
    return client.completions.create(model=None, prompt=text, **more)


@pytest.mark.parametrize("endpoint, param", [(CHAT, "messages"), (COMPLETIONS, "prompt")])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "length, more, says, at_fault",
    [
        (400, {}, "this model's context holds 400, one of them for the answer", None),
        (300, {"max_tokens": 399}, "max_tokens asks for 399 more", "max_tokens"),
        (20_000, {}, "bytes", None),
    ],
)
def test_context_length_exceeded(server, endpoint, param, stream, length, more, says, at_fault):
    with pytest.raises(openai.BadRequestError) as e:
        ask(server.client, endpoint, "x" * length, stream=stream, **more)
    assert e.value.code == "context_length_exceeded" and e.value.type == "invalid_request_error"
    assert e.value.param == (at_fault or param) and says in e.value.message


def test_a_hopeless_text_is_not_even_tokenized(server, monkeypatch):
    tokenized = []
    tokenizer = type(server.engine.tokenizer)
    encode = tokenizer.encode
    monkeypatch.setattr(
        tokenizer, "encode", lambda self, text, *args, **more: tokenized.append(text) or encode(self, text, *args, **more)
    )
    for endpoint in (CHAT, COMPLETIONS):
        with pytest.raises(
            openai.BadRequestError, match=r"1,000,\d\d\d bytes; this model's context holds 400 tokens of at most \d+ bytes"
        ):
            ask(server.client, endpoint, "x" * 1_000_000)
    assert tokenized == []
    with pytest.raises(openai.BadRequestError, match="401 tokens"):
        ask(server.client, COMPLETIONS, "x" * 401)
    assert tokenized == ["x" * 401]


def test_half_a_surrogate_pair_is_named_however_long_the_text(server):
    serving = Serving(server.async_engine, "m")
    for text in ("\ud83d", "\ud83d" + "x" * 500):
        with pytest.raises(ValueError, match="surrogate"):
            serving.encode(text)
