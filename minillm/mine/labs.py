"""The learner's labs, as far as the engine needs them. The only file of minillm that knows `labs`, and only when asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from minillm.errors import ConfigError
from minillm.parts import PARTS

PASSING, ATTEMPTED = "passing", "attempted"  # as labs.kit.state.State has them


class _Exercise(Protocol):
    name: str  # "ContiguousKV"
    file: Path
    line: int


class OwnPart(Protocol):
    """An exercise whose answer can stand for a part: labs.kit.own_parts.OwnPart."""

    part: str  # "kv.contiguous"
    exercise: _Exercise
    state: str
    module_id: str  # "2.3"
    file: str  # "labs/c2/m03_kv_cache.py"

    def load(self) -> Any: ...


def own_parts() -> dict[str, OwnPart] | None:
    """The labs that stand for a part, by its name. None: there is no labs folder. Raises ConfigError where one is damaged."""
    try:
        from labs.kit.errors import LabError
        from labs.kit.own_parts import own_parts as find
    except ModuleNotFoundError as e:
        if e.name and e.name.split(".")[0] == "labs":
            return None
        raise
    try:
        return {name: part for name, part in find().items() if name in PARTS}
    except LabError as e:
        raise ConfigError(str(e)) from e


def unreadable() -> list[str]:
    """What is wrong with each lab file that is not valid Python, a line each: its exercises are unknown."""
    try:
        from labs.kit.catalog import find_modules
    except ModuleNotFoundError:
        return []
    return [module.problem for module in find_modules() if module.problem]


def load(part: OwnPart) -> Any:
    """The learner's class or function. Raises ConfigError where its file cannot be imported."""
    from labs.kit.errors import LabError

    try:
        return part.load()
    except LabError as e:
        raise ConfigError(f"your {part.part} cannot be loaded: {e}; `labs check {part.module_id}` tests it") from e
