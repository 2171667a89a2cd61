"""The three-way gate over every exercise there is: found by itself, so that none can be left out."""

from pathlib import Path

import pytest

from labs.kit.catalog import LABS, find_modules
from labs.kit.gate import run_gate

MODULES = find_modules(LABS)
EVERY = [exercise.key for module in MODULES for exercise in module.exercises]
EVERY += [module.path for module in MODULES if not module.exercises]


@pytest.fixture(scope="module")
def problems():
    return run_gate(Path(__file__).parent / "wrong", root=LABS)


def test_there_are_exercises():
    assert EVERY


@pytest.mark.parametrize("key", EVERY)
def test_stub_fails_reference_passes_mistakes_are_noticed(problems, key):
    assert problems[key] == [], "\n".join(["", *problems[key]])


def test_every_file_of_mistakes_belongs_to_a_module():
    files = {path.stem for path in (Path(__file__).parent / "wrong").glob("*.py")}
    assert files <= {module.path.replace("/", "_") for module in MODULES}
