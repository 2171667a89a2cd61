"""What a learner reads after a run: one line an exercise, and under it, where a check failed, what to look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

from labs.kit import source
from labs.kit.catalog import Exercise, LabModule, course_order, read_module
from labs.kit.progress import Progress
from labs.kit.titles import title_of

MAX_FRAMES, MAX_NAMES, MAX_PRINTED = 5, 3, 2000
QUESTION = "What is the capital of France?"  # one that the default model answers
_COLOURS = {"passing": {"green": True}, "attempted": {"yellow": True}, "not attempted": {}}


@dataclass
class ExerciseRun:
    """The checks of one exercise that ran, as the dicts that the plugin puts on pytest's reports."""

    module: LabModule
    name: str
    total: int
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)  # test id -> the worst that happened to it

    def add(self, test_id: str, run: dict[str, Any]) -> None:
        if self.runs.get(test_id, {}).get("kind", "passed") == "passed":
            self.runs[test_id] = run

    @property
    def kinds(self) -> Counter[str]:
        return Counter(run["kind"] for run in self.runs.values())

    @property
    def failures(self) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if run["kind"] not in ("passed", "skipped")]

    @property
    def is_complete(self) -> bool:
        return len(self.runs) == self.total

    @property
    def state(self) -> str:
        if not self.failures:
            return "passing"
        return "not attempted" if all(run["kind"] == "not attempted" for run in self.failures) else "attempted"

    @property
    def exercise(self) -> Exercise | None:
        """None where the learner's file cannot be parsed."""
        return next((e for e in self.module.exercises if e.name == self.name), None)


class Report:
    """A pytest plugin: listens to every check's outcome, remembers passes, and writes the summary."""

    def __init__(self, records: bool, solutions: bool, verbose: bool):
        self._records, self._solutions, self._verbose = records, solutions, verbose
        self._exercises: dict[tuple[str, str], ExerciseRun] = {}

    def pytest_runtest_logreport(self, report) -> None:
        run = getattr(report, "lab", None)
        if run is None:
            return
        key = (run["module"], run["exercise"])
        if key not in self._exercises:
            self._exercises[key] = ExerciseRun(read_module(Path(run["module"])), run["exercise"], run["total"])
        self._exercises[key].add(report.nodeid, run)

    def pytest_sessionfinish(self) -> None:
        """A failure counts whatever was selected, a pass only if all checks ran."""
        tried = [e for e in self._exercises.values() if e.exercise is not None and e.state != "not attempted"]
        tried = [each for each in tried if each.failures or _all_ran(each)]
        if not (self._records and tried):
            return
        progress = Progress.load()
        for each in tried:
            progress.record(each.exercise, not each.failures, [run["check"] for run in each.failures])
        progress.save()

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if not self._exercises:
            return
        for each in sorted(self._exercises.values(), key=lambda each: course_order(each.module.file)):
            self._write_exercise(terminalreporter, each)
        if self._solutions:
            return
        counts = Counter(each.state for each in self._exercises.values())
        parts = [f"{counts[state]} {state}" for state in ("passing", "attempted", "not attempted") if counts[state]]
        total = len(self._exercises)
        terminalreporter.write_line(f"\n{total} exercise{'s'[: total > 1]}: {', '.join(parts)}")
        self._write_next(terminalreporter)

    def _write_exercise(self, out, each: ExerciseRun) -> None:
        module = each.module
        out.write(f"{module.id} {title_of(module)} · {each.name}: ")
        state = each.state
        if state == "passing":
            out.write_line(self._passing(each), **_COLOURS[state])
        elif state == "not attempted":
            out.write_line(f"not attempted, open {_path(module)}, hint: labs hint {module.id}")
        else:
            passed, ran = each.kinds["passed"], len(each.runs)
            whose = "the reference fails" if self._solutions else "attempted"
            out.write_line(f"{whose}, {passed} of {ran} checks pass", **_COLOURS[state])
            self._write_failures(out, each)
        if self._verbose and state != "not attempted":
            for run in each.runs.values():
                out.write_line(f"    {'ok  ' if run['kind'] == 'passed' else run['kind']} {_words(run['check'])}")

    def _passing(self, each: ExerciseRun) -> str:
        skipped = f", {each.kinds['skipped']} skipped" if each.kinds["skipped"] else ""
        if self._solutions:
            return f"the reference passes {each.kinds['passed']} checks{skipped}"
        if not _all_ran(each):
            return f"{each.kinds['passed']} of {each.total} checks ran and pass; to have it counted: labs check {each.module.id}"
        return f"passing, {each.kinds['passed']} checks{skipped}"

    def _write_failures(self, out, each: ExerciseRun) -> None:
        """The first failure in full, for it is the one to mend first; the others by name."""
        first = each.failures[0]
        if first["kind"] == "problem":
            out.write_line(f"\n    {first['message']}\n")
            return
        where = f"  ({first['where']})" if first["where"] else ""
        out.write_line(f"\n  {_words(first['check'])}{where}", bold=True)
        for line in _told(first).splitlines():
            out.write_line(f"    {line}")
        for frame in first["frames"][-MAX_FRAMES:]:
            out.write_line(f"      at {frame}")
        if first["printed"]:
            out.write_line(f"\n    printed meanwhile:\n{indent(first['printed'][-MAX_PRINTED:].rstrip(), '      ')}")
        self._write_others(out, each, first)
        out.write_line(f"\n  file: {_path(each.module)}, hint: labs hint {each.module.id}\n")

    def _write_others(self, out, each: ExerciseRun, first: dict[str, Any]) -> None:
        waiting = {run["message"] for run in each.failures if run["kind"] == "not written"}
        if waiting:
            names = source.unwritten(each.exercise) or sorted(waiting)
            out.write_line(f"\n  not written yet: {', '.join(names)}")
        told = [run for run in each.failures if run is not first and run["kind"] not in ("not written", "too slow")]
        names = [_words(run["check"]) for run in told]
        if names:
            more = f"; and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            out.write_line(f"\n  then: {'; '.join(names[:MAX_NAMES])}{more}")

    def _write_next(self, out) -> None:
        if any(each.failures or not _all_ran(each) for each in self._exercises.values()):
            return
        parts = [each.exercise.part for each in self._exercises.values() if each.exercise.part]
        if parts:
            flags, names = _flags(parts), ",".join(parts) if len(parts) <= MAX_NAMES else "all"
            out.write_line(f'The engine can run yours now: minillm generate --mine={names}{flags} --prompt "{QUESTION}"')
        out.write_line("Well done. What comes next: labs next")


def _flags(parts: list[str]) -> str:
    """What else the command must say for these parts to run; of two that exclude each other, the later one's."""
    from minillm.parts import PARTS  # only when something passes: the kit starts without the engine

    words = [word for part in parts if part in PARTS for word in PARTS[part].flag.split()]
    values = dict(zip(words[::2], words[1::2], strict=True))
    if "--quantization" in values:
        values.pop("--linear", None)  # which is for weights that are not quantized
    return "".join(f" {flag} {value}" for flag, value in values.items())


def _all_ran(each: ExerciseRun) -> bool:
    return each.is_complete and each.kinds["passed"] > 0


def _told(run: dict[str, Any]) -> str:
    match run["kind"]:
        case "not written":
            return f"{run['message']} is not written yet: it still raises NotImplementedError"
        case "crashed":
            return f"your code stopped with {run['message']}"
        case _:
            return run["message"] or "failed without a message"


def _words(check: str) -> str:
    """ "test_any_cache[a_new_cache_is_empty]" as "any cache: a new cache is empty"."""
    return check.removeprefix("test_").removesuffix("]").replace("[", ": ").replace("_", " ")


def _path(module: LabModule) -> str:
    return f"{module.file.parent.parent.name}/{module.path}.py"
