"""The pytest plugin of the gate: every check is run against stub, reference and each planted mistake, in one process.

Used by labs.kit.gate alone, as `-p labs.kit.gate_plugin --gate-wrong=… --gate-out=…`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from labs.kit.catalog import Exercise, LabModule
from labs.kit.collect import CHECK, LabChecks
from labs.kit.errors import LabError
from labs.kit.source import is_untouched
from labs.kit.subject import Subject, load_reference, mine, reference
from labs.kit.time_limit import TimeLimit, time_limit
from labs.kit.wrong import Wrong, load_wrong, wrong_file

SECONDS_PER_NAIVE_TEST = 20


def pytest_addoption(parser):
    parser.addoption("--gate-wrong", help="the folder of the planted mistakes")
    parser.addoption("--gate-out", help="the file to which the outcomes are written, as JSON")


def pytest_configure(config):
    config.pluginmanager.register(Gate(config.option.gate_wrong, config.option.gate_out), "labs-gate")


class Gate:
    def __init__(self, wrong: str, out: str):
        self._wrong_folder, self._out = Path(wrong), Path(out)
        self._outcomes: dict[str, dict[str, dict]] = {}  # exercise -> subject -> the first failure, or how many passed
        self._naive: dict[str, dict] = {}
        self._errors: list[str] = []
        self._modules: dict[str, LabModule] = {}
        self._wrong = lru_cache(self._load_wrong)

    def pytest_generate_tests(self, metafunc):
        """A check runs once for each subject."""
        node, mark = metafunc.definition.getparent(LabChecks), metafunc.definition.get_closest_marker("checks")
        if node is None or mark is None or "lab" not in metafunc.fixturenames:
            return
        module: LabModule = node.lab_module
        self._modules[module.path] = module
        exercise = next((e for e in module.exercises if e.name == mark.args[0]), None)
        if exercise is not None:
            subjects = self._subjects(module, exercise)
            metafunc.parametrize("lab", subjects, indirect=True, ids=[subject.name for subject in subjects])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        """A subject is done with at its first failure."""
        check, subject = item.stash.get(CHECK, None), _subject(item)
        if check and subject and self._outcome(check.exercise.key, subject.name)["kind"] != "passed":
            pytest.skip("failed before")

    def pytest_runtest_logreport(self, report):
        run = getattr(report, "lab", None)
        if run is None or run["kind"] == "skipped":
            return
        module = next(module for module in self._modules.values() if str(module.file) == run["module"])
        outcome = self._outcome(f"{module.path}:{run['exercise']}", run["subject"])
        if run["kind"] != "passed":
            outcome.update({name: run[name] for name in ("kind", "check", "message", "frames")})
        elif outcome["kind"] == "passed":
            outcome["num_passed"] += 1

    def pytest_collectreport(self, report):
        if report.failed:
            self._errors.append(f"{report.nodeid}: {report.longrepr}")

    def pytest_sessionfinish(self):
        for module in self._modules.values():
            for exercise in module.exercises:
                self._naive[exercise.key] = self._run_naive(module, exercise)
        self._out.write_text(
            json.dumps({"outcomes": self._outcomes, "naive": self._naive, "errors": "\n".join(self._errors)}), encoding="utf-8"
        )

    def _subjects(self, module: LabModule, exercise: Exercise) -> list[Subject]:
        subjects = [reference(exercise)]
        if is_untouched(exercise):  # a solved one is the learner's business
            subjects.insert(0, Subject("stub", str(exercise.file), mine(exercise).load))
        wrong = self._wrong(module)
        for name, mistake in wrong.mistakes.get(exercise.name, {}).items() if wrong else ():
            subjects.append(mistake.subject(f"wrong {name}", exercise))
        return subjects

    def _load_wrong(self, module: LabModule) -> Wrong | None:
        """None where there is none or it is broken: the gate says so by itself."""
        try:
            return load_wrong(wrong_file(self._wrong_folder, module))
        except LabError:
            return None

    def _outcome(self, key: str, subject: str) -> dict:
        return self._outcomes.setdefault(key, {}).setdefault(subject, {"kind": "passed", "num_passed": 0})

    def _run_naive(self, module: LabModule, exercise: Exercise) -> dict:
        """Which subjects pass the naive test: {"reference": None or what it raised, "passing": names of mistakes}."""
        wrong = self._wrong(module)
        if wrong is None or exercise.name not in wrong.happy:
            return {}
        naive, mistakes = wrong.happy[exercise.name], wrong.mistakes.get(exercise.name, {})
        fault = _fault(naive, lambda: load_reference(exercise))
        passing = [name for name, mistake in mistakes.items() if not _fault(naive, lambda m=mistake: m.load(exercise))]
        return {"reference": fault, "passing": passing}


def _fault(naive, load) -> str | None:
    try:
        with time_limit(SECONDS_PER_NAIVE_TEST):
            naive(load())
    except (Exception, TimeLimit) as e:  # noqa: BLE001  whatever it is, it is the answer
        return f"{type(e).__name__}: {e}"
    return None


def _subject(item) -> Subject | None:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("lab") if callspec else None
    return found if isinstance(found, Subject) else None
