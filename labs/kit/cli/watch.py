"""Checking again whenever the exercise is saved.

A save is noticed by asking for the file's time and size a few times a second: notices from the operating system do not
arrive from the shared folders of containers and virtual machines, and one file costs nothing to ask about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from labs.kit.catalog import LabModule
from labs.kit.check import run_checks
from labs.kit.cli.overview import look

Snapshot = dict[Path, tuple[int, int, int] | None]


def watch_lab(console: Console, lab: LabModule, moves_on: bool) -> None:
    """Check, wait for a save, check again. moves_on: to the next module once all passes, and back here when none is left."""
    while True:
        before = snapshot([lab.file])  # ahead of the checks: a save while they run must count
        if console.is_terminal:
            console.clear()
        if run_checks([lab]) == 0 and moves_on:
            row = look().next
            if row is None:
                console.print("Everything that is there passes.")
                return
            lab, before = row.lab, snapshot([row.lab.file])
            console.print(f"\nNext is {row.module.id} {row.module.title}.")
        console.print(f"Watching {lab.file.parents[1].name}/{lab.path}.py; Ctrl-C stops.", style="dim", soft_wrap=True)
        wait_for_change(before)


def snapshot(files: Iterable[Path]) -> Snapshot:
    """What a save changes about each file; None for one that is not there, as in the midst of a save."""
    return {file: _marks(file) for file in files}


def wait_for_change(before: Snapshot, sleep: Callable[[float], None] = time.sleep, interval_s: float = 0.25) -> Snapshot:
    """Returns the new state once a file differs from `before` and has then stayed the same, and all are there, for a moment."""
    current = before
    while True:
        sleep(interval_s)
        previous, current = current, snapshot(before)
        if current == previous != before and None not in current.values():
            return current


def _marks(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
