"""The pytest plugin of the labs: one source of checks for the learner's file and, with --solutions, for the reference."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import pytest

from labs.kit.catalog import is_lab_file, labs_root, read_module
from labs.kit.collect import CHECK, SUBJECT, LabChecks, Pending
from labs.kit.describe import Outcome, describe
from labs.kit.lab import Lab
from labs.kit.report import Report
from labs.kit.subject import mine, reference
from labs.kit.time_limit import TimeLimit, time_limit

SECONDS_PER_CHECK = 30
TOO_SLOW = pytest.StashKey[set[str]]()  # exercises of which a check has run out of time
CALM = pytest.StashKey[bool]()
VERBOSE = pytest.StashKey[bool]()


def pytest_addoption(parser):
    parser.addoption(
        "--solutions", action="store_true", help="run the labs' checks against the reference, not the learner's files"
    )


@pytest.hookimpl(tryfirst=True)  # before the terminal reporter is made
def pytest_configure(config):
    config.addinivalue_line("markers", "checks(name): the exercise that a check of the labs belongs to")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
    config.stash[TOO_SLOW] = set()
    config.stash[CALM] = _only_labs(config)
    config.stash[VERBOSE] = config.option.verbose > 0
    if config.stash[CALM]:
        config.option.verbose = -2  # no header, no dots, no last line: the report below says all
        config.option.reportchars = ""
        config.option.disable_warnings = True
    if not hasattr(config, "workerinput"):
        is_gate = config.getoption("gate_out", None) is not None
        config.pluginmanager.register(
            Report(
                records=not (is_gate or config.getoption("solutions", False)),
                solutions=config.getoption("solutions", False),
                verbose=config.stash[VERBOSE],
            ),
            "labs-report",
        )


def pytest_pycollect_makemodule(module_path, parent):
    stub = module_path.with_name(module_path.name.removeprefix("test_"))
    if stub == module_path or not is_lab_file(stub) or not stub.is_file():
        return None
    node = LabChecks.from_parent(parent, path=module_path)
    node.lab_module = read_module(stub)
    node.runs_learners_file = not _other_subjects(parent.config)
    return node


@pytest.fixture
def lab(request) -> Lab:
    """The exercise's subject as `lab.<its name>`."""
    check = request.node.stash.get(CHECK, None)
    if check is None:
        pytest.fail('mark this check with the exercise it belongs to: @checks("…") from labs.kit', pytrace=False)
    subject = getattr(request, "param", None)
    if subject is None:
        subject = reference(check.exercise) if _other_subjects(request.config) else mine(check.exercise)
    request.node.stash[SUBJECT] = subject
    return Lab(check.exercise.name, subject, check.module)


@pytest.fixture(autouse=True)
def _seeded(request):
    if CHECK in request.node.stash:
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)
            sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item) -> Iterator[None]:
    if CHECK not in item.stash:
        return (yield)
    if item.stash[CHECK].exercise.key in item.config.stash[TOO_SLOW] and not item.config.getoption("gate_out", None):
        raise TimeLimit(f"a check before took more than {SECONDS_PER_CHECK} s, and this one was not tried")
    with time_limit(SECONDS_PER_CHECK):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    check = item.stash.get(CHECK, None)
    if check is not None and (report.when == "call" or not report.passed):
        report.lab = {
            "module": str(check.module.file),
            "exercise": check.exercise.name,
            "check": item.name,
            "total": check.total,
            "subject": item.stash[SUBJECT].name if SUBJECT in item.stash else "mine",
            **_outcome(item, call, report).as_dict(),
        }
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """hypothesis's own summary offers patches to the checks, and imports all of hypothesis to see that it has none."""
    if session.config.stash[CALM]:
        session.config.pluginmanager.unregister(name="hypothesispytest")


def pytest_report_teststatus(report, config):
    """In a run of labs only, pytest's own account of each check is left out: ours follows at the end."""
    is_lab = hasattr(report, "lab") or (report.when != "call" and report.passed)
    return ("", "", "") if config.stash[CALM] and is_lab else None


def _outcome(item, call, report) -> Outcome:
    if report.passed:
        return Outcome("passed")
    if report.skipped:
        return Outcome("skipped", str(call.excinfo.value))
    if isinstance(item, Pending):
        return Outcome(item.kind, item.message)
    subject = item.stash.get(SUBJECT, None)
    outcome = describe(call.excinfo, subject.file if subject else "")
    outcome.printed = report.capstdout
    if outcome.kind == "too slow":
        item.config.stash[TOO_SLOW].add(item.stash[CHECK].exercise.key)
    return outcome


def _other_subjects(config) -> bool:
    """Whether something else than the learner's file is checked."""
    return config.getoption("solutions", False) or config.getoption("gate_out", None) is not None


def _only_labs(config) -> bool:
    """Whether nothing but labs was asked for, so that their report may stand for pytest's."""
    folder = str(labs_root())
    paths = [os.path.abspath(os.path.join(config.invocation_params.dir, arg.split("::")[0])) for arg in config.args]
    return all(os.path.commonpath([folder, path]) == folder for path in paths)
