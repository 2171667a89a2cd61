"""The course beside the learner's files: what exists, how far each exercise is, and what comes next. Prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labs.kit.catalog import Exercise, LabModule, find_modules, labs_root
from labs.kit.progress import Progress
from labs.kit.state import BEGUN, State, state_of
from shared.course import Course, Module, Series, load_course


@dataclass(frozen=True)
class Row:
    """A module of the course. lab: None while it is planned. failing: for an exercise, the checks its last run failed."""

    module: Module
    lab: LabModule | None = None
    states: tuple[tuple[Exercise, State], ...] = ()
    failing: tuple[tuple[Exercise, int], ...] = ()

    @property
    def state(self) -> State | None:
        """Of the module as a whole; None while it is planned."""
        if self.lab is None:
            return None
        if self.lab.problem:
            return State.BROKEN
        found = {state for _, state in self.states}
        return found.pop() if len(found) == 1 else State.ATTEMPTED

    @property
    def open_exercises(self) -> tuple[Exercise, ...]:
        """Those that do not pass: the begun ones first, last those that only need a new check."""
        order = (State.ATTEMPTED, State.NOT_ATTEMPTED, State.CHANGED)
        return tuple(exercise for wanted in order for exercise, state in self.states if state is wanted)

    @property
    def needs_only_a_check(self) -> bool:
        """Whether all of it passed, and something changed since."""
        states = {state for _, state in self.states}
        return State.CHANGED in states and states <= {State.CHANGED, State.PASSING}


@dataclass(frozen=True)
class Overview:
    course: Course
    rows: tuple[Row, ...]
    strangers: tuple[str, ...]  # lab files that are no module of the course

    def rows_of(self, series: Series | None) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.module.series == (series.id if series else None))

    @property
    def next(self) -> Row | None:
        """What was begun, in the course's order, then what was not; None when all that exists passes."""
        begun = [row for row in self.rows if row.state in BEGUN]
        fresh = [row for row in self.rows if row.state is State.NOT_ATTEMPTED]
        return next(iter([*begun, *fresh]), None)


def look(root: Path | None = None) -> Overview:
    """Reads the course, the lab files and the progress. Raises CourseError or LabError where one cannot be read."""
    course, progress = load_course(), Progress.load()
    labs = {lab.path: lab for lab in find_modules(root)}
    rows = tuple(_row(module, labs.pop(module.lab, None), progress) for module in course.modules)
    return Overview(course, rows, tuple(f"{labs_root(root).name}/{path}.py" for path in labs))


def _row(module: Module, lab: LabModule | None, progress: Progress) -> Row:
    if lab is None:
        return Row(module)
    states = tuple((exercise, state_of(exercise, progress)) for exercise in lab.exercises)
    failing = tuple(
        (exercise, len(progress.failed[exercise.key]))
        for exercise, state in states
        if state is State.ATTEMPTED and progress.failed.get(exercise.key)
    )
    return Row(module, lab, states, failing)
