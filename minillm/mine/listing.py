"""`minillm parts`: which parts there are, and whose each is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from minillm.mine.labs import ATTEMPTED, PASSING, OwnPart, own_parts
from minillm.parts import PARTS

CHANGED, BROKEN = "changed since it passed", "not valid Python"  # as labs.kit.state.State has them
WHOSE = {PASSING: "yours", ATTEMPTED: "yours, not passing", CHANGED: "yours, changed", BROKEN: "yours, broken"}
HEAD = ("part", "whose", "lab", "what it does")
WIDTH = 80


@dataclass(frozen=True)
class Row:
    """One part. lab, exercise, file: None where no lab asks for it. todo: what its lab needs before the engine can run it."""

    name: str
    whose: str  # "reference", or one of WHOSE
    lab: str | None
    exercise: str | None
    file: str | None
    summary: str
    reference: str
    todo: str | None = None


def whose_parts() -> list[Row]:
    """All parts, in the registry's order. Without a labs folder, all of them are reference parts."""
    own = own_parts() or {}
    rows = []
    for name, part in PARTS.items():
        mine = own.get(name)
        lab = (mine.module_id, mine.exercise.name, mine.file) if mine else (None, None, None)
        whose = WHOSE.get(mine.state, "reference") if mine else "reference"
        rows.append(Row(name, whose, *lab, part.summary, part.reference, _todo(mine) if mine else None))
    return rows


def _todo(mine: OwnPart) -> str | None:
    if mine.state not in (CHANGED, BROKEN):
        return None
    what = f"your {mine.exercise.name} {mine.state}" if mine.state == CHANGED else f"{mine.file} is {mine.state}"
    return f"{what}: labs check {mine.module_id}"


def as_lines(rows: Sequence[Row], long: bool = False) -> list[str]:
    """A table with a head, no wider than WIDTH; long: as wide as it gets, with the code of each reference."""
    cells = [[r.name, r.whose, r.lab or "no lab yet", r.summary, *([r.reference] if long else [])] for r in rows]
    cells.insert(0, [*HEAD, *(["reference"] if long else [])])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not long:
        widths[-1] = WIDTH - sum(widths[:-1]) - 2 * len(widths[:-1])
    lines = [line for row in cells for line in _folded(row, widths)]
    todo = dict.fromkeys(row.todo for row in rows if row.todo)  # a file's line once, however many parts it holds
    return [*lines, *([""] if todo else []), *todo]


def _folded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """One row of the table; its last cell goes on below where it is too long."""
    *front, last = row
    start = "".join(f"{cell:{width}}  " for cell, width in zip(front, widths, strict=False))
    room = len(start) + widths[-1]
    return textwrap.wrap(last, room, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
