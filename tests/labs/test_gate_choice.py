"""The gate on one module, for who writes it."""

import subprocess
from pathlib import Path

import pytest

from labs.kit.catalog import ROOT
from labs.kit.check import PYTEST
from labs.kit.gate import run_gate

GATE = Path(__file__).with_name("test_gate.py")


def collected(*options):
    command = [*PYTEST, "-q", "-p", "no:cacheprovider", f"-c={ROOT / 'pyproject.toml'}", "--collect-only", str(GATE), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_only_the_module_that_is_named_is_judged(labs):
    exercise = labs.add("c1/m01_wanted", stub=labs.STUB)
    labs.add("c2/m01_other", wrong=None)  # a fault of its own
    assert set(run_gate(labs.wrong, root=labs.root)) == {exercise.key, "c2/m01_other:clamp"}
    assert set(run_gate(labs.wrong, root=labs.root, only=[exercise.module])) == {exercise.key}


@pytest.mark.parametrize("names", [["start"], ["2.3", "c1/m01_latency_vs_throughput"]])
def test_modules_are_named_on_the_command_line(names):
    done = collected(*(f"--module={name}" for name in names))
    keys = [line.split("[")[1].split(":")[0] for line in done.stdout.splitlines() if "[" in line]
    wanted = {"start": "start/", "2.3": "c2/m03_"}
    assert done.returncode == 0 and keys, done.stdout + done.stderr
    assert {name for name in names if any(key.startswith(wanted.get(name, name)) for key in keys)} == set(names)
    assert all(key.startswith(tuple(wanted.get(name, name) for name in names)) for key in keys)


def test_an_unknown_module_is_one_line():
    done = collected("--module=9.9")
    assert done.returncode != 0 and not done.stdout.strip()
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("ERROR: there is no lab '9.9'; did you mean ")
