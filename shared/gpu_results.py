"""What GPUs did with our kernels, for readers who have none: the recordings that `make gpu` leaves in results/.

A notebook shows them in one cell. Nothing in it was run on the reader's machine, so each table says which card it was, when, and
with which versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shared.comparison import show
from shared.evidence import Evidence
from shared.results import RESULTS, Run, load

DATED = re.compile(r"gpu-(?P<card>.*?)(-\d{4}-\d\d-\d\d)?")
NONE_YET = "GPU: no card has been measured yet. `make gpu` does it, and this cell then shows what it found."


def show_on_gpus(*kernels: str, folder: Path = RESULTS) -> None:
    """Displays, for each recorded card, how fast these kernels are, and torch's own, and the share of what that card can do.

    kernels: as the cases of `make gpu` are called, without their size: "gemv" for gemv.1 and gemv.8. Without any recording, or
    where none knows these kernels, one line says so. Raises EvidenceError for a recording that is not whole.
    """
    shown = False
    for name, run in recordings(folder):
        if rows := _rows(name, run, kernels):
            print(_heading(run))
            show(*rows)
            shown = True
    if not shown:
        print(NONE_YET)


def recordings(folder: Path = RESULTS) -> Iterator[tuple[str, Run]]:
    """The name and content of each card's newest recording: results/gpu-<card>-<date>.json."""
    newest = {DATED.fullmatch(file.stem)["card"]: file for file in sorted(folder.glob("gpu-*.json"))}
    for card, file in newest.items():
        yield card, load(file)


def _rows(card: str, run: Run, kernels: tuple[str, ...]) -> list[Evidence]:
    """Of one recording. The card becomes part of a name, which stands for one number in a notebook."""
    entries = (entry for entry in run.evidence if entry.name.startswith("speed."))
    return [replace(entry, name=f"{card}.{entry.name}") for entry in entries if entry.name.split(".")[1] in kernels]


def _heading(run: Run) -> str:
    """As "NVIDIA H100 80GB HBM3, 2026-12-01 (torch 2.13.0, triton 3.7.1, driver 580.65)"."""
    machine = run.environment
    (card, *_), versions = machine["gpus"], machine["versions"]
    said = {"torch": versions.get("torch"), "triton": versions.get("triton"), "driver": card.get("driver")}
    known = ", ".join(f"{name} {version}" for name, version in said.items() if version)
    return f"{card['name']}, {machine['date'][:10]} ({known})"
