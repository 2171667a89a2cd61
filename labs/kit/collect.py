"""Collecting a checks file: what is not attempted is not even imported, so that a fresh clone answers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from labs.kit.catalog import Exercise, LabModule
from labs.kit.checks_file import CheckFunction, read_checks
from labs.kit.errors import LabError
from labs.kit.source import is_untouched
from labs.kit.subject import Subject


@dataclass(frozen=True)
class Check:
    """What the report needs to know of a check."""

    module: LabModule
    exercise: Exercise
    total: int  # checks of this exercise, each parametrized instance counted


CHECK = pytest.StashKey[Check]()
SUBJECT = pytest.StashKey[Subject]()


class Pending(pytest.Item):
    """A check that cannot run: its exercise is not attempted, or the learner's file cannot be read."""

    kind: str
    message: str

    def runtest(self) -> None:
        pytest.fail(self.message, pytrace=False)

    def reportinfo(self):
        return self.path, None, self.name


class LabChecks(pytest.Module):
    """test_m03_kv_cache.py, for which `lab_module` says what its exercises are."""

    lab_module: LabModule
    runs_learners_file: bool

    def collect(self) -> Iterator[pytest.Item]:
        try:
            checks = read_checks(self.path)
        except LabError as e:
            raise self.CollectError(str(e)) from e
        by_name = {exercise.name: exercise for exercise in self._exercises(checks)}
        functions = [f for f in checks if f.exercise in by_name]
        waiting = {name: self._why_not(exercise) for name, exercise in by_name.items()}
        nodes: list[tuple[pytest.Item, Check]] = []
        others: list[pytest.Item] = []
        for function in functions:
            if waiting[function.exercise]:
                item = Pending.from_parent(self, name=function.name)
                item.kind, item.message = waiting[function.exercise]
                nodes.append((item, Check(self.lab_module, by_name[function.exercise], 0)))
        if not functions or any(not waiting[f.exercise] for f in functions):
            if "hypothesis" in self.path.read_text(encoding="utf-8"):  # slow to import, and most checks need none of it
                _settle_hypothesis(shrinks=self.config.getoption("gate_out", None) is None)
            known = {f.name: f for f in functions}
            for item in super().collect():
                function = known.get(getattr(item, "originalname", ""))
                if function is None:
                    others.append(item)
                elif not waiting[function.exercise]:
                    nodes.append((item, Check(self.lab_module, by_name[function.exercise], 0)))
        totals = Counter(check.exercise.name for _, check in nodes)
        for item, check in nodes:
            item.stash[CHECK] = replace(check, total=totals[check.exercise.name])
        yield from (item for item, _ in nodes)
        yield from others

    def _exercises(self, checks: list[CheckFunction]) -> list[Exercise]:
        """Those of the stub file; where it cannot be parsed, those that the checks name."""
        if self.lab_module.problem is None:
            return list(self.lab_module.exercises)
        names = dict.fromkeys(f.exercise for f in checks if f.exercise)
        return [Exercise(self.lab_module.path, name, "", None, self.lab_module.file, 1) for name in names]

    def _why_not(self, exercise: Exercise) -> tuple[str, str] | None:
        """(kind, message) for an exercise that cannot be checked now."""
        if not self.runs_learners_file:
            return None
        if self.lab_module.problem:
            return "problem", self.lab_module.problem
        return ("not attempted", f"{exercise.name} is not attempted") if is_untouched(exercise) else None


def _settle_hypothesis(shrinks: bool) -> None:
    """The same examples for everybody, every time; and one mistake reported at a time, without the plumbing."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "labs",
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if shrinks else [])],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    settings.load_profile("labs")
