"""What the server is and how it fares: /v1/models, /health, /version."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from minillm import __version__
from minillm.server.serving import Serving, get_serving

router = APIRouter()
ServingDep = Annotated[Serving, Depends(get_serving)]


@router.get("/v1/models")
async def list_models(serving: ServingDep):
    return {"object": "list", "data": [_card(serving)]}


@router.get("/v1/models/{name:path}")  # a path: Hugging Face ids contain a slash
async def retrieve_model(name: str, serving: ServingDep):
    serving.check_model(name)
    return _card(serving)


def _card(serving: Serving) -> dict:
    return {
        "id": serving.model_name,
        "object": "model",
        "created": serving.started,
        "owned_by": "minillm",
        "max_model_len": serving.max_model_len,
    }


@router.get("/health")
async def health(serving: ServingDep):
    """200 with the engine's load while it takes requests; 503 once it shuts down, and with the reason when it has died."""
    if serving.engine.error is not None:
        return JSONResponse({"status": "dead", "reason": str(serving.engine.error)}, status_code=503)
    if serving.engine.is_draining:
        return JSONResponse({"status": "shutting down", **serving.engine.stats()}, status_code=503)
    return {"status": "ok", "model": serving.model_name, "own_parts": serving.own_parts, **serving.engine.stats()}


@router.get("/version")
async def version():
    return {"version": __version__}
