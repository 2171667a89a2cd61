"""A pass is remembered as long as what passed is what is there."""

import os

import pytest

from labs.kit.errors import LabError
from labs.kit.progress import Progress
from labs.kit.state import State, state_of


@pytest.fixture
def solved(labs):
    return labs.add("c2/m03_a", stub=labs.SOLVED)


def remember(exercise, passed=True, failed=()):
    progress = Progress.load()
    progress.record(exercise, passed, list(failed))
    progress.save()


def test_states(labs, solved):
    assert state_of(labs.add("c2/m04_b")) is State.NOT_ATTEMPTED
    assert state_of(solved) is State.ATTEMPTED
    remember(solved)
    assert state_of(solved) is State.PASSING
    remember(solved, passed=False, failed=["test_inside"])
    assert state_of(solved) is State.ATTEMPTED and Progress.load().failed == {solved.key: ["test_inside"]}
    solved.file.write_text("def broken(:\n")
    assert state_of(solved) is State.BROKEN


def test_a_pass_is_forgotten_when_the_file_the_checks_or_the_reference_changes(labs, solved, monkeypatch):
    reference = labs.folder / "reference.py"
    reference.write_text("clamp = 1")
    monkeypatch.setattr("labs.kit.progress.reference_file", lambda exercise: reference)
    for file in (solved.file, solved.checks_file, reference):
        remember(solved)
        assert state_of(solved) is State.PASSING
        before = file.read_text()
        file.write_text(before + "\n# edited\n")
        assert state_of(solved) is State.CHANGED
        file.write_text(before)
        assert state_of(solved) is State.PASSING, "as it was when it passed"


def test_hints_are_counted(solved):
    progress = Progress.load()
    assert progress.hints_shown(solved.key) == 0
    assert [progress.show_hint(solved.key) for _ in range(2)] == [1, 2]
    progress.save()
    assert Progress.load().hints_shown(solved.key) == 2


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"version": 1}', '{"version": 99, "passed": {}, "failed": {}, "hints": {}}', "\xff"]
)
def test_a_damaged_file_is_set_aside(labs, solved, capsys, content):
    labs.home.mkdir()
    file = labs.home / "progress.json"
    file.write_bytes(content.encode("latin-1"))
    progress = Progress.load()
    assert (progress.digests, progress.failed, progress.hints) == ({}, {}, {})
    assert not file.exists() and file.with_name("progress.json.broken").read_bytes() == content.encode("latin-1")
    assert "progress.json.broken" in capsys.readouterr().err
    remember(solved)
    assert Progress.load().passed(solved)


def test_the_file_is_replaced_whole(labs, solved, monkeypatch):
    remember(solved)
    before = (labs.home / "progress.json").read_bytes()

    def interrupted(source, target):
        raise KeyboardInterrupt

    progress = Progress.load()
    progress.record(solved, False, [])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            progress.save()
    assert (labs.home / "progress.json").read_bytes() == before
    assert os.listdir(labs.home) == ["progress.json"]


def test_a_folder_that_cannot_be_written_is_told(labs, solved, monkeypatch):
    labs.home.write_text("a file where the folder should be")
    with pytest.raises(LabError, match="LABS_HOME"):
        remember(solved)
