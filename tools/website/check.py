"""What a reader would trip over, found in the built pages: MkDocs itself sees only links written as Markdown.

A fault is a warning, and `make site` builds strictly.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag

TAG = re.compile(r"<[a-zA-Z][^<>]*\s(?:href|src|srcset|id|name|alt|data|poster|action)\s*=[^<>]*>|<img\b[^<>]*>")
NAME = re.compile(r"<([a-zA-Z][^\s/>]*)")
ATTRIBUTE = re.compile(r"""(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?:"(?P<a>[^"]*)"|'(?P<b>[^']*)'|(?P<c>[^\s"'<>]+)))?""")
CSS_ADDRESS = re.compile(r"""url\(\s*["']?(?P<a>[^"')]+)|@import\s+["'](?P<b>[^"']+)""")
FETCHES = {
    **dict.fromkeys(("img", "source", "video"), ("src", "srcset", "poster")),
    **dict.fromkeys(("script", "iframe", "audio", "embed"), ("src",)),
    "object": ("data",),
    "link": ("href",),
    "form": ("action",),
}
NOT_FETCHED = {"canonical", "alternate", "prev", "next", "license"}  # kinds of <link> that only name an address
OUTSIDE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
OTHER = re.compile(r"(?:mailto|tel|data|javascript|blob):", re.IGNORECASE)
START, NOWHERE = "index.html", "404.html"


@dataclass(frozen=True)
class _Tag:
    """One start tag: its name and attributes."""

    name: str
    attributes: dict[str, str]

    @classmethod
    def of(cls, source: str) -> _Tag:
        found = ATTRIBUTE.finditer(source, len(NAME.match(source)[0]))
        return cls(NAME.match(source)[1].lower(), {m["name"].lower(): unescape(m["a"] or m["b"] or m["c"] or "") for m in found})


def check(site: Path, warn: Callable[[str], None]) -> None:
    """Tells warn of images without alt text, links to nowhere, pages that no other leads to, and requests to other places."""
    pages = {path.relative_to(site).as_posix(): _read(path) for path in sorted(site.rglob("*.html"))}
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    anchors = {name: _anchors(tags) for name, tags in pages.items()}
    links: dict[str, set[str]] = {name: set() for name in pages}
    for name, tags in pages.items():
        for address in sorted({tag.attributes["href"] for tag in tags if tag.name in ("a", "area") and "href" in tag.attributes}):
            if OUTSIDE.match(address) or OTHER.match(address) or name == NOWHERE:
                continue
            target, anchor = _target(files, name, address)
            if target is None:
                warn(f"{name}: a link leads to {address!r}, which is not there")
            elif target in pages:
                links[name].add(target)
                if anchor and "=" not in anchor and anchor not in anchors[target]:  # "#level=user" is a choice, no place
                    warn(f"{name}: a link leads to {address!r}, and that page has no such place")
        for fault in _faults(tags):
            warn(f"{name}: {fault}")
    for name in sorted(set(pages) - _reached(links) - {NOWHERE}):
        warn(f"{name}: no page leads here")
    for path in sorted(site.rglob("*.css")):
        for match in CSS_ADDRESS.finditer(path.read_text("utf-8")):
            if OUTSIDE.match(match["a"] or match["b"]):
                warn(f"{path.relative_to(site).as_posix()}: asks another site for {match['a'] or match['b']}")


def _read(path: Path) -> list[_Tag]:
    return [_Tag.of(source) for source in dict.fromkeys(TAG.findall(path.read_text("utf-8")))]


def _faults(tags: list[_Tag]) -> Iterator[str]:
    for tag in tags:
        if tag.name == "img" and "alt" not in tag.attributes:
            yield f"an image has no alt text: {tag.attributes.get('src', '')}"
        if tag.name == "link" and set(tag.attributes.get("rel", "").split()) & NOT_FETCHED:
            continue
        for attribute in FETCHES.get(tag.name, ()):
            if OUTSIDE.match(tag.attributes.get(attribute, "").strip()):
                yield f"asks another site for {tag.attributes[attribute]}"


def _anchors(tags: list[_Tag]) -> set[str]:
    return {tag.attributes[key] for tag in tags for key in ("id", "name") if key in tag.attributes}


def _target(files: set[str], page: str, address: str) -> tuple[str | None, str]:
    """The file, relative to the site, and the anchor in it; None where there is no such file."""
    address, anchor = urldefrag(address)
    path = unquote(address.partition("?")[0])
    file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    if file not in files:
        file = posixpath.normpath(posixpath.join(file, START))
    return (file, unquote(anchor)) if file in files else (None, anchor)


def _reached(links: dict[str, set[str]]) -> set[str]:
    reached, ahead = set(), [START]
    while ahead:
        page = ahead.pop()
        if page in links and page not in reached:
            reached.add(page)
            ahead += links[page]
    return reached
