"""The two marks that tie things together: a stub to its reference, a check to its exercise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Binding:
    """What an exercise stands for. reference: "module:attribute"; part: its name in minillm.parts, if it is one."""

    reference: str
    part: str | None = None


def exercise(reference: str, part: str | None = None) -> Callable[[T], T]:
    """Mark a function or class as an exercise whose answer is `reference`. The object itself stays as it is."""

    def bind(obj: T) -> T:
        obj.__exercise__ = Binding(reference, part)
        return obj

    return bind


def checks(name: str) -> Any:
    """Mark a check function, or a file through `pytestmark`, with the exercise it belongs to: pytest.mark.checks(name)."""
    import pytest  # not at the top: serving with one's own parts needs no pytest

    return pytest.mark.checks(name)
