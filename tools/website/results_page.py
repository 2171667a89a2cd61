"""The results page: every recorded run under results/, with its machine, its date, its command and its numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from evidence_badges import badge, cards

from shared import results
from shared.course import Course
from shared.evidence import Evidence
from shared.rendering import value
from shared.units import bytes_text

FIRST = ("peers",)  # what a reader asks for first; the rest by name


def recorded_runs(page_uri: str, course: Course, folder: Path = results.RESULTS) -> str:
    """Markdown: a section a run. Raises EvidenceError for a file that is no complete record."""
    files = sorted(file for file in folder.glob("*.json") if file.name != "schema.json")
    files.sort(key=lambda file: file.stem not in FIRST)
    return "\n\n".join(_section(file.stem, results.load(file)) for file in files)


def _section(stem: str, run: results.Run) -> str:
    facts = {
        "Date": html.escape(str(run.environment.get("date", ""))[:10]),
        "Machine": html.escape(_machine(run.environment)),
        "Software": html.escape(_software(run.environment)),
        "To run it again": f"<code>{html.escape(run.command)}</code>",
        "The record": f"<code>results/{stem}.json</code>",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{fact}</dd>" for name, fact in facts.items() if fact)
    drawn = "\n".join(_tables(run.evidence, f"{stem}-"))
    return (
        f"## {html.escape(run.title, quote=False)} {{ #{stem.replace('_', '-')} }}\n\n"
        f'<div class="run" markdown="0">\n<dl class="run-facts">{listed}</dl>\n{drawn}'
        f"{cards((e.to_dict() for e in run.evidence), f'{stem}-')}\n</div>"
    )


def _machine(environment: dict) -> str:
    gpus = [gpu["name"] for gpu in environment.get("gpus") or []]
    facts = [*gpus, environment.get("cpu"), f"{environment['cores']:g} cores" if environment.get("cores") else None]
    facts.append(f"{environment['threads']} threads" if environment.get("threads") else None)
    facts.append(bytes_text(environment["memory_bytes"]) + " of memory" if environment.get("memory_bytes") else None)
    facts.append("no GPU" if not gpus else None)
    return ", ".join(str(fact) for fact in facts if fact)


def _software(environment: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items())
    commit, _, changed = str(environment.get("commit") or "").partition("+")
    where = f"commit {commit[:10]}{' with changes not committed' if changed else ''}" if commit else ""
    return "; ".join(text for text in (environment.get("os"), versions, where) if text)


def _tables(evidence: Sequence[Evidence], scope: str) -> list[str]:
    """Entries called `row.column` become a grid a set of columns, others a list, in the order recorded."""
    groups: dict[str, dict[str, Evidence]] = {}
    alone = []
    for entry in evidence:
        row, _, column = entry.name.rpartition(".")
        if row:
            groups.setdefault(row, {})[column] = entry
        else:
            alone.append(entry)
    by_columns: dict[tuple[str, ...], list[dict[str, Evidence]]] = {}
    for group in groups.values():
        by_columns.setdefault(tuple(group), []).append(group)
    tables = [_grid(rows, scope) for rows in by_columns.values()]
    return [*tables, _list(alone, scope)] if alone else tables


def _grid(rows: Sequence[dict[str, Evidence]], scope: str) -> str:
    """More columns than rows: turned, so that it stays narrow."""
    row_titles = [_common([_parts(e) for e in row.values()]) for row in rows]
    columns = list(rows[0])
    column_titles = [_rest(_parts(rows[0][column]), row_titles[0]) for column in columns]
    cells = [[rows[r][column] for column in columns] for r in range(len(rows))]
    if len(columns) > len(rows) and len(columns) > 4:
        row_titles, column_titles = column_titles, row_titles
        cells = [list(column) for column in zip(*cells, strict=True)]
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in ["", *column_titles])
    body = "\n".join(
        f'<tr><th scope="row" data-sort="{html.escape(title.lower())}">{html.escape(title)}</th>'
        + "".join(f'<td data-sort="{e.value}">{_number(e, scope)}</td>' for e in row)
        + "</tr>"
        for title, row in zip(row_titles, cells, strict=True)
    )
    return _box(f'<table class="sortable results"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>')


def _number(entry: Evidence, scope: str) -> str:
    """With the short mark: a run's numbers nearly all have the same label."""
    return badge(entry.to_dict(), html.escape(value(entry.to_dict())), scope=scope)


def _list(entries: Sequence[Evidence], scope: str) -> str:
    rows = "\n".join(f'<tr><th scope="row">{_code(_title(e))}</th><td>{_number(e, scope)}</td></tr>' for e in entries)
    return _box(f'<table class="results"><tbody>\n{rows}\n</tbody></table>')


def _box(table: str) -> str:
    region = 'tabindex="0" role="region" aria-label="Numbers of this run"'
    return f'<div class="table-box" {region} data-search-exclude>\n{table}\n</div>'


def _title(entry: Evidence) -> str:
    return str(entry.context.get("title", entry.name))


def _code(text: str) -> str:
    """Escaped, with `this` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _parts(entry: Evidence) -> tuple[str, str]:
    """A title's two halves: `system: figure` or `figure, setting`."""
    title = _title(entry)
    for mark in (": ", ", "):
        if mark in title:
            first, _, second = title.partition(mark)
            return first, second
    return title, ""


def _common(parts: Sequence[tuple[str, str]]) -> str:
    """The half that all share."""
    for half in (0, 1):
        if len({pair[half] for pair in parts}) == 1:
            return parts[0][half]
    return " / ".join(dict.fromkeys(pair[0] for pair in parts))


def _rest(parts: tuple[str, str], common: str) -> str:
    return parts[1] if parts[0] == common else parts[0]


MARKERS = {"results": recorded_runs}
