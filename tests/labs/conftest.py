"""A course of its own for the tests of the machinery: labs, their reference, and planted mistakes, in a temporary folder."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from labs.kit.catalog import Exercise, find_module
from labs.kit.check import PYTEST

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
