"""What a learner sees of status, next, check, hint, solution and open."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs.kit.catalog import LABS, find_modules
from shared.course import load_course

ROOT = Path(__file__).parents[3]


def test_every_lab_is_a_module_of_the_course():
    known = {module.lab: module.id for module in load_course().modules}
    for lab in find_modules(LABS):
        assert known.get(lab.path) == lab.id, f"labs/{lab.path}.py is not in series/modules.toml"


def bar(answer, start):
    return next(line for line in (" ".join(line.split()) for line in answer.out.splitlines()) if line.startswith(start))


def test_a_fresh_clone_shows_the_course_and_the_first_step(labs, clone):
    answer = labs("status")
    assert answer.code == 0
    assert bar(answer, "C2") == "C2 Anatomy of LLM inference ··□····□· 0/2"
    assert "3 of 67 modules so far; the others are planned." in answer.out
    assert "next  The map" in answer.out and "ridge_point in labs/start/m00_the_map.py, line 7" in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 60
    assert "kv_bytes" not in answer.out  # not begun, and so not worth a line
    assert "kv_bytes  not attempted" in labs("status", "--all").out


def test_status_shows_what_was_begun_and_what_passes(labs, clone):
    clone.solve("c2/m03_kv_cache")
    clone.note("2.3", False, ("test_a", "test_b"))
    clone.solve("start/m00_the_map")
    clone.note("start", True)
    answer = labs("status")
    assert bar(answer, "Map") == "Map Start, capstone, checklist ■·· 1/1"
    assert bar(answer, "C2") == "C2 Anatomy of LLM inference ··◧····□· 0/2"
    assert "◧ 2.3 KV cache\n    kv_bytes  attempted, 2 checks failed" in answer.out
    assert "next  2.3 KV cache" in answer.out


def test_what_was_begun_comes_before_what_was_not(labs, clone):
    clone.solve("c2/m08_paged_kv")
    assert "next  2.8 Paged KV cache" in labs("next").out


def test_a_pass_is_gone_when_the_file_changes(labs, clone):
    clone.solve("c2/m03_kv_cache")
    clone.note("2.3", True)
    assert "■" in labs("status", "c2").out
    clone.replace("labs/c2/m03_kv_cache.py", "return 42", "return 43")
    assert "kv_bytes  changed since it passed: labs check 2.3" in labs("status", "c2").out
    assert "◧ 2.3 KV cache\n    kv_bytes  changed since it passed: labs check 2.3" in labs("status").out
    next_ = labs("next").out
    assert "next  2.3 KV cache" in next_ and "check labs check 2.3   (changed since it passed)" in next_
    assert "write" not in next_ and "stuck" not in next_
    answer = labs("hint", "2.3")
    assert answer.code == 0 and "Look at" not in answer.out
    assert answer.out == "2.3: what you wrote changed since it passed; `labs check 2.3` tells whether it still does\n"
    assert "1 of 3  Look at [brackets]." in labs("hint", "2.3", "kv_bytes").out, "asked for by name"
    assert "kv_bytes: changed since it passed; `labs check 2.3` first, or --give-up" in labs("solution", "2.3").err
    clone.note("2.3", False, ("test_a",))
    assert "kv_bytes  attempted, 1 check failed" in labs("status").out


def test_what_changed_comes_after_what_never_passed(labs, clone):
    """Writing the second exercise of a file changes the file of the first."""
    clone.solve("c2/m03_kv_cache")
    clone.note("2.3", True)
    second = '\n\n@exercise("shared.environment:capture")\ndef second():\n    raise NotImplementedError\n'
    clone.write("labs/c2/m03_kv_cache.py", clone.read("labs/c2/m03_kv_cache.py") + second)
    clone.write("labs/c2/hints.toml", '[m03_kv_cache.second]\nhints = ["Of the second.", "b", "c"]\n')
    assert "Of the second." in labs("hint", "2.3").out
    assert "write second in labs/c2/m03_kv_cache.py" in labs("next").out
    clone.replace("labs/c2/m03_kv_cache.py", "\n    raise NotImplementedError", "\n    return 1")
    assert "write second in labs/c2/m03_kv_cache.py" in labs("next").out, "begun, and never passed"


def test_hints_end_where_all_passes(labs, clone):
    clone.solve("start/m00_the_map")
    clone.note("start", True)
    assert labs("hint", "start").out.startswith("start: all pass; `labs solution start` shows the engine's own code")
    for _ in range(3):
        labs("hint", "start", "ridge_point")
    named = " ".join(labs("hint", "start", "ridge_point").out.split())
    assert "`labs solution start ridge_point` shows the reference" in named and "--give-up" not in named


def test_without_a_command_it_shows_where_you_are(labs, clone):
    bare = labs()
    assert bare.code == 0 and bare.out == labs("status").out


def test_the_first_row_has_a_name_that_status_takes(labs, clone):
    for name in ("map", "start", "Capstone"):
        answer = labs("status", name)
        assert answer.out.startswith("Start, capstone, checklist\n") and "ridge_point  not attempted" in answer.out
        assert "KV cache" not in answer.out


def test_a_series_lists_planned_modules_too(labs, clone):
    for name in ("c2", "2", "C2", "c2_anatomy"):
        answer = labs("status", name)
        assert "□ 2.3 KV cache\n    kv_bytes  not attempted" in answer.out and "· 2.1 One token" in answer.out
    answer = labs("status", "c9")
    assert answer.code == 1 and answer.err == "error: there is no series 'c9'; there are c1, c2, c3, c4, c5, c6, c7, c8\n"


def test_all_passing_and_none_there(labs, clone):
    for id, path in (("start", "start/m00_the_map"), ("2.3", "c2/m03_kv_cache"), ("2.8", "c2/m08_paged_kv")):
        clone.solve(path)
        clone.note(id, True)
    assert "Everything that is there passes." in labs("next").out
    assert "every exercise there is passes" in labs("check").err
    for file in (clone.root / "labs").glob("*/m*.py"):
        file.unlink()
    assert "There are no exercises in this copy" in labs("status").out
    assert "there are no exercises in this copy" in labs("hint").err


def test_a_file_that_is_not_python_is_named_with_its_line(labs, clone):
    clone.write("labs/c2/m03_kv_cache.py", "def broken(:\n")
    answer = labs("next")
    assert "mend  labs/c2/m03_kv_cache.py, line 1: invalid syntax" in answer.out
    answer = labs("hint", "2.3")
    assert answer.code == 1 and "line 1: invalid syntax; mend that first, or `labs reset 2.3`" in answer.err
    clone.write("labs/c2/m03_kv_cache.py", "x = 1\n")
    assert "holds no @exercise any more; `labs reset 2.3`" in labs("hint", "2.3").err


def test_a_lab_that_the_course_does_not_know_is_said(labs, clone):
    clone.write("labs/c2/m77_mine.py", "x = 1\n")
    assert "labs/c2/m77_mine.py is not a module of the course" in " ".join(labs("status").out.split())


@pytest.fixture
def checked(monkeypatch):
    """What run_checks was called with; it answers pytest's status for a failure."""
    calls = []

    def run_checks(modules, solutions=False):
        calls.append(([module.id for module in modules], solutions))
        return 5 if solutions else 0

    monkeypatch.setattr("labs.kit.check.run_checks", run_checks)
    return calls


def test_check_takes_ids_paths_and_nothing(labs, clone, checked, monkeypatch):
    assert labs("check", "2.3").code == 0
    labs("check", "c2/m08_paged_kv", "labs/start/m00_the_map.py")
    monkeypatch.chdir(clone.root / "labs" / "c2")
    labs("check", "m03_kv_cache.py")
    labs("check", "test_m03_kv_cache.py")
    labs("check")
    assert [ids for ids, _ in checked] == [["2.3"], ["2.8", "start"], ["2.3"], ["2.3"], ["start"]]


def test_check_takes_a_series(labs, clone, checked, monkeypatch):
    for name in ("c2", "C2", "labs/c2", "./labs/c2/", "c2_anatomy"):
        labs("check", name)
    monkeypatch.chdir(clone.root / "labs" / "c2")
    labs("check", ".")
    labs("check", "..")
    assert [ids for ids, _ in checked] == 6 * [["2.3", "2.8"]] + [["start", "2.3", "2.8"]]
    answer = labs("check", "c3")
    assert answer.code == 1 and "c3 Dissecting vLLM is planned: it has no exercises yet" in answer.err


def test_check_fails_with_one_whatever_pytest_says(labs, clone, checked):
    assert labs("check", "2.3", "--solutions").code == 1
    assert checked == [(["2.3"], True)]


@pytest.mark.parametrize("command", ["check", "watch", "hint", "solution", "reset"])
def test_planned_and_unknown_modules_are_told_apart(labs, clone, command):
    answer = labs(command, "2.4")
    assert answer.code == 1
    assert answer.err == (
        "error: 2.4 Attention variants is planned: it has no exercises yet; `labs status` lists what is there\n"
    )
    answer = labs(command, "2.33")
    assert answer.code == 1 and "there is no lab '2.33'; did you mean 2.3" in answer.err


def test_wrong_usage_is_two(labs, clone):
    assert labs("hint", "2.3", "--loudly").code == 2
    assert labs("solution").code == 2


def test_each_hint_gives_one_more(labs, clone):
    first, second, third, again = (labs("hint", "2.3").out for _ in range(4))
    assert "1 of 3  Look at [brackets]." in first and "Look closer" not in first
    assert "2 of 3  Look closer." in second and "Nearly" not in second
    assert "3 of 3  Nearly the answer." in third and "That is all" not in third
    assert "1 of 3" in again and "3 of 3" in again and "labs solution 2.3 kv_bytes --give-up" in " ".join(again.split())


def test_hints_are_for_the_exercise_named_or_the_first_that_does_not_pass(labs, clone):
    clone.write(
        "labs/c2/m03_kv_cache.py",
        clone.read("labs/c2/m03_kv_cache.py")
        + '\n\n@exercise("shared.environment:capture")\ndef second():\n    raise NotImplementedError\n',
    )
    clone.write(
        "labs/c2/hints.toml", clone.read("labs/c2/hints.toml") + '[m03_kv_cache.second]\nhints = ["Of the second.", "b", "c"]\n'
    )
    assert "Of the second." in labs("hint", "2.3", "second").out
    assert "2.3 kv_bytes" in labs("hint", "2.3").out
    answer = labs("hint", "2.3", "third")
    assert answer.code == 1 and answer.err == "error: 2.3 has no exercise 'third'; it has kv_bytes, second\n"
    clone.write("labs/c2/hints.toml", "")
    assert "there are no hints for kv_bytes" in labs("hint", "2.3").err


def test_the_solution_is_shown_after_passing_or_on_request(labs, clone):
    answer = labs("solution", "2.3")
    assert answer.code == 1 and "2.3 kv_bytes: not passing yet; `labs hint 2.3` helps" in answer.err and answer.out == ""
    given = labs("solution", "2.3", "--give-up").out
    assert given.startswith("# shared/environment.py:") and "\ndef memory_bytes(" in given and "usable_cores" not in given
    clone.solve()
    clone.note("2.3", True)
    assert labs("solution", "2.3").out == given == labs("solution", "2.3", "kv_bytes").out


def test_the_solution_of_a_broken_file_needs_the_file_or_nothing_at_all(labs, clone):
    clone.write("labs/c2/m03_kv_cache.py", "def broken(:\n")
    for flags in ([], ["--give-up"]):
        answer = labs("solution", "2.3", *flags)
        assert answer.code == 1 and "line 1: invalid syntax" in answer.err


@pytest.fixture
def started(monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("labs.kit.cli.app.subprocess.run", run)
    return commands


def test_open_starts_jupyter_on_the_notebook(labs, clone, started):
    clone.write("series/c2_anatomy/03_kv_cache.ipynb", "{}")
    assert labs("open", "2.3").code == 0
    assert started == [[sys.executable, "-m", "jupyterlab", str(clone.root / "series/c2_anatomy/03_kv_cache.ipynb")]]
    answer = labs("open", "2.4")
    assert answer.code == 1 and "2.4 Attention variants has no notebook yet" in answer.err
    assert "did you mean 2.3" in labs("open", "2.33").err


def test_a_list_of_modules_that_is_damaged_is_one_line(labs, clone, monkeypatch):
    monkeypatch.setattr("shared.course.FILE", clone.root / "nowhere.toml")
    monkeypatch.setattr("labs.kit.cli.overview.load_course", lambda: load_course(clone.root / "nowhere.toml"))
    answer = labs("status")
    assert answer.code == 1 and answer.err.startswith("error: cannot read") and answer.err.count("\n") == 1


def test_status_next_and_hint_work_without_torch_and_colour_from_any_folder(clone, tmp_path):
    block = "import sys; sys.modules['torch'] = sys.modules['pytest'] = sys.modules['numpy'] = None; "
    code = block + "sys.argv = ['labs', *sys.argv[1:]]; from labs.kit.cli import main; main()"
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm", "LANG": "C"}
    for command in (["status"], ["next"], ["hint", "2.3"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" and not re.search(r"\x1b\[(?:\d;)*3[0-7]m", done.stdout)
