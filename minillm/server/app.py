"""The HTTP application: OpenAI's endpoints, metrics and the page around one AsyncEngine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from minillm import __version__
from minillm.async_engine import AsyncEngine
from minillm.server import chat, completions, events, info, metrics, page, tokenization
from minillm.server.auth import ApiKey
from minillm.server.body import BodyLimit
from minillm.server.errors import install_error_handlers
from minillm.server.limits import MAX_BODY_BYTES
from minillm.server.metrics import Metrics
from minillm.server.serving import Serving


def build_app(
    async_engine: AsyncEngine,
    served_model_name: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    api_key: str | None = None,
    own_parts: Sequence[str] = (),
) -> FastAPI:
    """The application starts the engine's thread when it starts and stops it when it stops.

    served_model_name: what clients call the model; None: the engine's own name for it. api_key: what clients must send,
    see ApiKey; None: everybody may use the server. own_parts: names of parts that are the user's own, for /health to show.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        async_engine.start()
        yield
        await async_engine.stop()

    # FastAPI's own documentation pages load scripts from a CDN, so they are off
    app = FastAPI(title="minillm", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.serving = Serving(async_engine, served_model_name or async_engine.engine.model_name, tuple(own_parts))
    app.state.metrics = Metrics(async_engine, app.state.serving.model_name)
    async_engine.observers.append(app.state.metrics)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    if api_key is not None:
        app.add_middleware(ApiKey, api_key=api_key)  # added last, asked first: nothing is read for who may not come in
    install_error_handlers(app)
    for module in (chat, completions, tokenization, events, info, metrics, page):
        app.include_router(module.router)
    return app
