"""Bringing an exercise back, with real git repositories."""

import io
import subprocess

import pytest

FILE = "labs/c2/m03_kv_cache.py"


def backups(folder):
    return sorted((folder.root / ".labs" / "backup").glob(f"*/{FILE}"))


def test_the_original_comes_back_and_the_learners_is_kept(labs, learner):
    original, mine = learner.read(FILE), learner.solve()
    answer = labs("reset", "2.3", "--yes")
    assert answer.code == 0 and "is the original again; yours is in " in answer.out
    assert learner.read(FILE) == original
    (kept,) = backups(learner)
    assert kept.read_text() == mine and str(kept.parents[2]) in answer.out
    assert learner.git("status", "--porcelain") == ""


def test_it_comes_back_although_the_solution_was_committed(labs, learner):
    original = learner.read(FILE)
    learner.solve()
    learner.commit("mine")
    assert labs("reset", "2.3", "-y").code == 0
    assert learner.read(FILE) == original


def test_two_resets_in_one_second_keep_both(labs, learner):
    for answer in ("return 1", "return 2"):
        learner.solve(answer=answer)
        labs("reset", "2.3", "--yes")
    assert len(backups(learner)) == 2


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_it_asks_first(labs, learner, monkeypatch, typed):
    mine = learner.solve()
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    answer = labs("reset", "2.3")
    assert answer.code == 1 and "Replace labs/c2/m03_kv_cache.py by the original?" in answer.out
    assert learner.read(FILE) == mine and backups(learner) == []
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert labs("reset", "2.3").code == 0
    assert learner.read(FILE) != mine


def test_a_stub_that_is_as_it_was_is_left_alone(labs, learner):
    answer = labs("reset", "2.3")
    assert answer.code == 0 and "there is nothing to reset" in answer.out
    assert backups(learner) == []


def test_a_broken_file_can_be_reset(labs, learner):
    original = learner.read(FILE)
    learner.write(FILE, "def broken(:\n")
    assert labs("reset", "2.3", "--yes").code == 0
    assert learner.read(FILE) == original


def test_without_git_nothing_is_touched_and_the_way_out_is_said(labs, clone, monkeypatch):
    mine = clone.solve()
    answer = labs("reset", "2.3", "--yes")
    assert answer.code == 1 and "is no git clone (a ZIP download?)" in answer.err and "clone the project" in answer.err
    monkeypatch.setenv("PATH", "")
    answer = labs("reset", "2.3", "--yes")
    assert answer.code == 1 and "install git" in answer.err
    assert clone.read(FILE) == mine


def test_a_copy_inside_another_repository_is_no_clone(labs, clone):
    subprocess.run(["git", "init", "-q", str(clone.root.parent)], check=True)
    clone.solve()
    assert "is no git clone" in labs("reset", "2.3", "--yes").err


def test_an_original_that_the_clone_does_not_have(labs, learner):
    mine = learner.solve()
    learner.replace("labs/kit/stubs.json", '"c2/m03_kv_cache": "', '"c2/m03_kv_cache": "0000')
    answer = labs("reset", "2.3", "--yes")
    assert answer.code == 1 and "not in this clone's history" in answer.err
    learner.write("labs/kit/stubs.json", "{}")
    assert "has no original on record" in labs("reset", "2.3", "--yes").err
    learner.write("labs/kit/stubs.json", "{")
    assert "`git restore labs/kit/stubs.json` brings it back" in labs("reset", "2.3", "--yes").err
    assert learner.read(FILE) == mine


def test_no_backup_no_reset(labs, learner):
    mine = learner.solve()
    learner.write(".labs/backup", "in the way")
    answer = labs("reset", "2.3", "--yes")
    assert answer.code == 1 and "no backup could be made" in answer.err and "nothing was changed" in answer.err
    assert learner.read(FILE) == mine


def test_a_repository_named_by_the_environment_is_not_used(labs, learner, monkeypatch):
    """As in a shell that git started: a hook, `git rebase --exec`."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    original = learner.read(FILE)
    learner.solve()
    assert labs("reset", "2.3", "--yes").code == 0
    assert learner.read(FILE) == original
