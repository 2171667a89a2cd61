"""The three hints of an exercise, each giving more away."""

from __future__ import annotations

import tomllib

from labs.kit.catalog import Exercise
from labs.kit.errors import LabError


def hints_of(exercise: Exercise) -> tuple[str, ...]:
    """From hints.toml beside it: `[m03_kv_cache.ContiguousKV] hints = […]`. Empty where there are none. Raises LabError."""
    try:
        raw = tomllib.loads(exercise.hints_file.read_text(encoding="utf-8"))
        hints = raw[exercise.file.stem][exercise.name]["hints"]
    except (FileNotFoundError, KeyError):
        return ()
    except tomllib.TOMLDecodeError as e:
        raise LabError(f"{exercise.hints_file.parent.name}/hints.toml cannot be read: {e}") from e
    return tuple(hint.strip() for hint in hints)
