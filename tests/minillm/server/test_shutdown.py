"""When the server is full, and when it goes down: nobody is left without an answer or an error."""

import json
import re
import socket
import threading

import httpx
import openai
import pytest

ANSWER = {"prompt": "a", "ignore_eos": True, "temperature": 0, "max_tokens": 40, "stream": True}


@pytest.fixture
def gate(monkeypatch):
    """gate(engine) lets its steps happen only while the event is set."""

    def install(engine) -> threading.Event:
        event, step = threading.Event(), engine.step
        event.set()

        def held():
            assert event.wait(20)
            return step()

        monkeypatch.setattr(engine, "step", held)
        return event

    return install


def events(response):
    return [line.removeprefix("data: ") for line in response.iter_lines() if line]


def test_accepted_requests_finish_while_new_ones_are_refused(chat_llm, serving, gate):
    engine = chat_llm(max_num_seqs=1).engine
    steps = gate(engine)
    with serving(engine, shutdown_timeout_s=20) as server:
        completions = f"{server.url}/v1/completions"
        with httpx.stream("POST", completions, json=ANSWER, timeout=60) as running:
            lines = running.iter_lines()
            first = next(lines)
            steps.clear()
            server.stop()
            server.eventually(lambda: httpx.get(f"{server.url}/health").status_code == 503)
            assert httpx.get(f"{server.url}/health").json()["status"] == "shutting down"
            refused = httpx.post(completions, json=ANSWER)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            assert int(refused.headers["retry-after"]) >= 1
            steps.set()
            rest = [line.removeprefix("data: ") for line in lines if line]
        assert first.startswith("data: ")
        assert rest[-1] == "[DONE]"
        assert json.loads(rest[-2])["choices"][0]["finish_reason"] == "length"
        server.join()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_the_deadline_ends_what_has_not_finished(chat_llm, serving, gate):
    engine = chat_llm(max_num_seqs=1).engine
    with serving(engine, shutdown_timeout_s=0) as server:
        gate(engine)
        body = ANSWER | {"max_tokens": 29_000}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
            server.stop()
            last = events(response)[-1]
    assert json.loads(last)["error"]["code"] == "engine_dead"


def test_a_client_that_never_reads_does_not_keep_the_server_alive(chat_llm, serving):
    with serving(chat_llm(max_num_seqs=8).engine, shutdown_timeout_s=0) as server:
        host, port = server.url.removeprefix("http://").split(":")
        # so much that neither side's buffers can hold it: 32,000 tokens of about 600 bytes, echoed in eight chunks
        body = json.dumps(ANSWER | {"prompt": "a" * 4000, "echo": True, "n": 8, "logprobs": 20, "max_tokens": 3}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((host, int(port)))
            deaf.sendall(f"{head}\r\n\r\n".encode() + body)
            ended = re.compile(r'request_success_total{.*"length".*} 8.0')
            server.eventually(lambda: ended.search(httpx.get(f"{server.url}/metrics").text))
            assert server.load() == (0, 0)  # the engine has finished, the sending cannot
            server.stop()
            server.join()


def test_a_full_queue_is_429(chat_llm, serving, gate):
    engine = chat_llm(max_num_seqs=1).engine
    steps = gate(engine)
    with serving(engine, max_queue_size=1) as server:
        steps.clear()
        fields = dict(model=engine.model_name, prompt="a", max_tokens=5, stream=True)
        waiting: list = []
        threads = [
            threading.Thread(target=lambda: waiting.append(list(server.client.completions.create(**fields)))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        server.eventually(lambda: sum(server.load()) == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            server.client.completions.create(**fields)
        assert caught.value.code == "queue_full"
        assert int(caught.value.response.headers["retry-after"]) >= 1
        steps.set()
        for thread in threads:
            thread.join(20)
        assert len(waiting) == 2
        with pytest.raises(openai.BadRequestError, match="answers in one request"):
            server.client.completions.create(**fields | {"n": 3})
        server.assert_all_freed()


def test_a_key_over_the_wire(chat_llm, serving):
    with serving(chat_llm().engine, api_key="right") as server:
        with pytest.raises(openai.AuthenticationError):
            server.client.models.list()
        with pytest.raises(openai.AuthenticationError):
            server.client.chat.completions.create(model="x", messages=[{"role": "user", "content": "x"}])
        welcome = server.client.with_options(api_key="right")
        assert welcome.models.list().data[0].id == server.engine.model_name
        assert httpx.get(f"{server.url}/health").status_code == 200
