"""The page, chat on one side and the engine on the other: files of our own, served with a policy that lets the browser load
nothing else."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from minillm.server.errors import ApiError

router = APIRouter()

FOLDER = Path(__file__).parent / "page"
MEDIA_TYPES = {
    "index.html": "text/html",
    **dict.fromkeys(["style.css", "watch.css"], "text/css"),
    **dict.fromkeys(["main.js", "api.js", "dom.js", "key.js", "status.js", "views.js"], "text/javascript"),
    **dict.fromkeys(["chat.js", "settings.js", "text.js"], "text/javascript"),
    **dict.fromkeys(["watch.js", "listen.js", "replay.js", "burst.js"], "text/javascript"),
    **dict.fromkeys(["strip.js", "blocks.js", "sparks.js", "requests.js", "looks.js", "pick.js"], "text/javascript"),
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # ask each time; the ETag makes the answer "not modified"
}


@router.api_route("/", methods=["GET", "HEAD"])
async def index():
    return _file("index.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def asset(name: str):
    return _file(name)


def _file(name: str) -> FileResponse:
    if name not in MEDIA_TYPES:
        raise ApiError(404, f"no such page file: {name}")
    return FileResponse(FOLDER / name, media_type=MEDIA_TYPES[name], headers=HEADERS)
