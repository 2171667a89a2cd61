"""Planted mistakes: what a learner could plausibly get wrong, and a check must notice.

A file of them, tests/labs/wrong/c2_m03_kv_cache.py, defines for each exercise of its module

    WRONG = {"ContiguousKV": {"forgets_to_free": patch("old text", "new text", "what went wrong"), …}}
    HAPPY = {"ContiguousKV": function(subject)}   # the naive test that at least one of them passes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.kit.catalog import Exercise, LabModule
from labs.kit.errors import LabError
from labs.kit.subject import Subject, load_variant, run_source

Naive = Callable[[Any], None]


@dataclass(frozen=True)
class Mistake:
    """why: what the learner got wrong, in a sentence."""

    why: str
    load: Callable[[Exercise], Any]

    def subject(self, name: str, exercise: Exercise) -> Subject:
        return Subject(name, "", lambda: self.load(exercise))


@dataclass(frozen=True)
class Wrong:
    """The mistakes planted in one module's exercises, by exercise and by name."""

    mistakes: Mapping[str, Mapping[str, Mistake]]
    happy: Mapping[str, Naive]


def patch(old: str, new: str, why: str) -> Mistake:
    """The reference with `old`, which must occur exactly once in its module's source, replaced by `new`."""
    return Mistake(why, lambda exercise: load_variant(exercise, old, new))


def replace(obj: Any, why: str) -> Mistake:
    """A whole function or class instead of the reference: for mistakes that no small patch makes."""
    return Mistake(why, lambda exercise: obj)


def wrong_file(folder: Path, module: LabModule) -> Path:
    return folder / f"{module.path.replace('/', '_')}.py"


def load_wrong(file: Path) -> Wrong:
    """Raises LabError, in one line, where the file cannot be read or has another shape."""
    try:
        module = run_source(f"labs_wrong_{file.stem}", file.read_text(encoding="utf-8"), str(file))
        wrong = Wrong(module.WRONG, module.HAPPY)
        is_shaped = all(isinstance(m, Mistake) for ms in wrong.mistakes.values() for m in ms.values())
    except Exception as e:
        raise LabError(f"{file.name}: {type(e).__name__}: {e}") from e
    if not (is_shaped and all(map(callable, wrong.happy.values()))):
        raise LabError(f"{file.name}: WRONG maps exercises to {{name: patch(…) or replace(…)}}, HAPPY exercises to functions")
    return wrong
