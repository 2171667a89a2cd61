"""An engine without a model (its tokens are characters, its answers are scripted), and clients of apps around it; and
real engines behind real ports."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import openai
import pytest
from starlette.testclient import TestClient

from minillm.async_engine import AsyncEngine
from minillm.config import EngineConfig
from minillm.errors import EngineDeadError, RequestError
from minillm.llm import LLM
from minillm.model.checkpoints.dummy import byte_tokenizer
from minillm.request import FinishReason, RequestOutput, TokenLogprob
from minillm.server.app import build_app
from minillm.server.run import Server, bind, url


class FakeTokenizer:
    special_ids = frozenset({1})
    most_bytes_per_token = None

    def encode(self, text, add_special_tokens=True):
        return ([1] if add_special_tokens else []) + [ord(c) for c in text]

    def apply_chat_template(self, messages, add_generation_prompt=True, **variables):
        opening = "".join(f"{{{k}={v}}}" for k, v in variables.items())
        return opening + "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"

    def encode_chat(self, messages, add_generation_prompt=True, **variables):
        return self.encode(self.apply_chat_template(messages, add_generation_prompt, **variables), add_special_tokens=False)

    def decode(self, token_ids, skip_special_tokens=True):
        return "".join(self.token_bytes(t).decode() for t in token_ids if not (skip_special_tokens and t in self.special_ids))

    def token(self, token_id):
        return "<s>" if token_id == 1 else chr(token_id) if token_id < 256 else None

    def token_bytes(self, token_id, first=False):
        return self.token(token_id).encode()


def scripted_logprobs(token, k):
    """The token's own (the second likeliest), then the k likeliest: A, the token, B."""
    likeliest = (TokenLogprob(65, -0.5, 1), TokenLogprob(token, -1.5, 2), TokenLogprob(66, -float("inf"), 3))
    return (likeliest[1], *likeliest[:k])


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
                asked = self.params.logprobs, self.params.prompt_logprobs
                logprobs, of_prompt = (None if k is None else lambda token, k=k: scripted_logprobs(token, k) for k in asked)
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
                    logprobs and [logprobs(step)],
                    [None, *map(of_prompt, self.prompt[1:])] if of_prompt and step == 0 else None,
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
        self.engine = SimpleNamespace(
            tokenizer=FakeTokenizer(),
            model_name="tiny/model",
            max_model_len=max_model_len,
            config=EngineConfig(),
            scheduler=SimpleNamespace(kv=SimpleNamespace(block_size=16, num_blocks=8, layers=[])),
        )
        self.error = self.refusal = None
        self.is_draining, self.observers = False, []
        self.open, self.submitted = set(), []
        self.started = self.stopped = False

    def start(self):
        self.started = True

    async def stop(self):
        self.stopped = True

    def submit_all(self, prompts, params, priority=0, cache_salt=None):
        if self.error is not None:
            raise EngineDeadError("the engine has stopped; restart the server")
        if self.refusal is not None:
            raise self.refusal
        for prompt in prompts:
            if len(prompt) >= self.engine.max_model_len:
                raise RequestError(f"the prompt has {len(prompt)} tokens, too many", param="prompt")
        streams = [FakeStream(self, prompt, params) for prompt in prompts]
        self.submitted += [(prompt, params) for prompt in prompts]
        self.extras = {"priority": priority, "cache_salt": cache_salt}
        self.open.update(streams)
        return streams

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


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if shout %}LOUD{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 30_000


@pytest.fixture(scope="session")
def chat_folder(tiny_folder, tmp_path_factory):
    """The tiny model with a chat template and a long context."""
    folder = tmp_path_factory.mktemp("tiny-chat")
    config = json.loads((tiny_folder / "config.json").read_text()) | {"max_position_embeddings": CONTEXT}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    byte_tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def chat_llm(chat_folder):
    """Makes LLMs of it: chat_llm(max_num_seqs=2, ...)."""

    def make(**options) -> LLM:
        return LLM(str(chat_folder), load_format="dummy", dtype="float32", threads=1, **options)

    return make


class Served:
    """A server on a free port in a thread of its own, with .url, .engine (the Engine) and .client (openai's)."""

    def __init__(self, engine, max_queue_size, shutdown_timeout_s, options):
        sock, self._ready = bind("127.0.0.1", 0), threading.Event()
        self.url, self.engine = url(sock), engine
        sock.listen()
        self.async_engine = AsyncEngine(engine, max_queue_size)
        self._server = Server(build_app(self.async_engine, **options), self._ready.set, shutdown_timeout_s)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [sock]})
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def start(self):
        self._thread.start()
        assert self._ready.wait(20)

    def stop(self):
        self._server.should_exit = True

    def join(self):
        self._thread.join(20)
        assert not self._thread.is_alive()

    def load(self) -> tuple[int, int]:
        health = httpx.get(f"{self.url}/health").json()
        return health["running"], health["waiting"]

    @staticmethod
    def eventually(condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def assert_all_freed(self):
        self.eventually(lambda: self.load() == (0, 0) and not self.engine.has_unfinished)
        scheduler = self.engine.scheduler
        scheduler.check_integrity()
        assert scheduler.kv.num_free == scheduler.kv.num_blocks


@pytest.fixture(scope="session")
def serving():
    """`with serving(engine, ...) as server`: a Served, stopped at the end."""

    @contextmanager
    def make(engine, max_queue_size=1024, shutdown_timeout_s=5.0, **options):
        server = Served(engine, max_queue_size, shutdown_timeout_s, options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
            server.join()

    return make
