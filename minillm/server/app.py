"""The HTTP application: OpenAI's endpoints and the chat page around one AsyncEngine."""

from __future__ import annotations

from contextlib import asynccontextmanager

from fastapi import FastAPI

from minillm import __version__
from minillm.server import chat, completions, info, page
from minillm.server.body import BodyLimit
from minillm.server.errors import install_error_handlers
from minillm.server.serving import Serving

DEFAULT_MAX_BODY_BYTES = 4_000_000


def build_app(async_engine, served_model_name: str | None = None, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> FastAPI:
    """The application starts the engine's thread when it starts and stops it when it stops.

    served_model_name: what clients call the model; None: the engine's own name for it.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        async_engine.start()
        yield
        await async_engine.stop()

    # FastAPI's own documentation pages load scripts from a CDN, so they are off
    app = FastAPI(title="minillm", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.serving = Serving(async_engine, served_model_name or async_engine.engine.model_name)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    install_error_handlers(app)
    for module in (chat, completions, info, page):
        app.include_router(module.router)
    return app
