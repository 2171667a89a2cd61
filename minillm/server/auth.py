"""The API key: who may use the server."""

from __future__ import annotations

import hashlib
import hmac

from minillm.server.errors import error_response

OPEN_PATHS = ("/", "/health")
OPEN_FOLDER = "/page/"  # the page's own files; it asks its reader for the key when the first request comes back with 401


class ApiKey:
    """ASGI middleware: every path but the page and /health wants `Authorization: Bearer KEY`; without it the answer is 401.

    /metrics wants it too: Prometheus sends it with `authorization: {credentials: KEY}` in its scrape configuration.
    """

    def __init__(self, app, api_key: str):
        self.app, self._digest = app, _digest(api_key.encode())

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]) and not self._is_authorised(scope["headers"]):
            response = error_response(
                401,
                "this server wants its API key: send the header 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)

    def _is_authorised(self, headers: list[tuple[bytes, bytes]]) -> bool:
        values = [value for name, value in headers if name == b"authorization"]
        scheme, _, key = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(_digest(key.strip()), self._digest)


def _digest(key: bytes) -> bytes:
    """Digests have one length, so that the time a comparison takes says nothing about the key, not even its length."""
    return hashlib.sha256(key).digest()
