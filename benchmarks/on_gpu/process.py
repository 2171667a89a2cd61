"""The parent's side: starts a section's processes, reads what they write, ends them when their time is up."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_STARTS = 4  # of one part: after that many faults there is little left to learn
A_START = 10.0  # seconds until a process has loaded torch and met the GPU: with less left, another is not worth it
GRACE = 0.85  # of a process's time may have passed when it starts a case


@dataclass
class Found:
    """What a section brought. failed: {case: cause}; cut: cases that the time box left no time for; facts: "card", "ceilings"."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def take(self, other: Found) -> None:
        self.rows += other.rows
        self.failed |= other.failed
        self.cut += other.cut
        self.ended += other.ended
        self.facts |= other.facts


# (part, report, seconds, cases to skip) -> the child's command line
Command = Callable[[str, Path, float, Sequence[str]], list[str]]


def run_section(command: Command, parts: Sequence[str], seconds: float) -> Found:
    """All parts of a section at the same time, each within `seconds`."""
    with ThreadPoolExecutor(len(parts)) as pool:
        pieces = list(pool.map(lambda part: run_part(command, part, seconds), parts))
    found = Found()
    for piece in pieces:
        found.take(piece)
    return found


def run_part(command: Command, part: str, seconds: float) -> Found:
    """One part, in a new process after each that a case brought down."""
    deadline, found, skip = time.monotonic() + seconds, Found(), []
    for _ in range(MOST_STARTS):
        left = deadline - time.monotonic()
        with tempfile.TemporaryDirectory(prefix="minillm-gpu-") as folder:
            report, log = Path(folder) / "report.jsonl", Path(folder) / "log"
            report.touch()
            status = run_child(command(part, report, GRACE * left, skip), log, left)
            begun, found_here = read(report)
            found.take(found_here)
            unfinished = [name for name in begun if name not in found_here.ended]
            for name in unfinished:
                found.failed.setdefault(name, cause_of(status, log))
            if status == 0:
                return found
            if not begun:
                found.failed.setdefault(f"{part or 'section'}", cause_of(status, log))
                return found
            skip += begun
        if status is None or deadline - time.monotonic() < A_START:
            break
    found.cut.append(f"what came after {skip[-1]}")
    return found


def run_child(command: list[str], log: Path, seconds: float) -> int | None:
    """Its exit status, negative for a signal; None if its time ran out and it was ended."""
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        try:
            return child.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            return None
        finally:  # Ctrl-C too
            if child.poll() is None:
                child.kill()
                child.wait()


def read(report: Path) -> tuple[list[str], Found]:
    """(cases begun, in order; what was found). A last line that was being written when the process ended is left out."""
    begun, found = [], Found()
    for text in report.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "begin" in line:
            begun.append(line["begin"])
        elif "row" in line:
            found.rows.append(line["row"])
        elif "failed" in line:
            found.failed[line["failed"]] = line["cause"]
        elif "end" in line:
            found.ended.append(line["end"])
        elif "cut" in line:
            found.cut += line["cut"]
        else:
            found.facts |= line
    return begun, found


def cause_of(status: int | None, log: Path) -> str:
    if status is None:
        return "no time left: it was ended"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = f": {lines[-1].strip()[:200]}" if lines else ""
    return f"the process ended with status {status}{said}"
