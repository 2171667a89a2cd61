"""Reading a request body: JSON only, no larger than the limit, checked against a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from minillm.server.errors import ApiError, from_validation

Body = TypeVar("Body", bound=BaseModel)


def json_body(schema: type[Body]) -> Callable:
    """A FastAPI dependency that parses the body as `schema`.

    Other content types are refused because a browser lets any web page POST a form or plain text to this port, while
    application/json needs this server's consent (CORS), which it never gives.
    """

    async def parse(request: Request) -> Body:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise ApiError(415, "the body must be JSON: send the header 'Content-Type: application/json'")
        raw = await request.body()
        try:
            return schema.model_validate_json(raw)
        except ValidationError as e:
            raise from_validation(e) from e

    return parse


class BodyLimit:
    """ASGI middleware: a body above `max_bytes` is refused with 413 while it is read, whatever Content-Length claims."""

    def __init__(self, app, max_bytes: int):
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen = 0

        async def limited_receive():
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.max_bytes:
                raise ApiError(
                    413, f"the body is larger than {self.max_bytes:,} bytes, this server's limit", code="body_too_large"
                )
            return message

        await self.app(scope, limited_receive, send)
