"""Lists of modules as HTML: those that are written as links, the others as planned. Used by every page that lists modules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

from labs.kit.catalog import find_modules
from shared.course import Module, Series

ROOT = Path(__file__).resolve().parents[2]


def exists(module: Module) -> bool:
    """Whether the module has been written; one that has not is listed as planned, and leads nowhere."""
    return (ROOT / module.notebook).is_file()


def module_uri(module: Module) -> str:
    """The path within docs of the module's page."""
    return module.notebook.removesuffix(".ipynb") + ".md"


def series_uri(series: Series) -> str:
    return f"series/{series.folder}/index.md"


def href(page: str, target: str) -> str:
    """A link for raw HTML from one page to another, both paths within docs. raw_links.py makes it an address."""
    return "../" * page.count("/") + target


def duration(modules: Iterable[Module]) -> str:
    """Reading time as a person says it: "20 min", "about 14 h"."""
    minutes = sum(module.minutes for module in modules)
    return f"{minutes} min" if minutes < 60 else f"about {round(minutes / 60)} h"


def full_title(module: Module) -> str:
    return f"{module.id} {module.title}" if module.series else module.title


def module_list(modules: Iterable[Module], page: str) -> str:
    """Every module with question, level and time, as seen from `page` (its path within docs)."""
    items = "\n".join(_item(module, page) for module in modules)
    return f'<ol class="modules">\n{items}\n</ol>'


def short_list(modules: Iterable[Module], page: str) -> str:
    """Titles only."""
    items = (f'<li{_state(m)}><span class="module-id">{_number(m)}</span> {_title(m, page)}</li>' for m in modules)
    return f'<ol class="modules-short">{"".join(items)}</ol>'


def progress_bar(modules: Iterable[Module]) -> str:
    """An empty place that progress.js fills from what the reader has marked as read, where anything can be."""
    written = [f"{module.id}:{num_exercises(module)}" for module in modules if exists(module)]
    return f'<span class="progress" data-modules="{" ".join(written)}" hidden></span>' if written else ""


def num_exercises(module: Module) -> int:
    return _exercises().get(module.id, 0)


@cache
def _exercises() -> dict[str, int]:
    return {lab.id: len(lab.exercises) for lab in find_modules()}


def _item(module: Module, page: str) -> str:
    facts = {"module": module.id, "level": module.level, "roles": " ".join(module.roles), "series": module.series or "alone"}
    attributes = " ".join(f'data-{name}="{escape(value)}"' for name, value in facts.items())
    notes = [escape(module.level), f"{module.minutes} min"] + ([] if exists(module) else ['<span class="planned">planned</span>'])
    return (
        f'<li {attributes} data-minutes="{module.minutes}"{_state(module)}>'
        f'<span class="module-id">{_number(module)}</span>'
        f'<div class="module-text"><span class="module-title">{_title(module, page)}</span><p>{escape(module.question)}</p></div>'
        f'<span class="module-facts">{" · ".join(notes)}</span></li>'
    )


def _title(module: Module, page: str) -> str:
    return f'<a href="{href(page, module_uri(module))}">{escape(module.title)}</a>' if exists(module) else escape(module.title)


def _number(module: Module) -> str:
    return module.id if module.series else ""


def _state(module: Module) -> str:
    return "" if exists(module) else ' class="is-planned"'


def pages_of_notebooks(markdown: str) -> str:
    """Links to notebooks lead to their pages; to one that does not exist yet, nowhere."""
    return re.sub(r"(\]\((?![a-z]+:)[^)\s]+)\.ipynb([#)])", r"\1.md\2", markdown)
