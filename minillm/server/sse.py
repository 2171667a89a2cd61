"""Server-sent events as OpenAI sends them: one `data:` line of JSON per event, `[DONE]` after a complete answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import StreamingResponse

from minillm.server.errors import as_error_body

DONE = "data: [DONE]\n\n"


def event(data: dict) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


class EventStream(StreamingResponse):
    """Sends `chunks`, then [DONE]; calls `close` however the stream ends, a vanished client included.

    An error on the way is sent as a last event, without [DONE]: the status line said 200 long ago, and a client must
    still be able to tell a broken answer from a complete one.
    """

    def __init__(self, chunks: AsyncIterator[dict], close: Callable[[], Awaitable[None]]):
        # no-cache and X-Accel-Buffering keep proxies from holding tokens back
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(_encode(chunks), headers=headers, media_type="text/event-stream")
        self._close = close

    async def __call__(self, scope, receive, send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()


async def _encode(chunks: AsyncIterator[dict]) -> AsyncIterator[str]:
    try:
        async for chunk in chunks:
            yield event(chunk)
            await asyncio.sleep(0)  # a stream that has fallen behind lets others, and news of its client's end, come between
    except Exception as e:  # noqa: BLE001 - logged where unexpected, and told to the client
        yield event(as_error_body(e)[1])
    else:
        yield DONE
