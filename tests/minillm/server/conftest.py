"""An engine without a model (its tokens are characters, its answers are scripted), and clients of apps around it."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from minillm.errors import EngineDeadError, RequestError
from minillm.request import FinishReason, RequestOutput
from minillm.server.app import build_app


class FakeTokenizer:
    def encode(self, text, add_special_tokens=True):
        return ([1] if add_special_tokens else []) + [ord(c) for c in text]

    def apply_chat_template(self, messages, add_generation_prompt=True):
        return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"

    def encode_chat(self, messages):
        return self.encode(self.apply_chat_template(messages), add_special_tokens=False)


class FakeStream:
    def __init__(self, engine, prompt, params):
        self.engine, self.params, self.prompt = engine, params, prompt
        self.closed = False
        self._items = self._script()

    async def _script(self):
        for step, text in enumerate(self.engine.script):
            for index in range(self.params.n):
                if isinstance(text, Exception):
                    raise text
                if text is None:  # never goes on by itself
                    await asyncio.Event().wait()
                last = step == len(self.engine.script) - 1
                yield RequestOutput(
                    "r",
                    index,
                    text,
                    [step],
                    self.engine.finish if last else None,
                    None,
                    len(self.prompt),
                    step + 1,
                    self.engine.cached,
                )
            await asyncio.sleep(0)

    def __aiter__(self):
        return self

    async def __anext__(self):
        item = await anext(self._items)
        if item.finished and item.index == self.params.n - 1:
            self.engine.open.discard(self)
        return item

    async def aclose(self):
        self.closed = True
        self.engine.open.discard(self)


class FakeAsyncEngine:
    """script: texts one after the other; an exception is raised in its place, None waits for ever."""

    def __init__(self, script=("Hel", "", "lo"), finish=FinishReason.STOP, max_model_len=64, cached=0):
        self.script, self.finish, self.cached = script, finish, cached
        self.engine = SimpleNamespace(tokenizer=FakeTokenizer(), model_name="tiny/model", max_model_len=max_model_len)
        self.error = None
        self.open, self.submitted = set(), []
        self.started = self.stopped = False

    def start(self):
        self.started = True

    async def stop(self):
        self.stopped = True

    def submit(self, prompt, params, request_id=None):
        if self.error is not None:
            raise EngineDeadError("the engine has stopped; restart the server")
        if len(prompt) >= self.engine.max_model_len:
            raise RequestError(f"the prompt has {len(prompt)} tokens, too many", param="prompt")
        stream = FakeStream(self, prompt, params)
        self.submitted.append((prompt, params))
        self.open.add(stream)
        return stream

    def stats(self):
        return {"running": len(self.open), "waiting": 0, "kv_cache_usage_perc": 0.0}


@pytest.fixture
def fake():
    """The class itself: fake(script=...) makes an engine."""
    return FakeAsyncEngine


@pytest.fixture
def engine():
    return FakeAsyncEngine()


@pytest.fixture
def client(client_for, engine):
    return client_for(engine)


@pytest.fixture
def client_for():
    """A client of an app around any engine: client_for(fake(...), max_body_bytes=...)"""
    open_clients = []

    def make(engine, **options):
        client = TestClient(build_app(engine, **options), raise_server_exceptions=False)
        open_clients.append(client.__enter__())
        return client

    yield make
    for client in open_clients:
        client.__exit__(None, None, None)
