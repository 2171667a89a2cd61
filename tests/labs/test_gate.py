"""The three-way gate over every exercise there is: found by itself, so that none can be left out.

While you write a module: `pytest tests/labs/test_gate.py --module 2.3`.
"""

from pathlib import Path

import pytest

from labs.kit.catalog import LABS, find_module, find_modules
from labs.kit.gate import run_gate

MODULES = find_modules(LABS)


def pytest_generate_tests(metafunc):
    if "key" in metafunc.fixturenames:
        modules = chosen(metafunc.config)
        keys = [exercise.key for module in modules for exercise in module.exercises]
        metafunc.parametrize("key", keys + [module.path for module in modules if not module.exercises])


def chosen(config):
    asked = config.getoption("--module", default=None)
    return [find_module(name, LABS) for name in asked] if asked else MODULES


@pytest.fixture(scope="module")
def problems(request):
    return run_gate(Path(__file__).parent / "wrong", root=LABS, only=[module.path for module in chosen(request.config)])


def test_there_are_exercises():
    assert any(module.exercises for module in MODULES)


def test_stub_fails_reference_passes_mistakes_are_noticed(problems, key):
    assert problems[key] == [], "\n".join(["", *problems[key]])


def test_every_file_of_mistakes_belongs_to_a_module():
    files = {path.stem for path in (Path(__file__).parent / "wrong").glob("*.py")}
    assert files <= {module.path.replace("/", "_") for module in MODULES}
