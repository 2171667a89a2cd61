"""A course of its own for the tests of the machinery: labs, their reference, and planted mistakes, in a temporary folder."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from labs.kit.catalog import LABS, Exercise, find_module
from labs.kit.check import PLUGINS, PYTEST
from labs.kit.errors import LabError

REFERENCE = '''
def clamp(value: int, low: int = 0, high: int = 10) -> int:
    """Between low and high."""
    if value < low:
        return low
    return min(value, high)
'''
STUB = '''
from labs.kit import exercise


@exercise(reference="reference_of_labs:clamp")
def clamp(value: int, low: int = 0, high: int = 10) -> int:
    """Between low and high."""
    raise NotImplementedError
'''
CHECKS = """
from labs.kit import checks
from labs.kit.compare import assert_equal


@checks("clamp")
def test_inside(lab):
    assert_equal(lab.clamp(3), 3, "clamp(3)")


@checks("clamp")
def test_borders(lab):
    assert_equal(lab.clamp(-4), 0, "clamp(-4)")
    assert_equal(lab.clamp(14), 10, "clamp(14)", hint="there is an upper end too")
"""
HINTS = '[{name}.clamp]\nhints = ["Two ends.", "Compare with both.", "min and max."]\n'
WRONG = """
from labs.kit.wrong import patch, replace


def in_the_middle(subject):
    assert subject(3) == 3


WRONG = {"clamp": {
    "no_upper_end": patch("min(value, high)", "value", "forgets the upper end"),
    "no_lower_end": patch("return low", "return value", "forgets the lower end"),
    "always_three": replace(lambda value, low=0, high=10: 3, "a constant"),
}}
HAPPY = {"clamp": in_the_middle}
"""
SOLVED = STUB.replace("raise NotImplementedError", "return max(low, min(value, high))")


def pytest_addoption(parser):
    parser.addoption("--module", action="append", help="put only this module (2.3) through the gate; may be repeated")


def pytest_configure(config):
    try:
        for name in config.getoption("--module") or ():
            find_module(name, LABS)
    except LabError as e:
        raise pytest.UsageError(str(e)) from e


@dataclass
class Labs:
    """root: the labs; wrong: the planted mistakes; home: where progress is kept."""

    folder: Path
    STUB, CHECKS, HINTS, WRONG, SOLVED = STUB, CHECKS, HINTS, WRONG, SOLVED

    @property
    def root(self) -> Path:
        return self.folder / "labs"

    @property
    def wrong(self) -> Path:
        return self.folder / "wrong"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def add(
        self, path: str, stub: str = STUB, checks: str = CHECKS, hints: str | None = HINTS, wrong: str | None = WRONG
    ) -> Exercise | None:
        """A module, its files as given; its first exercise."""
        file = self.root / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stub)
        file.with_name(f"test_{file.name}").write_text(checks)
        if hints is not None:
            with file.with_name("hints.toml").open("a") as out:
                out.write(hints.format(name=file.stem))
        if wrong is not None:
            self.wrong.mkdir(exist_ok=True)
            (self.wrong / f"{path.replace('/', '_')}.py").write_text(wrong)
        module = find_module(path, self.root)
        return module.exercises[0] if module.exercises else None

    def pytest(self, *arguments: str, plugins: bool = False) -> subprocess.CompletedProcess:
        """What a learner sees of `pytest labs …`. plugins: with all that is installed, as a learner has it, but slower."""
        command = [*PYTEST, "-p", "labs.kit.plugin", "-p", "no:nbval", "-p", "no:cacheprovider", *arguments]
        here = Path(__file__).parents[2]
        environment = {**os.environ, **({} if plugins else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})}
        options = [f"--rootdir={self.folder}", f"-c={here / 'pyproject.toml'}"]
        return subprocess.run([*command, *options], capture_output=True, text=True, cwd=self.folder, env=environment, check=False)


@pytest.fixture(scope="module")
def labs_folder(tmp_path_factory):
    """Makes empty courses; the reference that their exercises name can be imported, here and in processes started here."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("references")
    (home / "reference_of_labs.py").write_text(REFERENCE)
    (home / "reference_with_fault.py").write_text(REFERENCE.replace("return low", "return low - 1"))
    patch.setenv("PYTHONPATH", str(home), prepend=os.pathsep)
    patch.syspath_prepend(str(home))
    yield lambda: Labs(tmp_path_factory.mktemp("course"))
    patch.undo()
    for name in ("reference_of_labs", "reference_with_fault"):
        sys.modules.pop(name, None)


@pytest.fixture
def labs(labs_folder, monkeypatch) -> Labs:
    """An empty course, which LABS_ROOT and LABS_HOME name."""
    course = labs_folder()
    course.root.mkdir()
    monkeypatch.setenv("LABS_ROOT", str(course.root))
    monkeypatch.setenv("LABS_HOME", str(course.home))
    return course


@pytest.fixture(scope="module")
def learner_of(tmp_path_factory):
    """learner_of("c2"): while inside, LABS_ROOT and LABS_HOME are those of one who has written own_set/c2 and has run
    `labs check c2`, which is what comes out."""
    root = LABS.parent
    ignore = shutil.ignore_patterns("__pycache__")

    @contextmanager
    def learner(series: str):
        home, before = tmp_path_factory.mktemp("learner"), set(sys.modules)
        mine = home / "labs" / series
        shutil.copytree(LABS / series, mine, ignore=ignore)
        shutil.copytree(Path(__file__).parent / "own_set" / series, mine, dirs_exist_ok=True, ignore=ignore)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LABS_ROOT", str(home / "labs"))
            patch.setenv("LABS_HOME", str(home / "state"))
            patch.setenv("PYTHONPATH", str(root))
            files = sorted(str(file) for file in mine.glob("test_*.py"))
            quick = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            command = [*PYTEST, *files, *PLUGINS, "-p", "no:cacheprovider", f"--rootdir={home}", f"-c={root / 'pyproject.toml'}"]
            yield subprocess.run(command, capture_output=True, text=True, cwd=home, env=quick, timeout=300, check=False)
        for name in set(sys.modules) - before:  # the answers were imported under the names of the repository's own labs
            if name.startswith(f"labs.{series}"):
                del sys.modules[name]

    return learner
