"""What every route needs to know about the engine it serves."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from fastapi import Request

from minillm.async_engine import AsyncEngine
from minillm.errors import RequestError
from minillm.server.errors import ApiError


@dataclass(frozen=True)
class Serving:
    """One engine under one public name."""

    engine: AsyncEngine
    model_name: str
    started: int = field(default_factory=lambda: int(time.time()))  # Unix time, seconds

    @property
    def tokenizer(self):
        return self.engine.engine.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.engine.engine.max_model_len

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.model_name:
            raise ApiError(
                404, f"model {name!r} is not served here; this server has {self.model_name!r}", "model", "model_not_found"
            )

    def check_priority(self, priority: int) -> None:
        if priority and self.engine.engine.config.scheduling_policy != "priority":
            raise RequestError(
                "priority has no effect here; leave it out, or start the server with --scheduling-policy priority", "priority"
            )


def get_serving(request: Request) -> Serving:
    return request.app.state.serving


def response_head(kind: str, object_name: str, serving: Serving, request_id: str | None) -> dict:
    """The fields every response and every chunk of it begins with."""
    return {
        "id": f"{kind}-{request_id or uuid.uuid4().hex}",
        "object": object_name,
        "created": int(time.time()),
        "model": serving.model_name,
    }
