"""/tokenize and /detokenize, in vLLM's shapes."""

import pytest

HI = [{"role": "user", "content": "hi"}]


def test_a_prompt(client):
    body = client.post("/tokenize", json={"prompt": "ab", "model": "tiny/model"}).json()
    assert body == {"count": 3, "max_model_len": 64, "tokens": [1, 97, 98]}
    assert client.post("/tokenize", json={"prompt": "ab", "add_special_tokens": False}).json()["tokens"] == [97, 98]
    assert client.post("/tokenize", json={"prompt": ""}).json()["tokens"] == [1]
    named = client.post("/tokenize", json={"prompt": "ab", "return_token_strs": True}).json()
    assert named["token_strs"] == ["<s>", "a", "b"]


def test_messages(client):
    tokens = client.post("/tokenize", json={"messages": HI}).json()["tokens"]
    assert "".join(map(chr, tokens)) == "<user>hi<assistant>"
    fields = {"messages": HI, "chat_template_kwargs": {"a": 1}, "add_special_tokens": False}
    assert "".join(map(chr, client.post("/tokenize", json=fields).json()["tokens"])) == "{a=1}<user>hi<assistant>"


def test_back_again(client):
    assert client.post("/detokenize", json={"tokens": [1, 97, 98]}).json() == {"prompt": "<s>ab"}
    assert client.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize(
    "path, fields, param, status",
    [
        ("/tokenize", {}, "prompt", 400),
        ("/tokenize", {"prompt": "a", "messages": HI}, "prompt", 400),
        ("/tokenize", {"prompt": 5}, "prompt", 400),
        ("/tokenize", {"prompt": ["a"]}, "prompt", 400),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt", 400),
        ("/tokenize", {"prompt": "a", "chat_template_kwargs": {}}, "chat_template_kwargs", 400),
        ("/tokenize", {"messages": []}, "messages", 400),
        ("/tokenize", {"messages": HI, "add_special_tokens": True}, "add_special_tokens", 400),
        ("/tokenize", {"prompt": "a", "nope": 1}, "nope", 400),
        ("/tokenize", {"prompt": "a", "model": "other"}, "model", 404),
        ("/detokenize", {}, "tokens", 400),
        ("/detokenize", {"tokens": "ab"}, "tokens", 400),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]", 400),
        ("/detokenize", {"tokens": [97, 2**31]}, "tokens[1]", 400),
        ("/detokenize", {"tokens": [97, 300]}, "tokens[1]", 400),
        ("/detokenize", {"tokens": [True]}, "tokens[0]", 400),
        ("/detokenize", {"tokens": [97], "model": "other"}, "model", 404),
    ],
)
def test_what_is_refused(client, path, fields, param, status):
    response = client.post(path, json=fields)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param
