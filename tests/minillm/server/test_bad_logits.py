"""What a client sees when the model gives NaN for its request, and what its neighbours do not."""

import json
import math

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

BAD = 299  # its embedding is NaN
SHAPE = {"max_tokens": 5, "temperature": 0, "extra_body": {"ignore_eos": True}, "logit_bias": {str(BAD): -100}}


@pytest.fixture(scope="module")
def server(chat_llm, serving):
    llm = chat_llm(max_model_len=400)
    llm.engine.runner.model.embed_tokens.register_forward_hook(
        lambda module, args, out: out.masked_fill((args[0] == BAD)[..., None], math.nan)
    )
    with serving(llm.engine) as server:
        yield server


def ended(server, reason):
    families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
    return sum(
        s.value
        for f in families
        for s in f.samples
        if s.name == "minillm:request_success_total" and s.labels["finished_reason"] == reason
    )


def test_one_request_fails_and_the_others_go_on(server):
    failed, done = ended(server, "error"), ended(server, "length")
    stream = server.client.completions.create(model=None, prompt=[5, 6, 7], stream=True, **SHAPE | {"max_tokens": 200})
    next(iter(stream))
    for prompt_logprobs in (None, 1):
        body = SHAPE["extra_body"] | {"prompt_logprobs": prompt_logprobs}
        with pytest.raises(openai.InternalServerError) as e:
            server.client.completions.create(model=None, prompt=[5, BAD, 6], logprobs=2, **SHAPE | {"extra_body": body})
        assert e.value.status_code == 500 and "NaN" in e.value.message and e.value.type == "server_error"
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    server.assert_all_freed()
    assert (ended(server, "error"), ended(server, "length")) == (failed + 2, done + 1)


def test_a_stream_ends_in_an_error_event(server):
    body = {"prompt": [5, BAD], "stream": True, "max_tokens": 5, "logprobs": 1}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body) as response:
        lines = [line for line in response.iter_lines() if line]
    assert response.status_code == 200 and "[DONE]" not in lines[-1]
    assert "NaN" in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]
    server.assert_all_freed()


def test_one_bad_prompt_of_several_fails_the_request(server):
    with pytest.raises(openai.InternalServerError):
        server.client.completions.create(model=None, prompt=[[5, 6], [5, BAD]], **SHAPE)
    server.assert_all_freed()
