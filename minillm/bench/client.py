"""The HTTP side of `bench serve`: one pooled client, one streamed request at a time, times taken before anything is parsed."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

import httpx2

from minillm.bench.datasets import Sample
from minillm.bench.stream import Answer, BadAnswer, error_message, parse_answer
from minillm.errors import MinillmError

ENDPOINTS = {"openai": "/v1/completions", "vllm": "/v1/completions", "openai-chat": "/v1/chat/completions"}
KEEPALIVE_S = 4.0  # below the five seconds after which common servers close an idle connection under us
LOOPBACK = ("localhost", "127.0.0.1", "::1")
RETRY_S = 0.5

Reads = list[tuple[float, bytes]]


class BenchError(MinillmError):
    """A benchmark that cannot start, or that measured nothing."""


class Exchange:
    """One request on the wire. `reads` are the raw bytes with the time each arrived (time.perf_counter, seconds)."""

    def __init__(self):
        self.sent = 0.0
        self.reads: Reads = []
        self.failure: str | None = None

    def answer(self) -> Answer:
        """Raises BadAnswer with the reason if it failed."""
        if self.failure is not None:
            raise BadAnswer(self.failure)
        return parse_answer(self.reads)


class ApiClient:
    def __init__(
        self,
        base_url: str,
        endpoint: str,
        backend: str = "openai",
        model: str | None = None,
        api_key: str | None = None,
        ignore_eos: bool = False,
        temperature: float | None = 0.0,
        extra_body: dict[str, Any] | None = None,
        timeout_s: float = 3600.0,
    ):
        """timeout_s: for one whole answer, queueing in the server included."""
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.endpoint, self.backend, self.model, self.timeout_s = endpoint, backend, model, timeout_s
        self._fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        self._fields |= {"temperature": temperature} if temperature is not None else {}
        self._fields |= {"ignore_eos": True} if ignore_eos else {}
        self._extra_body = extra_body or {}
        headers = {"accept-encoding": "identity", "content-type": "application/json"}
        self._http = httpx2.AsyncClient(
            headers=headers | ({"authorization": f"Bearer {api_key}"} if api_key else {}),
            timeout=httpx2.Timeout(None, connect=10.0),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S),
            trust_env=urlsplit(base_url).hostname not in LOOPBACK,  # a proxy between two ends of one machine measures itself
        )

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_) -> None:
        await self._http.aclose()

    def body(self, sample: Sample) -> bytes:
        """The request, as JSON. Built before the request is due, so that it costs no measured time."""
        if self.backend == "openai-chat":
            asked = {"messages": [{"role": "user", "content": sample.prompt}], "max_completion_tokens": sample.output_tokens}
        else:
            asked = {"prompt": sample.prompt, "max_tokens": sample.output_tokens}
        return json.dumps({"model": self.model, **asked, **self._fields, **self._extra_body}).encode()

    async def send(self, body: bytes) -> Exchange:
        """Send and read to the end. Never raises for what the server or the network did: the exchange says it."""
        exchange = Exchange()
        try:
            async with asyncio.timeout(self.timeout_s):
                exchange.sent = time.perf_counter()
                async with self._http.stream("POST", self.base_url + self.endpoint, content=body) as response:
                    async for data in response.aiter_raw():
                        exchange.reads.append((time.perf_counter(), data))
            if response.status_code != 200:
                exchange.failure = f"HTTP {response.status_code}: {_say(b''.join(data for _, data in exchange.reads))}"
        except TimeoutError:
            exchange.failure = f"no complete answer within {self.timeout_s:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            exchange.failure = _reason(e)
        return exchange

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait for the server to list its models; take the first if none was chosen. Raises BenchError.

        A server that does not listen yet, or says 5xx, is asked again until timeout_s have passed (0: asked once)."""
        deadline = time.monotonic() + timeout_s
        while True:
            status, said = await self._models()
            if status == 200 and self._choose_model(said):
                return
            if status == 404 and self.model:  # the list is optional; the first request will tell the rest
                return
            if (status is not None and status < 500) or time.monotonic() >= deadline:
                raise BenchError(self._not_ready(status, said))
            await asyncio.sleep(RETRY_S)

    async def _models(self) -> tuple[int | None, bytes]:
        """Status (None: no response) and body, or the reason there is none."""
        try:
            response = await self._http.get(f"{self.base_url}/v1/models", timeout=10.0)
            return response.status_code, response.content
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            return None, _reason(e).encode()

    def _choose_model(self, said: bytes) -> bool:
        try:
            self.model = self.model or json.loads(said)["data"][0]["id"]
        except (ValueError, LookupError, TypeError):
            return False
        return True

    def _not_ready(self, status: int | None, said: bytes) -> str:
        if status is None:
            return f"no server answers at {self.base_url} ({_say(said)}); start it, or give its address with --base-url"
        if status in (401, 403):
            return f"{self.base_url} refused the key (HTTP {status}); give one with --api-key or OPENAI_API_KEY"
        return f"{self.base_url}/v1/models gave HTTP {status} and names no model ({_say(said)}); choose one with --model"


def _reason(error: Exception) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _say(body: bytes) -> str:
    try:
        return error_message(json.loads(body))
    except ValueError:
        return error_message(body.decode("utf-8", "replace")) or "no reason given"
