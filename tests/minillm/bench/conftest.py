"""Servers on free ports of this machine, each in a thread of its own."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from minillm.server.run import bind, url


@contextmanager
def running(app):
    """The address of a server around an ASGI app."""
    sock = bind("127.0.0.1", 0)
    sock.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield url(sock)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class FakeServer:
    """One worker, first come, first served. plan(i, body) says what becomes of the i-th request:
    seconds of work before a plain answer of three tokens in two chunks, or a response of its own."""

    def __init__(self, plan=lambda i, body: 0.0):
        self.plan, self.bodies, self.headers = plan, [], []
        self._worker = asyncio.Lock()
        routes = [Route("/v1/models", self.models), Route("/v1/{rest:path}", self.answer, methods=["POST"])]
        self.app = Starlette(routes=routes)

    async def models(self, request):
        return JSONResponse({"object": "list", "data": [{"id": "fake"}]})

    async def answer(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        planned = self.plan(len(self.bodies) - 1, body)
        if not isinstance(planned, float):
            return planned
        async with self._worker:
            await asyncio.sleep(planned)
        return stream([chunk("one"), chunk(" two three", "length"), usage(4, 3)])


def chunk(text, finish=None):
    return {"choices": [{"index": 0, "text": text, "delta": {"content": text}, "finish_reason": finish}]}


def usage(prompt, completion):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def stream(events):
    async def lines():
        for event in events:
            yield f"data: {json.dumps(event)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


@pytest.fixture
def fake_server():
    """Starts a FakeServer: fake_server(plan) gives it, with its .url."""
    open_servers = []

    def start(plan=lambda i, body: 0.0) -> FakeServer:
        server = FakeServer(plan)
        context = running(server.app)
        server.url = context.__enter__()
        open_servers.append(context)
        return server

    yield start
    for context in open_servers:
        context.__exit__(None, None, None)


@pytest.fixture
def events():
    """(chunk, usage, stream): what a server's answer is made of."""
    return chunk, usage, stream


@pytest.fixture(scope="session")
def serve_app():
    """running: the address of any ASGI app, as a context."""
    return running
