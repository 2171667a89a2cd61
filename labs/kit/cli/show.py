"""What `labs status` and `labs next` print. Fits 60 columns, and says everything without colour."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from labs.kit.catalog import labs_root
from labs.kit.cli.overview import Overview, Row
from labs.kit.state import BEGUN, State
from shared.course import Series

CELLS = {State.PASSING: ("■", "green"), State.NOT_ATTEMPTED: ("□", ""), None: ("·", "dim")}
CELLS |= dict.fromkeys(BEGUN, ("◧", "yellow"))
ALONE = "Start, capstone, checklist"  # what belongs to no series
LEGEND = (("passing", State.PASSING), ("begun", State.ATTEMPTED), ("not begun", State.NOT_ATTEMPTED), ("planned", None))


def show_status(console: Console, overview: Overview, everything: bool) -> None:
    """A bar for each series, one cell a module; under it what is begun (everything: all there is), and what comes next."""
    console.print(_bars(overview))
    console.print(_legend())
    planned = sum(row.lab is None for row in overview.rows)
    if planned:
        console.print(f"{len(overview.rows) - planned} of {len(overview.rows)} modules so far; the others are planned.")
    shown = [row for row in overview.rows if row.lab and (everything or row.state in BEGUN)]
    for row in shown:
        console.print()
        _show_row(console, row)
    for stranger in overview.strangers:
        console.print(f"\n{stranger} is not a module of the course and is not counted.", style="yellow")
    console.print()
    show_next(console, overview)


def show_series(console: Console, overview: Overview, series: Series | None) -> None:
    """All modules of one series, the planned ones too; None: those that stand alone."""
    if series is None:
        console.print(ALONE, style="bold")
    else:
        console.print(f"{series.id.upper()} {series.title}", style="bold")
        console.print(series.question)
    for row in overview.rows_of(series):
        console.print()
        _show_row(console, row)


def show_next(console: Console, overview: Overview) -> None:
    """The next thing to do, and the commands for it."""
    row = overview.next
    if row is None:
        there = any(row.lab for row in overview.rows)
        console.print(
            "Everything that is there passes. `labs update` brings new modules."
            if there
            else "There are no exercises in this copy; `labs update` brings the newest."
        )
        return
    console.print(Text.assemble("next  ", (_name(row), "bold")))
    console.print(Padding(Text(row.module.question, "italic"), (0, 0, 0, 2)))
    for what, where in _steps(row):
        console.print(Text.assemble((f"  {what:6}", "dim"), where), soft_wrap=True)


def _steps(row: Row) -> list[tuple[str, str]]:
    steps = []
    if (labs_root().parent / row.module.notebook).is_file():
        steps.append(("read", f"labs open {row.module.id}   ({row.module.minutes} min)"))
    if row.needs_only_a_check:
        return [*steps, ("check", f"labs check {row.module.id}   (changed since it passed)")]
    first = next(iter(row.open_exercises), None)
    file = f"{row.lab.file.parents[1].name}/{row.lab.path}.py"
    steps.append(("write", f"{first.name} in {file}, line {first.line}") if first else ("mend", row.lab.problem))
    steps.append(("check", f"labs check {row.module.id}"))
    steps.append(("stuck", f"labs hint {row.module.id}"))
    return steps


def _name(row: Row) -> str:
    return f"{row.module.id} {row.module.title}" if row.module.series else row.module.title


def _bars(overview: Overview) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    groups = [("Map", ALONE, overview.rows_of(None))]
    groups += [(series.id.upper(), series.title, overview.rows_of(series)) for series in overview.course.series]
    for label, title, rows in groups:
        states = [state for row in rows for _, state in row.states]
        count = f"{states.count(State.PASSING)}/{len(states)}" if states else ""
        table.add_row(Text(label, "dim"), title, Text.assemble(*(CELLS[row.state] for row in rows)), count)
    return table


def _legend() -> Text:
    parts = [Text.assemble(CELLS[state], f" {word}") for word, state in LEGEND]
    return Text("   ").join(parts)


def _show_row(console: Console, row: Row) -> None:
    cell = CELLS[row.state]
    console.print(Text.assemble(cell, f" {_name(row)}"))
    if row.lab is None:
        console.print(Padding(Text(f"planned: {row.module.summary}", "dim"), (0, 0, 0, 4)))
        return
    if row.lab.problem:
        console.print(f"    {row.lab.problem}", style="red", soft_wrap=True)
    failing = dict(row.failing)
    width = max((len(exercise.name) for exercise, _ in row.states), default=0)
    for exercise, state in row.states:
        checks = failing.get(exercise, 0)
        more = f", {checks} check{'s' * (checks > 1)} failed" if checks else ""
        if state is State.CHANGED:
            more = f": labs check {row.module.id}"
        console.print(Text.assemble(f"    {exercise.name:{width}}  ", (f"{state}{more}", CELLS[state][1])), soft_wrap=True)
