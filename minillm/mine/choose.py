"""Which parts of the caller's run in an engine, and what is said about those that do not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.mine.faults import Origin
from minillm.mine.labs import ATTEMPTED, PASSING, OwnPart, load, own_parts, unreadable
from minillm.parts import PARTS, check_names

log = logging.getLogger("minillm.mine")

Mine = bool | Sequence[str] | Mapping[str, Any] | None
ALL = "all"
INSIDE_GRAPHS = ("attention", "ops", "kernels")  # slots whose references are compiled into decode graphs


@dataclass(frozen=True)
class Choice:
    """How to build the engine: its configuration, and the objects that take the place of references in it."""

    config: EngineConfig
    objects: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts that run: an object for a part that the configuration does not select waits in vain."""
        return _running(self.objects, self.config)


def choose(mine: Mine, config: EngineConfig) -> Choice:
    """mine: True for every part whose lab passes its checks, or part names, all of which must; {name: object} for objects
    from elsewhere, used as they are; None or False for none.

    No flag is changed for a part's sake: the log says which parts run, and what would make the others run. Raises ConfigError
    for a name that is no part, that has no lab, or whose checks do not pass.
    """
    if not mine:
        return Choice(config, {})
    if isinstance(mine, Mapping):
        return Choice(_eager(config, mine), mine)
    own = own_parts()
    for problem in unreadable():
        log.warning("--mine passes over a file of yours: %s", problem)
    if own is None:
        raise ConfigError("--mine takes your parts from the labs folder, and none is here: use a clone, set up with `make setup`")
    if mine is True:
        passing = {name: part for name, part in own.items() if part.state == PASSING}
    else:
        passing = {name: _named(name, own) for name in ([mine] if isinstance(mine, str) else mine)}
    running = {name: passing[name] for name in _running(passing, config)}
    _report(own, passing, running, config, all_asked=mine is True)
    return Choice(_eager(config, running), {name: _load(part) for name, part in running.items()})


def parse_mine(value: str | None) -> Mine:
    """The value of --mine: nothing, "all", or part names with commas between."""
    if value is None:
        return None
    return True if value == ALL else [name.strip() for name in value.split(",")]


def _running(names: Iterable[str], config: EngineConfig) -> tuple[str, ...]:
    """Those of these parts that an engine of this configuration calls, if all of them are the caller's."""
    selected = [name for name in names if name in PARTS and not _missing(name, config)]
    return tuple(name for name in selected if not _in_its_place(name, selected))


def _in_its_place(name: str, others: Iterable[str]) -> str | None:
    """Which of the caller's other parts is called where this one would be."""
    return next((other for other in others if other in PARTS[name].gives_way_to), None)


def _missing(name: str, config: EngineConfig) -> list[tuple[str, str, str | None]]:
    """(flag, value that this part needs, value it has) of each that keeps an engine of this configuration from using it. A slot
    that no field names has one implementation: that."""
    from minillm.fused.choice import resolved  # loads torch

    config = resolved(config)
    pairs = (selector.split(".", 1) for selector in PARTS[name].selectors)
    return [(slot, value, actual) for slot, value in pairs if (actual := getattr(config, slot, value)) != value]


def _named(name: str, own: Mapping[str, OwnPart]) -> OwnPart:
    check_names([name])
    if name not in own:
        raise ConfigError(f"--mine {name}: no lab asks for this part; those that one does: {', '.join(own) or 'none yet'}")
    part = own[name]
    if part.state != PASSING:
        where = f"your {part.exercise.name} in {part.file}"
        raise ConfigError(f"--mine {name}: {where} is {_in_words(part)}; `labs check {part.module_id}` tests it")
    return part


def _load(part: OwnPart) -> Any:
    from minillm.mine.guards import guarded  # loads torch

    exercise = part.exercise
    origin = Origin(part.part, exercise.name, part.module_id, exercise.file, part.file, exercise.line)
    return guarded(origin, load(part))


def _eager(config: EngineConfig, names: Mapping[str, Any]) -> EngineConfig:
    """Compiled graphs have the references built in, so a part of theirs that is replaced would not run."""
    inside = [name for name in _running(names, config) if name.split(".")[0] in INSIDE_GRAPHS]
    if not inside or config.enforce_eager:
        return config
    log.info("no compiled graphs: %s would not run in them", ", ".join(inside))
    return replace(config, enforce_eager=True)


def _report(own: Mapping, passing: Mapping, running: Mapping, config: EngineConfig, all_asked: bool) -> None:
    for part in running.values():
        log.info("yours: %s, %s in %s", part.part, part.exercise.name, part.file)
    for name in (name for name in passing if name not in running):
        level = logging.INFO if all_asked and running else logging.WARNING
        log.log(level, "%s passed, but %s", name, _why_not(name, running, config))
    waiting = [f"{name} (lab {part.module_id}, {_in_words(part)})" for name, part in own.items() if name not in passing]
    if all_asked and waiting:
        log.info("not yours yet: %s", ", ".join(waiting))
    if not running:
        why = "" if passing else ": none of your parts passes its checks yet; `labs status` shows where you are"
        log.warning("--mine: nothing of yours runs, only reference parts%s", why)


def _why_not(name: str, running: Iterable[str], config: EngineConfig) -> str:
    """Why a part that passes does not run, and what would make it."""
    if missing := _missing(name, config):
        now = " and ".join(f"--{slot} is {actual or 'not set'}" for slot, _, actual in missing)
        return f"{now}: add {' '.join(f'--{slot} {value}' for slot, value, _ in missing)}"
    return f"your {_in_its_place(name, running)} runs in its place: name the parts you want, --mine={name},…"


def _in_words(part: OwnPart) -> str:
    return "attempted, not passing" if part.state == ATTEMPTED else str(part.state)
