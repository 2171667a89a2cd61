"""Where the site's other modules plug in: what fills a page's markers, shows a notebook's output, or changes a page's HTML.

A plug is a module beside this one, named in PLUGS, that defines any of

    MARKERS: dict[str, Callable[[str, Course], str]]
        The text for `<!-- generated: NAME -->` in an authored page, as Markdown or HTML: f(page_uri, course).
        page_uri is the page's path within docs ("reference/glossary.md").
    OUTPUTS: dict[str, Callable[[dict], str]]
        HTML for a notebook's output that carries this mime type: f(data of that type).
    write(course, docs, warn) -> None
        Writes generated pages and files below the folder docs, before MkDocs looks there. Leave an unchanged file alone.
    on_html(html, page_uri, course, warn) -> str
        A page's content as HTML, changed. Called in the order of PLUGS.
    navigation(course) -> list
        Entries for the site's table of contents, as MkDocs wants them; navigation.py says where they go.

`warn(message)` makes a strict build fail.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from shared.course import Course

PLUGS = ("home", "papers", "calculator_data", "tables", "kernels_page", "results_page", "api", "evidence_badges", "glossary")
MARKER = re.compile(r"^<!-- generated: (?P<name>[^>]+?) -->[ \t]*$", re.MULTILINE)
Warn = Callable[[str], None]
# At once, not when first used: MkDocs takes this folder off the import path as soon as its hook is loaded.
_LOADED = tuple(map(importlib.import_module, PLUGS))


def plugs() -> tuple[ModuleType, ...]:
    return _LOADED


def fill(markdown: str, page_uri: str, course: Course, warn: Warn) -> str:
    """The page with every marker replaced by its text."""
    known = {name: make for plug in plugs() for name, make in getattr(plug, "MARKERS", {}).items()}

    def text(match: re.Match) -> str:
        if match["name"] not in known:
            warn(f"{page_uri}: nothing fills the marker {match['name']!r}; there are {', '.join(sorted(known))}")
            return match[0]
        return known[match["name"]](page_uri, course)

    return MARKER.sub(text, markdown)


def outputs() -> dict[str, Callable[[dict], str]]:
    return {mime: show for plug in plugs() for mime, show in getattr(plug, "OUTPUTS", {}).items()}


def transform(html: str, page_uri: str, course: Course, warn: Warn) -> str:
    for plug in plugs():
        if change := getattr(plug, "on_html", None):
            html = change(html, page_uri, course, warn)
    return html


def write_all(course: Course, docs: Path, warn: Warn) -> None:
    for plug in plugs():
        if write := getattr(plug, "write", None):
            write(course, docs, warn)


def navigation_of(name: str, course: Course) -> list:
    """The entries that one plug brings for the site's table of contents."""
    return next((plug.navigation(course) for plug in plugs() if plug.__name__ == name), [])
