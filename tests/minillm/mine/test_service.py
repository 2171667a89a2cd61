"""A learner's part behind HTTP."""

import json
from contextlib import contextmanager

from starlette.testclient import TestClient

from minillm.async_engine import AsyncEngine
from minillm.server.app import build_app

PROMPT = [5, 6, 7]
NUMBER_FOR_YES = """
    def allocate(self, request, num_new_tokens):
        return super().allocate(request, num_new_tokens) and 1
"""
ENDS_IN_NOTHING = """
    num_pushed = 0

    def push(self, token_id):
        self.num_pushed += 1
        return "a" if self.num_pushed < 3 else None
"""


@contextmanager
def serving(llm):
    app = build_app(AsyncEngine(llm.engine), own_parts=llm.own_parts)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def complete(client, **fields):
    return client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 4, "ignore_eos": True, "temperature": 0} | fields)


def test_the_server_runs_it_and_says_so(labs, tiny_llm):
    labs.write("kv.contiguous")
    llm = tiny_llm(kv="contiguous", mine=["kv.contiguous"])
    with serving(llm) as client:
        assert client.get("/health").json()["own_parts"] == ["kv.contiguous"]
        answers = [complete(client).json()["choices"][0]["text"] for _ in range(3)]
    assert llm.engine.scheduler.kv.calls.count("start") == 3
    with serving(tiny_llm(kv="contiguous")) as client:
        assert client.get("/health").json()["own_parts"] == []
        assert answers == 3 * [complete(client).json()["choices"][0]["text"]]


def test_a_fault_in_service_reaches_the_client_and_the_log(labs, tiny_llm, caplog):
    """A step that dies takes the engine with it, as any other does; nobody hangs, and everybody reads why."""
    labs.write("kv.contiguous", NUMBER_FOR_YES)
    with serving(tiny_llm(kv="contiguous", mine=True)) as client:
        whole = complete(client, max_tokens=3)
        assert whole.status_code == 503 and "returned 1 from allocate" in whole.json()["error"]["message"]
        assert "your kv.contiguous (lab 2.3, ContiguousKV, labs/c2/" in caplog.text
        assert "your kv.contiguous" in complete(client).json()["error"]["message"]
        health = client.get("/health")
        assert health.status_code == 503 and "`labs check 2.3`" in health.json()["reason"]


def test_a_fault_while_an_answer_streams(labs, tiny_llm):
    labs.write("text.stream", ENDS_IN_NOTHING)
    with serving(tiny_llm(mine=True)) as client:
        *chunks, last = [line for line in complete(client, stream=True).text.split("\n\n") if line]
    assert len(chunks) == 2
    assert "your text.stream" in last and "returned None from push" in json.loads(last.removeprefix("data: "))["error"]["message"]
