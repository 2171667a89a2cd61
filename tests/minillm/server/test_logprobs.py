"""The shapes of log-probabilities, and how they reach a client."""

import json

import pytest

from minillm.request import TokenLogprob
from minillm.server.logprobs import CompletionLogprobs, chat_logprobs, joined, prompt_logprobs

HI = [{"role": "user", "content": "hi"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class ByteTokenizer:
    """Token n is byte n; token 256 is a special one."""

    special_ids = frozenset({256})

    def token_bytes(self, token_id, first=False):
        if token_id == 256:
            return b"<|end|>"
        return b"" if first and token_id == 32 else bytes([token_id])  # a leading space is dropped, as Llama does


def entry(*token_ids):
    return tuple(TokenLogprob(token_id, -float(rank), rank) for rank, token_id in enumerate(token_ids, 1))


def test_a_chat_token_spells_its_bytes_even_where_they_are_no_character():
    logprobs = chat_logprobs(ByteTokenizer(), [entry(0xC3, 0xC3, 65)], count=2)
    half = {"token": "\ufffd", "logprob": -1.0, "bytes": [0xC3]}
    assert logprobs["content"] == [
        half | {"top_logprobs": [half | {"logprob": -2.0}, {"token": "A", "logprob": -3.0, "bytes": [65]}]}
    ]
    assert logprobs["refusal"] is None
    assert chat_logprobs(ByteTokenizer(), None, 0) is None


def test_offsets_count_characters_across_deltas():
    shape = CompletionLogprobs(ByteTokenizer(), count=0, skip_special_tokens=True)
    tokens = [*"aé".encode(), 256, *"🙂b".encode()]
    parts = [shape.answer([t], [entry(t)]) for t in tokens]
    #   a, é in two bytes, a special token without text, the emoji in four, b
    assert joined(parts)["text_offset"] == [0, 1, 1, 2, 2, 2, 2, 2, 3]
    assert joined(parts)["tokens"][0] == "a"


def test_special_tokens_take_their_room_where_they_are_shown():
    shape = CompletionLogprobs(ByteTokenizer(), count=0, skip_special_tokens=False)
    assert shape.answer([256, 65], [entry(256), entry(65)])["text_offset"] == [0, 7]


def test_an_echoed_prompt_counts_what_is_shown_of_it():
    shape = CompletionLogprobs(ByteTokenizer(), count=0, skip_special_tokens=True)
    prompt = [256, 32, 65, 256, 66]  # a BOS that was put in front, a dropped space, a special token that was typed
    echoed = shape.prompt(prompt, [None, *map(entry, prompt[1:])], "A<|end|>B")
    assert echoed["text_offset"] == [0, 0, 0, 1, 8]
    assert echoed["token_logprobs"] == [None, -1.0, -1.0, -1.0, -1.0]
    assert echoed["top_logprobs"][0] is None
    assert shape.answer([67], [entry(67)])["text_offset"] == [9]


def test_tokens_that_are_spelled_alike_keep_the_likelier():
    shape = CompletionLogprobs(ByteTokenizer(), count=3, skip_special_tokens=True)
    own, *likeliest = entry(0xC4, 0xC3, 65, 0xC4)
    assert shape.answer([0xC4], [(own, *likeliest)])["top_logprobs"] == [{"\ufffd": -1.0, "A": -3.0}]


def test_a_token_without_its_entry_is_a_fault():
    with pytest.raises(ValueError):
        CompletionLogprobs(ByteTokenizer(), 0, True).answer([65, 66], [entry(65)])


def test_prompt_logprobs_are_keyed_by_token_id():
    shown = prompt_logprobs(ByteTokenizer(), [None, entry(65, 66, 65, 67)], count=2)
    assert shown == [
        None,
        {
            "65": {"logprob": -3.0, "rank": 3, "decoded_token": "A"},
            "66": {"logprob": -2.0, "rank": 2, "decoded_token": "B"},
        },
    ]


def events(response):
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n")[:-2]]


def test_chat_whole_and_streamed_agree(client):
    fields = {"messages": HI, "logprobs": True, "top_logprobs": 3}
    [choice] = client.post(CHAT, json=fields).json()["choices"]
    content = choice["logprobs"]["content"]
    assert [t["logprob"] for t in content] == [-1.5] * 3  # one for each token, that without text included
    assert [[top["token"] for top in t["top_logprobs"]] for t in content][2] == ["A", "\x02", "B"]
    assert content[0]["top_logprobs"][2]["logprob"] == -9999.0  # JSON has no infinity
    streamed = [e["choices"][0]["logprobs"] for e in events(client.post(CHAT, json=fields | {"stream": True}))]
    assert [t for logprobs in streamed if logprobs for t in logprobs["content"]] == content


def test_chat_without_top_logprobs(client):
    [choice] = client.post(CHAT, json={"messages": HI, "logprobs": True}).json()["choices"]
    assert [t["top_logprobs"] for t in choice["logprobs"]["content"]] == [[], [], []]


def test_completions_whole_and_streamed_agree(client):
    for more in ({}, {"echo": True}):
        fields = {"prompt": ["ab", "c"], "logprobs": 1, "n": 2, **more}
        whole = client.post(COMPLETIONS, json=fields).json()["choices"]
        chunks = [e["choices"][0] for e in events(client.post(COMPLETIONS, json=fields | {"stream": True}))]
        for i, choice in enumerate(whole):
            mine = [c for c in chunks if c["index"] == i]
            assert "".join(c["text"] for c in mine) == choice["text"]
            assert joined([c["logprobs"] for c in mine]) == choice["logprobs"]
        assert [len(c["logprobs"]["tokens"]) for c in whole] == ([3] * 4 if not more else [6, 6, 5, 5])


def test_echo(client):
    fields = {"prompt": ["ab", "c"], "echo": True, "n": 2}
    texts = [c["text"] for c in client.post(COMPLETIONS, json=fields).json()["choices"]]
    assert texts == ["abHello", "abHello", "cHello", "cHello"]
    [choice] = client.post(COMPLETIONS, json={"prompt": [1, 97, 98], "echo": True}).json()["choices"]
    assert choice["text"] == "abHello"
    assert choice["logprobs"] is None
    raw = {"prompt": [1, 97], "echo": True, "skip_special_tokens": False}
    assert client.post(COMPLETIONS, json=raw).json()["choices"][0]["text"] == "<s>aHello"


def test_an_echoed_prompt_has_logprobs_of_its_own(client, engine):
    [choice] = client.post(COMPLETIONS, json={"prompt": "ab", "echo": True, "logprobs": 2}).json()["choices"]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["<s>", "a", "b", "\0", "<s>", "\x02"]
    assert logprobs["token_logprobs"] == [None, *[-1.5] * 5]
    assert logprobs["top_logprobs"][1] == {"a": -1.5, "A": -0.5}
    assert logprobs["text_offset"][:4] == [0, 0, 1, 2]
    assert "prompt_logprobs" not in choice
    assert engine.submitted[0][1].prompt_logprobs == 2


def test_prompt_logprobs_on_request(client):
    body = client.post(CHAT, json={"messages": HI, "prompt_logprobs": 1}).json()
    assert len(body["prompt_logprobs"]) == body["usage"]["prompt_tokens"]
    assert body["prompt_logprobs"][0] is None
    assert body["prompt_logprobs"][1]["65"] == {"logprob": -0.5, "rank": 1, "decoded_token": "A"}
    choices = client.post(COMPLETIONS, json={"prompt": ["ab", "abcd"], "prompt_logprobs": 0}).json()["choices"]
    assert [len(c["prompt_logprobs"]) for c in choices] == [3, 5]
    assert choices[0]["prompt_logprobs"][1] == {"97": {"logprob": -1.5, "rank": 2, "decoded_token": "a"}}
    assert choices[0]["logprobs"] is None


def test_echo_with_fewer_logprobs_than_prompt_logprobs(client):
    fields = {"prompt": "ab", "echo": True, "logprobs": 0, "prompt_logprobs": 2}
    [choice] = client.post(COMPLETIONS, json=fields).json()["choices"]
    assert [len(top) for top in choice["logprobs"]["top_logprobs"] if top] == [1] * 5
    assert len(choice["prompt_logprobs"][1]) == 2
