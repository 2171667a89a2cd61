"""What a learner sees of `pytest labs`, and what is remembered of it."""

import os

import pytest

from labs.kit.catalog import LABS, find_module
from labs.kit.check import run_checks
from labs.kit.errors import LabError
from labs.kit.progress import Progress
from labs.kit.state import State, state_of

TWO_METHODS = """
from labs.kit import exercise


@exercise(reference="reference_of_labs:clamp")
class clamp:
    def __new__(cls, value, low=0, high=10):
        return cls.lower(cls.upper(value, high), low)

    @classmethod
    def lower(cls, value, low):
        return max(value, low)

    @classmethod
    def upper(cls, value, high):
        raise NotImplementedError
"""


def test_a_fresh_clone_is_told_calmly(labs):
    labs.add("c2/m03_kv_cache", checks="import a_heavy_package_that_is_never_imported\n" + labs.CHECKS)
    labs.add("start/m00_the_map")
    done = labs.pytest("labs", plugins=True)
    assert done.returncode == 1
    start, two_three, total = [line for line in done.stdout.splitlines() if line]
    assert start == "start The map · clamp: not attempted, open labs/start/m00_the_map.py, hint: labs hint start"
    assert two_three == "2.3 KV cache · clamp: not attempted, open labs/c2/m03_kv_cache.py, hint: labs hint 2.3"
    assert total == "2 exercises: 2 not attempted"
    assert not labs.home.exists(), "nothing to remember"


def test_a_pass_is_remembered(labs):
    exercise = labs.add("c2/m03_kv_cache", stub=labs.SOLVED.replace('clamp")', 'clamp", part="kv.contiguous")'))
    done = labs.pytest("labs/c2/test_m03_kv_cache.py")
    assert done.returncode == 0 and "2.3 KV cache · clamp: passing, 2 checks" in done.stdout
    assert "minillm generate --mine=kv.contiguous --kv contiguous --prompt" in done.stdout and "labs next" in done.stdout
    assert state_of(exercise) is State.PASSING


@pytest.mark.parametrize("selection", [["labs", "-k", "inside"], ["labs/c2/test_m03_a.py::test_inside"]])
def test_a_part_of_the_checks_is_no_pass(labs, selection):
    exercise = labs.add("c2/m03_a", stub=labs.SOLVED)
    done = labs.pytest(*selection)
    assert done.returncode == 0 and "1 of 2 checks ran and pass" in done.stdout
    assert state_of(exercise) is State.ATTEMPTED


def test_one_failure_in_a_part_undoes_a_pass(labs):
    exercise = labs.add("c2/m03_a", stub=labs.SOLVED.replace("max(low, min(value, high))", "max(low, value)"))
    progress = Progress.load()
    progress.record(exercise, True, [])
    progress.save()
    assert labs.pytest("labs", "-k", "borders").returncode == 1
    assert state_of(exercise) is State.ATTEMPTED
    assert Progress.load().failed[exercise.key] == ["test_borders"]


def test_a_failure_shows_the_message_and_nothing_of_pytest(labs):
    labs.add(
        "c2/m03_a",
        stub=labs.SOLVED.replace("return max", "print('seen', value)\n    return max").replace("min(value, high)", "value"),
    )
    done = labs.pytest("labs")
    assert done.returncode == 1
    for line in (
        "clamp: attempted, 1 of 2 checks pass", "clamp(14): not as expected", "expected 10", "got      14",
        "there is an upper end too",
        "seen 14", "file: labs/c2/m03_a.py, hint: labs hint 2.3",
    ):  # fmt: skip
        assert line in done.stdout, done.stdout
    assert "Traceback" not in done.stdout and "assert_equal(" not in done.stdout and "FAILURES" not in done.stdout


def test_of_many_failures_three_more_are_named_and_the_others_counted(labs):
    more = "".join(f'\n\n@checks("clamp")\ndef test_number_{n}(lab):\n    assert False, "no"\n' for n in range(6))
    labs.add("c2/m03_a", stub=labs.SOLVED, checks=labs.CHECKS + more)
    assert "  then: number 1; number 2; number 3; and 2 more\n" in labs.pytest("labs").stdout


def test_an_exception_shows_the_learner_s_own_lines(labs):
    stub = (
        labs.SOLVED.replace("return max(low, min(value, high))", "return helper(value)")
        + "\n\ndef helper(x):\n    return x.size\n"
    )
    labs.add("c2/m03_a", stub=stub)
    out = labs.pytest("labs").stdout
    assert "your code stopped with AttributeError: 'int' object has no attribute 'size'" in out
    frames = [line.strip() for line in out.splitlines() if line.strip().startswith("at ")]
    assert [frame.split(" in ")[1] for frame in frames] == ["clamp: return helper(value)", "helper: return x.size"]


def test_a_method_that_is_not_written_is_named(labs):
    labs.add("c2/m03_a", stub=TWO_METHODS)
    out = labs.pytest("labs").stdout
    assert "clamp.upper is not written yet" in out and "not written yet: upper" in out


@pytest.mark.parametrize("old, new, says", [
    ("from labs.kit", "def f(:\nfrom labs.kit", "labs/c2/m03_a.py, line 2: invalid syntax"),
    ("return max", "undefined\n\n\nundefined\n", "labs/c2/m03_a.py, line 11: NameError: name 'undefined' is not defined"),
])  # fmt: skip
def test_a_file_that_cannot_be_imported_is_one_problem(labs, old, new, says):
    labs.add("c2/m03_a", stub=labs.SOLVED.replace(old, new, 1))
    done = labs.pytest("labs")
    assert done.returncode == 1 and done.stdout.count(says) == 1, done.stdout


def test_a_loop_that_never_ends_is_stopped_once(labs, monkeypatch):
    loop = f"open({str(labs.folder / 'calls')!r}, 'a').write('called ')\n    while True:\n        value = value\n    return max"
    labs.add("c2/m03_a", stub=labs.SOLVED.replace("return max", loop))
    (labs.folder / "hurry.py").write_text("from labs.kit import plugin\nplugin.SECONDS_PER_CHECK = 0.3\n")
    monkeypatch.setenv("PYTHONPATH", str(labs.folder), prepend=os.pathsep)
    done = labs.pytest("labs", "-p", "hurry")
    assert done.returncode == 1 and done.stdout.count("took more than 0.3 s: does a loop never end?") == 1, done.stdout
    assert (labs.folder / "calls").read_text() == "called ", "the second check would only have taken as long"


def test_of_an_assertion_only_its_message_is_shown(labs):
    checks = labs.CHECKS.replace('assert_equal(lab.clamp(3), 3, "clamp(3)")', 'assert lab.clamp(3) == 4, "three should be four"')
    labs.add("c2/m03_a", stub=labs.SOLVED, checks=checks)
    out = labs.pytest("labs").stdout
    assert "    three should be four\n" in out and "assert" not in out


def test_solutions_are_checked_and_nothing_is_remembered(labs):
    exercise = labs.add("c2/m03_a")
    done = labs.pytest("labs", "--solutions")
    assert done.returncode == 0 and "the reference passes 2 checks" in done.stdout
    assert state_of(exercise) is State.NOT_ATTEMPTED and not labs.home.exists()
    labs.add("c2/m04_b", stub=labs.STUB.replace("reference_of_labs", "reference_with_fault"))
    done = labs.pytest("labs", "--solutions")
    assert done.returncode == 1 and "the reference fails, 1 of 2 checks pass" in done.stdout


HIDES_TORCH = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
"""


def test_without_torch_it_says_what_to_do(labs, monkeypatch):
    (labs.folder / "hides_torch.py").write_text(HIDES_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(labs.folder), prepend=os.pathsep)
    done = labs.pytest(str(LABS / "c2"), "-p", "hides_torch")
    assert done.returncode == 4 and "ERROR: this Python has no torch: run `make setup`" in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_what_is_not_marked_fails_aloud(labs):
    labs.add("c2/m03_a", stub=labs.SOLVED, checks=labs.CHECKS + "\n\ndef test_unmarked(lab):\n    pass\n")
    done = labs.pytest("labs")
    assert done.returncode == 1 and "mark this check with the exercise it belongs to" in done.stdout


def test_other_tests_beside_the_labs_get_pytest_s_own_report(labs):
    labs.add("c2/m03_a")
    (labs.folder / "test_other.py").write_text("def test_other():\n    pass\n")
    done = labs.pytest(".")
    assert done.returncode == 1 and "1 passed" in done.stdout and "clamp is not attempted" in done.stdout


def test_workers_agree(labs):
    exercise = labs.add("c2/m03_a", stub=labs.SOLVED)
    done = labs.pytest("labs", "-p", "xdist.plugin", "-n", "1")
    assert done.returncode == 0 and "passing, 2 checks" in done.stdout, done.stdout
    assert state_of(exercise) is State.PASSING


def test_run_checks_is_the_same(labs, capfd):
    labs.add("c2/m03_a", stub=labs.SOLVED)
    assert run_checks([find_module("2.3")]) == 0 and run_checks([find_module("2.3")], solutions=True) == 0
    assert "the reference passes" in capfd.readouterr().out
    find_module("2.3").checks.unlink()
    with pytest.raises(LabError, match="git restore"):
        run_checks([find_module("2.3")])
