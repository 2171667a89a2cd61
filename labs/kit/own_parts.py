"""The learner's own parts, for an engine that is asked to run them (`--mine`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labs.kit.catalog import Exercise, exercises_by_text, find_modules, labs_root
from labs.kit.progress import Progress
from labs.kit.state import State, state_of
from labs.kit.subject import load_mine


@dataclass(frozen=True)
class OwnPart:
    """An exercise whose answer can stand for a part of the engine."""

    part: str  # "kv.contiguous"
    exercise: Exercise
    state: State
    module_id: str  # "2.3"
    file: str  # "labs/c2/m03_kv_cache.py"

    def load(self) -> object:
        """The learner's object, from the file as it is now. Raises LabError where the file cannot be imported."""
        return load_mine(self.exercise)


def own_parts(root: Path | None = None) -> dict[str, OwnPart]:
    """By the part's name, whatever their state, those of a file that does not parse included; in the order of the course."""
    progress, folder = Progress.load(), labs_root(root).name
    return {
        exercise.part: OwnPart(exercise.part, exercise, state_of(exercise, progress), module.id, f"{folder}/{exercise.module}.py")
        for module in find_modules(root)
        for exercise in (exercises_by_text(module.file) if module.problem else module.exercises)
        if exercise.part
    }
