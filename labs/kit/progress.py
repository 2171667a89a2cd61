"""What a learner has passed and which hints were shown: one plain file, .labs/progress.json, ignored by git."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from labs.kit.catalog import ROOT, Exercise
from labs.kit.errors import LabError

VERSION = 1


def labs_home() -> Path:
    """The folder of a learner's state: the environment's LABS_HOME, else .labs in the repository."""
    return Path(os.environ.get("LABS_HOME") or ROOT / ".labs")


@dataclass
class Progress:
    """Keys are Exercise.key. A pass is remembered with a digest of what passed, and forgotten when that has changed."""

    file: Path
    digests: dict[str, str] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)  # the checks that failed at the last run
    hints: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Progress:
        """What is remembered; nothing where nothing is. A damaged file is set aside with a line on stderr."""
        file = labs_home() / "progress.json"
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            return cls(file, *_validated(raw))
        except FileNotFoundError:
            return cls(file)
        except OSError as e:
            raise LabError(f"progress cannot be read from {file} ({e.strerror}); set LABS_HOME to a folder of yours") from e
        except (ValueError, KeyError, TypeError):  # JSON and UTF-8 errors are ValueErrors
            broken = file.with_name(f"{file.name}.broken")
            os.replace(file, broken)
            print(f"{file} could not be read; it is kept as {broken.name}, and progress starts anew", file=sys.stderr)
            return cls(file)

    def record(self, exercise: Exercise, passed: bool, failed_checks: list[str]) -> None:
        """Note the result of a run of all the exercise's checks."""
        self.digests.pop(exercise.key, None)
        self.failed.pop(exercise.key, None)
        if passed:
            self.digests[exercise.key] = digest(exercise)
        else:
            self.failed[exercise.key] = list(failed_checks)

    def passed(self, exercise: Exercise) -> bool:
        """Whether it has passed, with the learner's file, the checks and the reference as they are now."""
        remembered = self.digests.get(exercise.key)
        return remembered is not None and remembered == digest(exercise)

    def hints_shown(self, key: str) -> int:
        return self.hints.get(key, 0)

    def show_hint(self, key: str) -> int:
        """Count one more hint as shown; how many that makes."""
        self.hints[key] = self.hints_shown(key) + 1
        return self.hints[key]

    def save(self) -> None:
        """Write all of it, or nothing: a full disk or Ctrl-C leaves the old file. Raises LabError."""
        content = {"version": VERSION, "passed": self.digests, "failed": self.failed, "hints": self.hints}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.file, json.dumps(content, indent=1, sort_keys=True))
        except OSError as e:
            raise LabError(f"progress cannot be written to {self.file} ({e.strerror}); set LABS_HOME to a folder of yours") from e


def _replace(file: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as temporary:
        try:
            temporary.write(text)
            temporary.flush()
            os.replace(temporary.name, file)
        except BaseException:
            os.unlink(temporary.name)
            raise


def digest(exercise: Exercise) -> str:
    """Of everything a pass rests on: the learner's file, the checks, and the reference's file."""
    total = hashlib.sha256()
    for file in (exercise.file, exercise.checks_file, reference_file(exercise)):
        content = file.read_bytes() if file.is_file() else b""
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def reference_file(exercise: Exercise) -> Path:
    """The file that holds the reference, found without importing it where it is ours."""
    module = exercise.reference.split(":")[0]
    inside = module.removeprefix("minillm.") if module.startswith("minillm.kernels") else module
    for candidate in (f"{inside.replace('.', '/')}.py", f"{inside.replace('.', '/')}/__init__.py"):
        if (ROOT / candidate).is_file():
            return ROOT / candidate
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LabError(f"{exercise.key} names the reference {exercise.reference}, and there is no such module")
    return Path(spec.origin)


def _validated(raw: dict) -> tuple[dict[str, str], dict[str, list[str]], dict[str, int]]:
    if raw["version"] != VERSION:
        raise ValueError(f"version {raw['version']}")
    passed, failed, hints = raw["passed"], raw["failed"], raw["hints"]
    if not (
        all(isinstance(v, str) for v in passed.values())
        and all(isinstance(v, list) for v in failed.values())
        and all(isinstance(v, int) for v in hints.values())
    ):
        raise TypeError
    return dict(passed), dict(failed), dict(hints)
