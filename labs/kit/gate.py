"""The three-way gate: for every exercise the stub fails, the reference passes, and each planted mistake fails as it should.

It finds the exercises by itself, so that a new module cannot pass it by. `run_gate` returns what is wrong, in words.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labs.kit.blobs import STUBS, recorded
from labs.kit.catalog import ROOT, Exercise, LabModule, find_modules, labs_root
from labs.kit.check import PLUGINS, PYTEST
from labs.kit.checks_file import read_checks
from labs.kit.errors import LabError
from labs.kit.hints import hints_of
from labs.kit.source import is_untouched
from labs.kit.wrong import load_wrong, wrong_file

MIN_MISTAKES, NUM_HINTS = 3, 3
SECONDS_PER_MODULE = 120


@dataclass(frozen=True)
class Gate:
    """Where it looks. root: the labs; wrong: the folder of planted mistakes; stubs: the list of pristine stubs; only: the paths
    of the modules to judge, all if there is none."""

    root: Path
    wrong: Path
    stubs: Path = STUBS
    only: frozenset[str] = frozenset()

    def run(self) -> dict[str, list[str]]:
        """Key of each exercise (of a module, where it has none) -> what is wrong with it; an empty list where nothing is."""
        modules = [module for module in find_modules(self.root) if not self.only or module.path in self.only]
        problems = {key: list(lines) for module in modules for key, lines in self._papers(module).items()}
        outcomes, naive, crash = self._outcomes(modules)
        for module in modules:
            for exercise in module.exercises:
                lines = problems[exercise.key]
                subjects = outcomes.get(exercise.key, {})
                if not subjects:
                    lines.append(f"none of its checks ran with the fixture `lab`; {crash or 'pytest saw nothing wrong'}")
                    continue
                lines += _judge_stub(subjects.get("stub"))
                lines += _judge_reference(subjects.get("reference"))
                lines += _judge_mistakes(subjects)
                lines += _judge_naive(naive.get(exercise.key, {}))
        return problems

    def _papers(self, module: LabModule) -> dict[str, list[str]]:
        """What can be seen without running anything."""
        if not module.exercises:
            return {module.path: [module.problem or f"{module.path}.py has no @exercise"]}
        try:
            whole = self._checks_of(module)
        except LabError as e:
            return {exercise.key: [str(e)] for exercise in module.exercises}
        return {e.key: [*whole, *self._papers_of(module, e)] for e in module.exercises}

    def _checks_of(self, module: LabModule) -> list[str]:
        if not module.checks.is_file():
            return [f"{module.checks.name} is missing"]
        names = {e.name for e in module.exercises}
        checks = read_checks(module.checks)
        lines = [f"{c.name} has no @checks(…), or is a method" for c in checks if c.exercise is None]
        strays = [c for c in checks if c.exercise not in {None, *names}]
        return lines + [f"{c.name} is marked @checks({c.exercise!r}), which is no exercise" for c in strays]

    def _papers_of(self, module: LabModule, exercise: Exercise) -> list[str]:
        lines = []
        if exercise.name not in {c.exercise for c in read_checks(module.checks)}:
            lines.append(f"no check is marked @checks({exercise.name!r})")
        if is_untouched(exercise) and module.path not in recorded(self.stubs):
            lines.append("its stub is not recorded: run `python -m labs.kit.stubs`")
        try:
            hints = hints_of(exercise)
            if len(hints) != NUM_HINTS or not all(hints) or len(set(hints)) != NUM_HINTS:
                lines.append(f"hints.toml has {len(hints)} hints for it, {NUM_HINTS} different ones are needed")
        except LabError as e:
            lines.append(str(e))
        return lines + self._papers_of_mistakes(module, exercise)

    def _papers_of_mistakes(self, module: LabModule, exercise: Exercise) -> list[str]:
        file = wrong_file(self.wrong, module)
        if not file.is_file():
            return [f"{file.name}, its planted mistakes, is missing"]
        try:
            wrong = load_wrong(file)
        except LabError as e:
            return [str(e)]
        lines, count = [], len(wrong.mistakes.get(exercise.name, {}))
        if count < MIN_MISTAKES:
            lines.append(f"{file.name} plants {count} mistakes in it, at least {MIN_MISTAKES} are needed")
        if exercise.name not in wrong.happy:
            lines.append(f"{file.name} has no naive test of it in HAPPY")
        unknown = {*wrong.mistakes, *wrong.happy} - {e.name for e in module.exercises}
        return lines + [f"{file.name} names {name}, which is no exercise of {module.path}" for name in sorted(unknown)]

    def _outcomes(self, modules: list[LabModule]) -> tuple[dict, dict, str | None]:
        """(outcomes, naive, what stopped others): all subjects in one process of its own."""
        files = [str(module.checks) for module in modules if module.checks.is_file()]
        if not files:
            return {}, {}, None
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "outcomes.json"
            plugins = [*PLUGINS, "-p", "labs.kit.gate_plugin", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
            places = [f"--rootdir={self.root.parent}", f"-c={ROOT / 'pyproject.toml'}"]
            command = [*PYTEST, *files, *plugins, *places, f"--gate-wrong={self.wrong}", f"--gate-out={out}"]
            try:
                limit = SECONDS_PER_MODULE * len(modules)
                done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=limit, check=False)
            except subprocess.TimeoutExpired:
                return {}, {}, f"the checks were not through after {limit} s"
            if done.returncode not in (0, 1) or not out.is_file():  # 1: some subjects failed, as they should
                return {}, {}, f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            result = json.loads(out.read_text(encoding="utf-8"))
        return result["outcomes"], result["naive"], result["errors"] or None


def run_gate(wrong: Path, root: Path | None = None, stubs: Path = STUBS, only: Iterable[str] = ()) -> dict[str, list[str]]:
    """What is wrong with each exercise under `root` (the repository's labs), or with those of the modules whose paths are in
    `only`. wrong: the folder of the planted mistakes."""
    return Gate(labs_root(root), wrong, stubs, frozenset(only)).run()


def _judge_stub(outcome: dict | None) -> list[str]:
    """None: the learner has begun, and it is no stub any more."""
    if outcome is None or outcome["kind"] == "not written":
        return []
    if outcome["kind"] == "passed":
        return ["the stub passes all its checks"]
    return [f"the stub must fail with NotImplementedError, it {_told(outcome)}"]


def _judge_reference(outcome: dict | None) -> list[str]:
    if outcome is None or outcome["kind"] != "passed":
        return [f"the reference {_told(outcome) if outcome else 'was not checked'}"]
    return [] if outcome["num_passed"] else ["every check was skipped for the reference"]


def _judge_mistakes(subjects: dict[str, dict]) -> list[str]:
    lines = []
    for name, outcome in subjects.items():
        if not name.startswith("wrong "):
            continue
        if outcome["kind"] == "passed":
            lines.append(f"{name} passes all checks")
        elif outcome["kind"] != "failed":
            lines.append(f"{name} must fail with an assertion, it {_told(outcome)}")
        elif not outcome["message"] or outcome["message"].startswith("assert "):
            lines.append(f"{name} fails in {outcome['check']} without a message for the learner")
    return lines


def _judge_naive(naive: dict) -> list[str]:
    if not naive:
        return []  # missing, and said so already
    if naive["reference"]:
        return [f"the reference does not pass the naive test: {naive['reference']}"]
    return [] if naive["passing"] else ["no planted mistake passes the naive test, which then needs no better checks"]


def _told(outcome: dict) -> str:
    kind = {"passed": "passes", "failed": "fails", "crashed": "crashes"}.get(outcome["kind"], f"ends as {outcome['kind']!r}")
    at = f", {outcome['frames'][-1]}" if outcome.get("frames") else ""
    return f"{kind} in {outcome.get('check', 'all checks')}: {outcome.get('message', '')}{at}"
