"""The pages that the course itself is made of: one a series, one a module, written into docs/series before a build."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import markers
from exercises import exercise_section
from module_list import ROOT, exists, full_title, href, module_list, module_uri, pages_of_notebooks, progress_bar, series_uri
from notebook_page import convert

from shared.course import LAYERS, Course, Module, Series

CARD = re.compile(r"^\|[ ]*layer[ ]*\|.*\n\|[-:| ]+\|[ ]*\n\|.+\|[ ]*$", re.MULTILINE)
Warn = Callable[[str], None]


def write_course(course: Course, docs: Path, warn: Warn) -> None:
    """Write every page of the course below docs/series, and remove what no longer belongs there.

    An unchanged file is left alone: `mkdocs serve` watches the folder.
    """
    files: dict[str, bytes] = {}
    for series in course.series:
        files[series_uri(series)] = series_page(course, series).encode()
    for module in filter(exists, course.modules):
        folder = Path(module.notebook).parent
        files |= {(folder / name).as_posix(): content for name, content in module_page(course, module, warn).items()}
    for name, content in files.items():
        target = docs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != content:
            target.write_bytes(content)
    for path in sorted((docs / "series").rglob("*")):
        if path.is_file() and path.relative_to(docs).as_posix() not in files:
            path.unlink()


def module_page(course: Course, module: Module, warn: Warn) -> dict[str, bytes]:
    """The files of a module's page: its text, its figures, and the notebook to download."""
    path = ROOT / module.notebook
    notebook = json.loads(path.read_text("utf-8"))
    page = convert(notebook, path.stem, lambda message: warn(f"{module.notebook}: {message}"), markers.outputs())
    text = CARD.sub(lambda _: _card(course, module), page.markdown, count=1)
    text = _in_section(text, "Exercise", exercise_section(module, warn))
    front = _front({"title": module.title, "module": module.id, "description": module.question, "search": {"boost": 4}})
    text = f"{front}{_where(course, module)}\n\n{text}\n\n{_after(course, module)}\n"
    return {f"{path.stem}.md": text.encode(), path.name: path.read_bytes(), **page.files}


def series_page(course: Course, series: Series) -> str:
    modules = course.modules_of(series.id)
    written = sum(exists(m) for m in modules)
    state = "" if written == len(modules) else f" Written: {written}; the others are planned."
    layers = ", ".join(LAYERS[n] for n in series.layers)
    meta = {"title": series.title, "description": series.question, "search": {"boost": 2}, "hide": ["toc"]}
    lines = [
        _front(meta) + f'<p class="eyebrow">Series {series.id.upper()} · {layers}</p>',
        f"# {series.title}",
        f"> {series.question}",
        f'<p class="series-line">{len(modules)} modules.{state}{progress_bar(modules)}</p>',
        module_list(modules, series_uri(series)),
    ]
    readme = ROOT / "series" / series.folder / "README.md"
    if readme.is_file():
        lines.append(pages_of_notebooks(re.sub(r"\A# .*\n", "", readme.read_text("utf-8"))))
    return "\n\n".join(lines) + "\n"


def _front(meta: dict) -> str:
    """MkDocs' metadata; JSON is YAML."""
    return "---\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in meta.items()) + "---\n\n"


def _where(course: Course, module: Module) -> str:
    """The line above the title. A page of the course's map has no series to name."""
    series = next((series for series in course.series if series.id == module.series), None)
    if series is None:
        return f'<p class="eyebrow"><a href="{href(module_uri(module), "course.md")}">The course</a></p>'
    link = f'<a href="{href(module_uri(module), series_uri(series))}">{series.id.upper()} · {escape(series.title)}</a>'
    return f'<p class="eyebrow">{link} · module {module.number} of {len(course.modules_of(series.id))}</p>'


def _card(course: Course, module: Module) -> str:
    """The notebook's card, from the same facts, in a form that fits a phone."""
    facts = {
        "Layer": f"{module.layer} · {LAYERS[module.layer]}" if module.layer else LAYERS[0],
        "Level": module.level,
        "Needs": module.needs,
        "Time": f"{module.minutes} min",
        "Check": f"<code>labs check {module.id}</code>",
        "Read before": ", ".join(_mention(module, course.module(id)) for id in module.after) or "nothing",
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    name = Path(module.notebook).name
    return (
        f'<dl class="module-card">{items}</dl>\n\n<p class="module-actions">{_mark(module)}'
        f'<a href="{name}" download>Download the notebook</a> <a href="#exercise">To the exercise</a></p>'
    )


def _mark(module: Module) -> str:
    """Shown by progress.js, which makes it work."""
    return f'<button type="button" class="mark-read" data-module="{module.id}" aria-pressed="false" hidden>Mark as read</button> '


def _mention(seen_from: Module, module: Module) -> str:
    title = escape(full_title(module))
    return f'<a href="{href(module_uri(seen_from), module_uri(module))}">{title}</a>' if exists(module) else title


def _after(course: Course, module: Module) -> str:
    """Where to go from here: what builds on this module, or comes after it."""
    following = [m for m in course.modules if module.id in m.after][:4]
    if not following:
        following = list(course.modules[course.modules.index(module) + 1 :][:1])
    items = "".join(
        f"<li>{_mention(module, m)}{'' if exists(m) else ' <span class=planned>planned</span>'}<p>{escape(m.question)}</p></li>"
        for m in following
    )
    heading = f"<h2>What builds on this</h2><ul>{items}</ul>" if items else ""
    return f'<aside class="after" aria-label="Where to go from here"><p>{_mark(module)}</p>{heading}</aside>'


def _in_section(markdown: str, section: str, block: str) -> str:
    """The text with the block at the end of a second-level section; at the end of the page if there is none."""
    match = re.search(rf"^## {section}\b.*$", markdown, flags=re.MULTILINE)
    following = markdown.find("\n## ", match.end()) if match else -1
    end = following if following >= 0 else len(markdown)
    return f"{markdown[:end].rstrip()}\n\n{block}\n{markdown[end:]}"
