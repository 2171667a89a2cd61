"""A module's opening: title, question and card, from series/modules.toml, so that notebook, site and `labs` say the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from notebook_kit.cells import Notebook, NotebookError
from shared.course import LAYERS, Course, CourseError, Module, load_course

COLUMNS = ("layer", "level", "needs", "time", "check", "read before")
HEAD = "| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|"
CARD = re.compile(r"^\|[ ]*layer[ ]*\|.*\n\|[-:| ]+\|[ ]*\n(?P<row>\|.+\|)[ ]*$", re.MULTILINE)


def opening(ident: str) -> str:
    """The Markdown that module `ident` ("2.3", "start") begins with. Raises NotebookError if the course has no such module."""
    try:
        course = load_course()
        module = course.module(ident)
    except CourseError as e:
        raise NotebookError(str(e)) from e
    return f"# {module.title}\n\n> {module.question}\n\n{card(module, course)}"


def card(module: Module, course: Course) -> str:
    return f"{HEAD}\n| " + " | ".join(_row(module, course).values()) + " |"


def without_card(markdown: str) -> str:
    """The text without its card, whose minutes are no claim about an engine."""
    return CARD.sub("", markdown, count=1)


def refresh(path: Path, notebook: Notebook) -> None:
    """Rewrites the card in place: a module named in it may have been written since, and is a link now."""
    course = load_course()
    if module := module_of(path, course):
        first = notebook["cells"][0]
        first["source"] = CARD.sub(lambda _: card(module, course), first["source"], count=1)


def module_of(path: Path, course: Course) -> Module | None:
    """The module whose notebook this is, by the end of its path; None for a file that the course does not list."""
    tail = PurePosixPath(*path.absolute().parts[-3:])
    return next((module for module in course.modules if tail.match(module.notebook)), None)


def faults(markdown: str, module: Module, course: Course) -> Iterator[str]:
    """What the text above the first section lacks, or says otherwise than modules.toml."""
    if not re.match(rf"\s*# {re.escape(module.title)}[ \t]*(?:\n|$)", markdown):
        yield f"does not begin with its title, `# {module.title}`"
    if len(re.findall(r"^# ", markdown, re.MULTILINE)) > 1:
        yield "has two titles"
    question = " ".join(re.findall(r"^>[ \t]?(.*)$", markdown, re.MULTILINE)).strip()
    if question != module.question:
        yield f"does not ask its question below the title: `> {module.question}`"
    found = CARD.search(markdown)
    cells = [cell.strip() for cell in found["row"].strip("|").split("|")] if found else []
    if len(cells) != len(COLUMNS):
        yield f"has no card: below the question stands\n{card(module, course)}"
        return
    for (column, wanted), cell in zip(_row(module, course).items(), cells, strict=True):
        if cell != wanted:
            yield f"card: {column} is {cell!r}; series/modules.toml makes it {wanted!r}"


def _row(module: Module, course: Course) -> dict[str, str]:
    layer = f"{module.layer} · {LAYERS[module.layer]}" if module.layer else LAYERS[0]
    before = ", ".join(_link(course.module(ident), module) for ident in module.after) or "nothing"
    values = (layer, module.level, module.needs, f"{module.minutes} min", f"`labs check {module.id}`", before)
    return dict(zip(COLUMNS, values, strict=True))


def _link(target: Module, module: Module) -> str:
    """A link once the other notebook is written; its name until then."""
    name = target.title if target.series is None else f"{target.id} {target.title}"
    root = Path(__file__).resolve().parents[2]
    if not (root / target.notebook).is_file():
        return name
    return f"[{name}]({os.path.relpath(target.notebook, Path(module.notebook).parent).replace(os.sep, '/')})"
