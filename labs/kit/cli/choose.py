"""From what was typed to what is meant: a module, and an exercise in it."""

from __future__ import annotations

from pathlib import Path

from labs.kit.catalog import Exercise, LabModule, find_module, find_modules, labs_root
from labs.kit.cli.overview import look
from labs.kit.errors import LabError
from labs.kit.progress import Progress
from labs.kit.state import State, state_of
from shared.course import CourseError, load_course


def choose_module(asked: str) -> LabModule:
    """By id, by "c2/m03_kv_cache", or by a path from where one stands. Raises LabError, also for one that is only planned."""
    typed = Path(asked).resolve()
    for lab in find_modules():
        if typed in (lab.file, lab.checks):
            return lab
    try:
        return find_module(asked)
    except LabError:
        try:
            planned = load_course().module(asked)
        except CourseError:
            pass
        else:
            raise LabError(
                f"{planned.id} {planned.title} is planned: it has no exercises yet; `labs status` lists what is there"
            ) from None
        raise


def choose_modules(asked: str) -> list[LabModule]:
    """A module, or every lab of a series: "c2", "labs/c2", or the folder from where one stands. Raises LabError."""
    labs, typed = find_modules(), Path(asked).resolve()
    name = asked.strip().rstrip("/").lower().removeprefix("./").removeprefix(f"{labs_root().name}/")
    series = next((one for one in load_course().series if name in (one.id, one.folder)), None)
    found = [lab for lab in labs if typed in (lab.file.parent, labs_root()) or (series and lab.file.parent.name == series.id)]
    if series and not found:
        raise LabError(f"{series.id} {series.title} is planned: it has no exercises yet; `labs status` lists what is there")
    return found or [choose_module(asked)]


def current_module() -> LabModule:
    """What `labs next` names. Raises LabError when nothing is left to do."""
    if not find_modules():
        raise LabError("there are no exercises in this copy; `labs update` brings the newest")
    row = look().next
    if row is None:
        raise LabError("every exercise there is passes; name a module to see it again, or `labs update` for new ones")
    return row.lab


def choose_exercise(lab: LabModule, name: str | None) -> Exercise:
    """The exercise of that name; without one, the first that does not pass, else the first. Raises LabError.

    One that only changed since it passed comes after those that never did.
    """
    require_readable(lab)
    if name is not None:
        for exercise in lab.exercises:
            if exercise.name.lower() == name.lower():
                return exercise
        raise LabError(f"{lab.id} has no exercise {name!r}; it has {', '.join(e.name for e in lab.exercises)}")
    progress = Progress.load()
    last = (State.CHANGED, State.PASSING)  # `min` takes the first of equals
    return min(lab.exercises, key=lambda exercise: 1 + last.index(s) if (s := state_of(exercise, progress)) in last else 0)


def require_readable(lab: LabModule) -> None:
    """Raises LabError if the learner's file is not Python at the moment, or holds no exercise any more."""
    if lab.problem:
        raise LabError(f"{lab.problem}; mend that first, or `labs reset {lab.id}` brings the original back")
    if not lab.exercises:
        raise LabError(f"labs/{lab.path}.py holds no @exercise any more; `labs reset {lab.id}` brings the original back")
