"""Every failure leaves the server in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from minillm.async_engine import QueueFullError, ShuttingDownError
from minillm.errors import EngineDeadError, MinillmError, RequestError

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499  # not an IANA code: nginx's name for "nobody is left to answer", seen in logs only
# Seconds, for the Retry-After header. A queue moves on with every step; a server that goes down has to come back first.
RETRY_AFTER_S = {QueueFullError: 1, ShuttingDownError: 10}
MAX_MESSAGE_CHARS = 1000  # a message may quote what the client sent, which may be long


class ApiError(Exception):
    """A refusal with a status of its own. param: the field at fault, as the client spells it."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict:
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + "…"
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(status: int, message: str, param: str | None = None, code: str | None = None, headers=None) -> Response:
    # ASCII escapes keep a lone surrogate, quoted from a request, from breaking the answer about it
    content = json.dumps(error_body(status, message, param, code)).encode("ascii")
    return Response(content, status, headers, media_type="application/json")


def as_error_body(error: Exception) -> tuple[int, dict]:
    """Status and body for whatever went wrong; an unexpected error is logged and its details stay in the log."""
    if isinstance(error, ApiError):
        return error.status, error_body(error.status, str(error), error.param, error.code)
    if isinstance(error, RequestError):
        return 400, error_body(400, str(error), error.param, error.code)
    if isinstance(error, QueueFullError):
        return 429, error_body(429, str(error), code="queue_full")
    if isinstance(error, ShuttingDownError):
        return 503, error_body(503, str(error), code="shutting_down")
    if isinstance(error, EngineDeadError):
        return 503, error_body(503, str(error), code="engine_dead")
    if isinstance(error, MinillmError):
        return 500, error_body(500, str(error))
    logger.error("unexpected error", exc_info=error)
    return 500, error_body(500, "internal error; the server's log has the details")


def from_validation(error: ValidationError) -> ApiError:
    """pydantic's first complaint, in one line that names the field."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first['ctx']['error']}", code="invalid_json")
    cause = first.get("ctx", {}).get("error")
    inner = cause.param if isinstance(cause, RequestError) else None
    param = _path([*first["loc"], *([inner] if inner else [])])
    if isinstance(cause, RequestError):
        where = "" if param == inner or not param else f"{param}: "
        return ApiError(400, f"{where}{cause}", param)
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is not a field this server knows", param, code="unknown_field")
    message = first["msg"][:1].lower() + first["msg"][1:]
    return ApiError(400, f"{param or 'body'}: {message}", param)


def _path(loc: list) -> str | None:
    """("messages", 0, "content") as messages[0].content"""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path or None


def install_error_handlers(app: FastAPI) -> None:
    async def explained(request: Request, error: Exception) -> Response:
        status, body = as_error_body(error)
        e, retry_after = body["error"], RETRY_AFTER_S.get(type(error))
        headers = {"retry-after": str(retry_after)} if retry_after else None
        return error_response(status, e["message"], e["param"], e["code"], headers)

    async def http(request: Request, error: HTTPException) -> Response:
        messages = {
            404: f"no such path: {request.method} {request.url.path}",
            405: f"{request.url.path} does not answer {request.method}",
        }
        detail = error.detail or HTTPStatus(error.status_code).phrase
        return error_response(error.status_code, messages.get(error.status_code, detail), headers=error.headers)

    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    async def unexpected(request: Request, error: Exception) -> Response:
        # Starlette re-raises after this answer, so that the traceback reaches the log by itself
        return error_response(500, "internal error; the server's log has the details")

    for kind in (ApiError, MinillmError):
        app.add_exception_handler(kind, explained)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ClientGone, gone)
    app.add_exception_handler(Exception, unexpected)
