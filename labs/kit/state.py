"""How far a learner is with an exercise."""

from __future__ import annotations

from enum import StrEnum

from labs.kit.catalog import Exercise
from labs.kit.progress import Progress
from labs.kit.source import is_untouched


class State(StrEnum):
    NOT_ATTEMPTED = "not attempted"
    ATTEMPTED = "attempted"
    CHANGED = "changed since it passed"  # the learner's file, the checks or the reference: only a new check can tell
    BROKEN = "not valid Python"  # its file, so that nothing can be said of what is in it
    PASSING = "passing"


BEGUN = (State.ATTEMPTED, State.CHANGED, State.BROKEN)


def state_of(exercise: Exercise, progress: Progress | None = None) -> State:
    """NOT_ATTEMPTED while every body is the stub's; PASSING while a pass is remembered of just these files, CHANGED while one
    is of others."""
    try:
        if is_untouched(exercise):
            return State.NOT_ATTEMPTED
    except (SyntaxError, UnicodeDecodeError):
        return State.BROKEN
    progress = Progress.load() if progress is None else progress
    if progress.passed(exercise):
        return State.PASSING
    return State.CHANGED if exercise.key in progress.digests else State.ATTEMPTED
