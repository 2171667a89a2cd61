"""What the checks are run against: the learner's object, the reference, or the reference with a mistake planted in it."""

from __future__ import annotations

import itertools
import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from labs.kit.catalog import Exercise
from labs.kit.errors import LabError
from labs.kit.progress import reference_file

_variants = itertools.count()


@dataclass(frozen=True)
class Subject:
    """Something to run an exercise's checks against. file: where its code is, so that its lines are known in a traceback."""

    name: str  # "mine", "reference", "stub", or a planted mistake's
    file: str
    load: Callable[[], Any]


def mine(exercise: Exercise) -> Subject:
    return Subject("mine", str(exercise.file), lambda: load_mine(exercise))


def reference(exercise: Exercise) -> Subject:
    return Subject("reference", str(reference_file(exercise)), lambda: load_reference(exercise))


def load_mine(exercise: Exercise) -> Any:
    """The learner's function or class, from the file as it is now. Raises LabError, in one line, where it has none."""
    name = f"labs.{exercise.module.replace('/', '.')}"
    where = f"labs/{exercise.module}.py"
    try:
        source = exercise.file.read_text(encoding="utf-8")
        linecache.checkcache(str(exercise.file))
        module = run_source(name, source, str(exercise.file))
    except Exception as e:
        line = e.lineno if isinstance(e, SyntaxError) else _last_line(e, exercise.file)
        raise LabError(f"{where}{f', line {line}' if line else ''}: {type(e).__name__}: {e}") from e
    try:
        return getattr(module, exercise.name)
    except AttributeError:
        raise LabError(f"{where} defines no {exercise.name}; `labs reset` brings the original back") from None


def load_reference(exercise: Exercise) -> Any:
    """The engine's own answer."""
    module, attribute = exercise.reference.split(":")
    try:
        return getattr(import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as e:
        raise LabError(f"{exercise.key} names the reference {exercise.reference}, which cannot be imported: {e}") from e


def load_variant(exercise: Exercise, old: str, new: str) -> Any:
    """The reference with `old` replaced by `new` in its module's source. Raises LabError unless `old` occurs exactly once."""
    source = reference_file(exercise).read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise LabError(f"{old!r} occurs {source.count(old)} times in {exercise.reference.split(':')[0]}, it must occur once")
    module, attribute = exercise.reference.split(":")
    number = next(_variants)
    changed = source.replace(old, new)
    filename = f"<{exercise.key}, planted mistake {number}>"
    linecache.cache[filename] = (len(changed), None, changed.splitlines(keepends=True), filename)
    return getattr(run_source(f"{module}_planted_{number}", changed, filename), attribute)


def run_source(name: str, source: str, filename: str) -> ModuleType:
    """Execute a module's source and return the module.

    Not through importlib's loaders: their bytecode cache compares whole seconds, and a learner saves more often than that.
    """
    module = ModuleType(name)
    module.__file__ = filename
    module.__package__ = name.rpartition(".")[0]
    module.__spec__ = ModuleSpec(name, None)  # without one, importlib.util.find_spec(name) raises
    previous = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except BaseException:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise
    return module


def _last_line(error: Exception, file: Path) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None
