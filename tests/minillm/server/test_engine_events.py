"""The stream of step events: it begins with a snapshot, never makes the engine wait, and leaves nothing behind."""

import asyncio
import json
import threading
import time
from contextlib import closing, contextmanager

import httpx
import pytest

from minillm.replay import EngineState
from minillm.request import SamplingParams
from minillm.server import events
from minillm.server.events import MAX_BEHIND, MAX_LISTENERS, Listener

PROMPT = list(range(40))


@contextmanager
def listening(server, headers=None):
    """An iterator over the events of GET /engine/events."""
    with httpx.stream("GET", f"{server.url}/engine/events", timeout=20, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def eventually(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def server(serving, chat_llm):
    with serving(chat_llm(max_num_seqs=3, max_model_len=1000).engine) as served:
        yield served


def ask(server, **fields):
    body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, "temperature": 0} | fields
    assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200


def test_a_reader_sees_every_step_and_can_rebuild_the_cache(server):
    with listening(server) as stream:
        first = next(stream)
        assert (first["type"], first["running"]) == ("snapshot", [])
        ask(server)
        state, steps = EngineState(first), 0
        while not steps or state.requests:
            event = next(stream)
            state.apply(event)
            steps += event["type"] == "step"
    assert steps == 12
    pool = server.engine.scheduler.kv.pool
    assert state.blocks.references() == pool._references
    assert state.named == {block for block in range(pool.num_blocks) if pool.is_named(block)} != set()


def test_a_reader_that_goes_away_costs_nothing_any_more(server, monkeypatch):
    monkeypatch.setattr(events, "SILENCE_S", 1.0)  # a vanished reader is noticed when something is sent to it
    with listening(server) as stream:
        next(stream)
        assert server.engine.events.is_on
    ask(server)
    eventually(lambda: not server.engine.events.is_on)
    assert server.engine.scheduler.kv.pool.renamed is None


def test_an_idle_stream_is_kept_alive_by_comments(server, monkeypatch):
    monkeypatch.setattr(events, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(events, "SILENCE_S", 0.1)
    with httpx.stream("GET", f"{server.url}/engine/events", timeout=20) as response:
        lines = [line for line, _ in zip(response.iter_lines(), range(8), strict=False)]
    assert sum(line.startswith(":") for line in lines) >= 3


def test_no_more_readers_than_allowed(server):
    for _ in range(MAX_LISTENERS):
        server.engine.events.subscribe(lambda event: None)
    response = httpx.get(f"{server.url}/engine/events", timeout=20)
    assert response.status_code == 503 and "watch" in response.json()["error"]["message"]


def test_the_key_guards_the_events(serving, chat_llm):
    with serving(chat_llm(max_num_seqs=3, max_model_len=1000).engine, api_key="open sesame") as server:
        assert httpx.get(f"{server.url}/engine/events", timeout=20).status_code == 401
        with listening(server, {"authorization": "Bearer open sesame"}) as stream:
            assert next(stream)["type"] == "snapshot"


def test_an_open_page_does_not_keep_the_server_from_stopping(server):
    with listening(server) as stream:
        next(stream)
        server.stop()
        assert list(stream) == []  # the stream ends, and with it this line
    server.join()


class TestListener:
    """Without HTTP: an engine stepped by hand and a reader that does not read."""

    @pytest.fixture
    def engine(self, tiny_llm):
        return tiny_llm().engine

    def run(self, engine, count):
        """Aborts are events too, and need no model."""
        for _ in range(count):
            (request,) = engine.make_requests([1, 2, 3], SamplingParams(max_tokens=4))
            engine.add(request)
            engine.abort([request.request_id])

    def test_a_slow_reader_goes_on_from_a_snapshot(self, engine):
        async def read():
            listener = Listener(engine.events)
            listener.open()
            with closing(listener):
                self.run(engine, MAX_BEHIND - 1)
                assert len(await listener.take(1)) == MAX_BEHIND, "so many are kept, the snapshot among them"
                self.run(engine, MAX_BEHIND + 1)
                assert not listener._events, "nothing is kept for whoever will get a snapshot"
                (snapshot,) = await listener.take(1)
                self.run(engine, 2)
                return snapshot, await listener.take(1)

        snapshot, after = asyncio.run(read())
        assert snapshot["type"] == "snapshot"
        state = EngineState(snapshot)
        for event in after:
            state.apply(event)
        assert state.seq == 2 * MAX_BEHIND + 1
        assert not engine.events.is_on

    def test_nothing_to_read_is_an_empty_list(self, engine):
        async def read():
            listener = Listener(engine.events)
            listener.open()
            with closing(listener):
                return [len(await listener.take(0.01)) for _ in range(2)]

        assert asyncio.run(read()) == [1, 0]

    def test_an_event_after_the_loop_has_closed_is_dropped(self, engine):
        async def open_only():
            listener = Listener(engine.events)
            listener.open()
            return listener

        listener = asyncio.run(open_only())
        self.run(engine, 3)  # would raise in the engine's thread otherwise
        listener.close()

    def test_readers_come_and_go_while_the_engine_runs(self, engine):
        """A soak: whatever the moment of joining, the first is a snapshot and none is missing after it."""
        stop = threading.Event()

        def work():
            while not stop.is_set():
                for request in engine.make_requests(PROMPT, SamplingParams(max_tokens=3, n=2)):
                    engine.add(request)
                while engine.has_unfinished:
                    engine.step_text()

        async def read():
            listener, seen = Listener(engine.events), []
            listener.open()
            with closing(listener):
                while len(seen) < 12:
                    seen += await listener.take(5)
            return seen

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(30):
                first, *rest = asyncio.run(read())
                state = EngineState(first)
                for event in rest:
                    state.apply(event)
                assert all(state.requests[i].num_computed_tokens <= len(state.requests[i].block_ids) * 16 for i in state.requests)
        finally:
            stop.set()
            thread.join()
        assert not engine.events.is_on
