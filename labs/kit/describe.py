"""From the exception of a failed check to what a learner should read: the message, and of the traceback only their own lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from labs.kit.catalog import ROOT
from labs.kit.errors import LabError
from labs.kit.time_limit import TimeLimit

SUITES = ROOT / "labs" / "kit" / "conformance"


@dataclass
class Outcome:
    """How one check went. kind: passed, skipped, not attempted, problem (the file cannot be imported), not written (a method
    still raises NotImplementedError), failed (an assertion), crashed (any other exception), too slow."""

    kind: str
    message: str = ""
    frames: list[str] = field(default_factory=list)  # "labs/c2/m03_kv_cache.py:70 in start: row = …"
    where: str = ""  # the line of the check that failed
    printed: str = ""  # what went to stdout meanwhile: a learner's print() is how many debug

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(excinfo: pytest.ExceptionInfo, subject_file: str) -> Outcome:
    """subject_file: the file that holds what is being checked; its frames are the learner's."""
    error, entries = excinfo.value, list(excinfo.traceback)
    own = [entry for entry in entries if str(entry.path) == subject_file]
    frames = [_frame(entry) for entry in own]
    raised_there = bool(own) and own[-1] is entries[-1]
    if isinstance(error, LabError):
        return Outcome("problem", str(error))
    if isinstance(error, TimeLimit):
        return Outcome("too slow", f"{error}: does a loop never end?", frames)
    if isinstance(error, NotImplementedError) and raised_there:
        return Outcome("not written", own[-1].frame.code.raw.co_qualname)
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return Outcome("failed", _message(error), frames if raised_there else [], _where(entries, subject_file))
    if not frames:  # whatever the learner's object returned has made other code stumble
        frames = [_frame(entry) for entry in entries if Path(str(entry.path)).is_relative_to(ROOT)][-2:]
    return Outcome("crashed", f"{type(error).__name__}: {_message(error)}", frames, _where(entries, subject_file))


def _message(error: BaseException) -> str:
    """What the check's author wrote, without pytest's own account of the expression, and with hypothesis's example."""
    text = str(error).split("\nassert ", 1)[0]
    return "\n".join([text, *getattr(error, "__notes__", [])]).strip()


def _where(entries: list, subject_file: str) -> str:
    """The last line of a check, or of a suite of checks, on the way to the failure."""
    places = [(Path(str(entry.path)), entry.lineno + 1) for entry in entries if str(entry.path) != subject_file]
    checking = [(path, line) for path, line in places if path.name.startswith("test_") or path.parent == SUITES]
    return f"{_shown(checking[-1][0])}:{checking[-1][1]}" if checking else ""


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _frame(entry) -> str:
    return f"{_shown(Path(str(entry.path)))}:{entry.lineno + 1} in {entry.name}: {str(entry.statement).strip()}"
