"""The course's notebooks: run, checked and begun.

    python tools/notebooks.py run FILE ... | --all      execute, normalise, refresh the numbers in the prose
    python tools/notebooks.py check FILE ... | --all    anatomy, links, evidence, figures
    python tools/notebooks.py new FILE                  a skeleton to fill

Authors who build a notebook from a script use `opening`, `write`, `run` and `check`. series/README.md says what a notebook holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from notebook_kit.card import opening
from notebook_kit.cells import NotebookError, write
from notebook_kit.check import check
from notebook_kit.execute import run
from notebook_kit.skeleton import skeleton

__all__ = ["check", "main", "opening", "run", "write"]
ROOT = Path(__file__).resolve().parents[1]
SERIES = ROOT / "series"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="notebooks.py", description="Run, check and begin the course's notebooks.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in {"run": "execute and write", "check": "report what is wrong"}.items():
        command = commands.add_parser(name, help=help_text)
        command.add_argument("files", nargs="*", type=Path)
        command.add_argument("--all", action="store_true", help="every notebook in series/")
    commands.choices["run"].add_argument("--cell-timeout", type=float, default=120, metavar="SECONDS")
    commands.add_parser("new", help="write a skeleton").add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "new":
        return _new(options.file)
    if options.all == bool(options.files):
        parser.error("name notebooks, or --all")
    files = sorted(SERIES.rglob("*.ipynb")) if options.all else options.files
    files = [file for file in files if ".ipynb_checkpoints" not in file.parts]
    begin = time.perf_counter()
    faults = sum(_run(file, options.cell_timeout) if options.command == "run" else _check(file) for file in files)
    if options.command == "run" and len(files) > 1:
        seconds = time.perf_counter() - begin
        print(f"{len(files)} notebooks in {seconds:.0f} s, {seconds / len(files):.1f} s each; {faults or 'none'} failed")
    return 1 if faults else 0


def _run(file: Path, cell_timeout: float) -> int:
    try:
        outcome = run(file, cell_timeout)
    except NotebookError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    state = "changed" if outcome.changed else "unchanged"
    print(f"{file}: {outcome.seconds:.1f} s of {outcome.budget:.0f} s ({outcome.cpu_seconds:.1f} s of CPU time), {state}")
    if not outcome.within_budget:
        remedy = "make it smaller, or tag a cell slow-start where a server must start"
        print(f"error: {file}: over its budget of {outcome.budget:.0f} s; {remedy}", file=sys.stderr)
    return 0 if outcome.within_budget else 1


def _check(file: Path) -> int:
    faults = check(file)
    for fault in faults:
        print(f"{file}: {fault}", file=sys.stderr)
    if not faults:
        print(f"{file}: as it should be")
    return len(faults)


def _new(file: Path) -> int:
    if file.exists():
        print(f"error: {file} exists; remove it first to begin anew", file=sys.stderr)
        return 1
    try:
        write(file, skeleton(file))
    except NotebookError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    print(f"{file}: a skeleton; fill it, then `python tools/notebooks.py run {file}` and `check {file}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
