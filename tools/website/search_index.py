"""The search: what its index holds, and that a page asks for it only when the reader opens the search.

Order is set where pages are made, as `search: {boost: N}` in their front matter: modules 4, glossary and series 2.
A title counts a thousand times as much as text, so the API has 0.003: its names come after whatever else speaks of the thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from mkdocs.plugins import event_priority

INDEX = "search/search_index.json"
BUNDLE = "assets/javascripts/bundle.*.min.js"
# Material fetches the index as soon as a page opens, except from file://, where it waits for the search to be opened.
AT_ONCE, WHEN_OPENED = 'location.protocol!=="file:"', "!1"
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
WITHOUT_CODE = ("series/", "api/")  # prose and docstrings are searched, not what stands between them
TAGS = re.compile(r"</?(?:code|strong|em|span|a|div|section|dl|dt|dd)\b[^>]*>")
SPACE = re.compile(r"\s+")


@event_priority(100)  # before the search reads the page
def thin(context, page, config, nav):
    """Shows the search a page without what is not searched for: most of what it would parse is coloured code."""
    page.meta["whole"] = page.content
    if page.file.src_uri.startswith(WITHOUT_CODE):
        page.content = CODE.sub(" ", page.content)


@event_priority(-100)  # after it
def whole(context, page, config, nav):
    page.content = page.meta.pop("whole")


def tune(site: Path, warn: Callable[[str], None]) -> None:
    """Changes the built site: the smaller index, and the theme's script that fetches it."""
    path = site / INDEX
    index = json.loads(path.read_text("utf-8"))
    index["docs"] = list(kept(index["docs"]))
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")
    bundles = [(file, file.read_text("utf-8")) for file in site.glob(BUNDLE)]
    if [text.count(AT_ONCE) for _, text in bundles] != [1]:
        warn(f"{BUNDLE}: no longer says {AT_ONCE!r} once; every page would load the search index: see search_index.py")
        return
    file, text = bundles[0]
    file.write_text(text.replace(AT_ONCE, WHEN_OPENED), "utf-8")


def kept(docs: Iterable[dict]) -> Iterable[dict]:
    """The sections worth finding: of the API those that say something, of modules their prose without code and what it prints."""
    for doc in docs:
        place = doc["location"]
        if place.startswith("api/") and "#" in place and not doc["text"].strip():
            continue
        yield {**doc, "text": SPACE.sub(" ", TAGS.sub("", doc["text"])).strip()}
