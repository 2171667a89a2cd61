"""The bones of a module: title, question and card, then nine sections in one order, each holding what the reader comes for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from notebook_kit import card
from notebook_kit.cells import Cell, Notebook, has_figure
from notebook_kit.ledger import documents
from notebook_kit.prose import FENCE
from shared.course import Module, load_course

SECTIONS = (
    "Predict",
    "Build",
    "Measure",
    "Explain the gap",
    "In real engines",
    "What it costs",
    "Exercise",
    "Check yourself",
    "What this does not show",
)
JOIN = " · "  # neighbours may share a heading: "Build · Measure"
HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)


@dataclass
class Section:
    """What stands between one heading of level two and the next. titles: the sections it is; () before the first heading."""

    titles: tuple[str, ...]
    markdown: str = ""
    cells: list[Cell] = field(default_factory=list)


def headings(markdown: str) -> list[tuple[int, str]]:
    """(level, text) of every heading outside fenced code."""
    return [(len(match[1]), match[2]) for match in HEADING.finditer(FENCE.sub("", markdown))]


def sections(notebook: Notebook) -> list[Section]:
    found = [Section(())]
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            found[-1].cells.append(cell)
            continue
        fenced = [match.span() for match in FENCE.finditer(cell["source"])]
        start = 0
        for match in HEADING.finditer(cell["source"]):
            if match[1] == "##" and not any(begin <= match.start() < end for begin, end in fenced):
                found[-1].markdown += cell["source"][start : match.start()] + "\n\n"
                found.append(Section(tuple(match[2].split(JOIN))))
                start = match.end()
        found[-1].markdown += cell["source"][start:] + "\n\n"
    return found


def faults(path: Path, notebook: Notebook, root: Path) -> Iterator[str]:
    course = load_course()
    module = card.module_of(path, course)
    if module is None:
        yield "is no module of the course: series/modules.toml lists where each lies"
        return
    opening, *rest = sections(notebook)
    yield from card.faults(opening.markdown, module, course)
    titles = [title for section in rest for title in section.titles]
    if titles != list(SECTIONS):
        yield from _order_faults(titles)
        return
    by_title = {title: section for section in rest for title in section.titles}
    yield from _section_faults(by_title, module, root)
    if not any(has_figure(cell) for cell in notebook["cells"]):
        yield "shows no figure; Measure draws the predicted line and the measured points"


def _order_faults(titles: list[str]) -> Iterator[str]:
    missing = [title for title in SECTIONS if title not in titles]
    unknown = [title for title in titles if title not in SECTIONS]
    if missing:
        yield f"lacks the section{'s' if len(missing) > 1 else ''} {', '.join(f'`## {title}`' for title in missing)}"
    if unknown:
        yield f"has headings of level two that are no section: {', '.join(unknown)}; use ### inside a section"
    if not missing and not unknown:
        yield f"has its sections in another order, or twice: {', '.join(titles)}"


def _section_faults(by_title: dict[str, Section], module: Module, root: Path) -> Iterator[str]:
    if not _documents(by_title["Predict"]):
        yield "Predict: no cell shows a labelled number; predict with computed(...) and show(...)"
    if not any(document["comparisons"] for document in _documents(by_title["Explain the gap"])):
        yield "Explain the gap: no cell shows compare(predicted, measured)"
    if "](cite:" not in by_title["In real engines"].markdown:
        yield "In real engines: cites no code; write [`symbol`](cite:package/path#symbol)"
    exercise = by_title["Exercise"].markdown
    file = f"labs/{module.lab}.py"
    if f"`{file}`" not in exercise:
        yield f"Exercise: does not say which file to write in, `{file}`"
    if not (root / file).is_file():
        yield f"Exercise: {file} does not exist"
    if f"labs check {module.id}" not in exercise:
        yield f"Exercise: does not give the command, `labs check {module.id}`"
    answers = len(re.findall(r"<details>\s*<summary>.+?</summary>.+?</details>", by_title["Check yourself"].markdown, re.DOTALL))
    if not 3 <= answers <= 5:
        yield f"Check yourself: {answers} folded answers; three to five, each `<details><summary>…</summary>…</details>`"
    sources = by_title["What this does not show"].markdown.partition("### Sources")[2]
    if not re.search(r"^\s*[-*] \S", sources, re.MULTILINE):
        yield "What this does not show: no list under `### Sources`"


def _documents(section: Section) -> list[dict]:
    return [document for cell in section.cells for document in documents(cell)]
