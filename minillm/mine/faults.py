"""Errors that say whose code was at fault: the caller's own part, which of its lines, and what checks it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minillm.errors import MinillmError

LONGEST_MESSAGE = 200  # characters of the learner's own message that are quoted


@dataclass(frozen=True)
class Origin:
    """Where a part of the caller's comes from."""

    part: str  # "kv.contiguous"
    exercise: str  # "ContiguousKV"
    lab: str  # "2.3"
    path: Path  # its file
    file: str  # the same, as a reader knows it: "labs/c2/m03_kv_cache.py"
    line: int  # of its definition


class OwnPartError(MinillmError):
    """The caller's own part raised, or gave back what the engine cannot use.

    what: the rest of a sentence that begins with the part, such as "raised KeyError: 7". line: in its file; None: its
    definition's.
    """

    def __init__(self, origin: Origin, what: str, line: int | None = None):
        self.origin = origin
        super().__init__(
            f"your {origin.part} (lab {origin.lab}, {origin.exercise}, {origin.file}:{line or origin.line}) {what}. "
            f"`labs check {origin.lab}` tests it; without --mine the reference runs in its place"
        )


def call(origin: Origin, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs); whatever it raises comes out as an OwnPartError that names the origin.

    One that comes from a part further in keeps its own name: a scheduler is not to blame for the cache it asks.
    """
    try:
        return function(*args, **kwargs)
    except OwnPartError:
        raise
    except Exception as e:
        raise OwnPartError(origin, f"raised {_in_words(e)}", _own_line(origin, e)) from e


def _in_words(error: Exception) -> str:
    message = " ".join(str(error).split())
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "…"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _own_line(origin: Origin, error: Exception) -> int | None:
    """The innermost line of the origin's file on the way to where it was raised; None: it was raised elsewhere."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename) == origin.path]
    return lines[-1] if lines else None
