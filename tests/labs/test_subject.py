"""Subjects are loaded as their files are now, with one mistake or none."""

import pytest

from labs.kit import blobs, stubs
from labs.kit.catalog import LABS, find_module
from labs.kit.errors import LabError
from labs.kit.hints import hints_of
from labs.kit.subject import load_mine, load_reference, load_variant
from labs.kit.time_limit import TimeLimit, time_limit


def test_an_edit_within_the_same_second_counts(labs):
    exercise = labs.add("c1/m01_a", stub=labs.SOLVED)
    for number in (1, 2, 3):
        exercise.file.write_text(labs.STUB.replace("raise NotImplementedError", f"return {number}"))
        assert load_mine(exercise)(0) == number


def test_a_variant_differs_in_one_place_and_leaves_the_reference_alone(labs):
    exercise = labs.add("c1/m01_a")
    assert load_variant(exercise, "return low", "return high")(-5) == 10
    assert load_reference(exercise)(-5) == 0
    for old in ("nowhere", "low"):
        with pytest.raises(LabError, match=r"occurs \d+ times"):
            load_variant(exercise, old, "x")


def test_the_binding_stays_on_the_object(labs):
    bound = load_mine(labs.add("c1/m01_a")).__exercise__
    assert (bound.reference, bound.part) == ("reference_of_labs:clamp", None)


def test_a_name_that_is_gone_is_told(labs):
    exercise = labs.add("c1/m01_a")
    exercise.file.write_text("x = 1\n")
    with pytest.raises(LabError, match="labs reset"):
        load_mine(exercise)


def test_hints_are_in_order_and_a_damaged_file_is_told(labs):
    exercise = labs.add("c1/m01_a")
    assert hints_of(exercise) == ("Two ends.", "Compare with both.", "min and max.")
    assert hints_of(labs.add("c2/m01_a", hints=None)) == ()
    exercise.hints_file.write_text("[")
    with pytest.raises(LabError, match=r"c1/hints\.toml"):
        hints_of(exercise)


def test_a_time_limit_stops_python_and_cannot_be_swallowed():
    def stubborn():
        while True:
            try:
                sum(range(100))
            except Exception:  # noqa: BLE001  as a learner might
                continue

    with pytest.raises(TimeLimit, match=r"0\.2 s"), time_limit(0.2):
        stubborn()
    with time_limit(60):
        pass


def test_blob_ids_are_git_s(tmp_path):
    file = tmp_path / "hello"
    file.write_bytes(b"hello\n")
    assert blobs.blob_id(file) == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    file.write_bytes(b"hello\r\n")
    assert blobs.blob_id(file) == "ce013625030ba8dba906f756967f9e9ca394464a", "checked out with Windows line ends"


def test_stubs_are_recorded_anew_and_a_solution_keeps_its_stub_s_id(labs, monkeypatch, tmp_path, capsys):
    file = tmp_path / "stubs.json"
    for module in (blobs, stubs):
        monkeypatch.setattr(module, "STUBS", file)
    monkeypatch.setattr(stubs, "recorded", lambda: blobs.recorded(file))
    exercise = labs.add("c1/m01_a")
    assert stubs.main(["--check"]) == 1 and not file.exists() and "c1/m01_a" in capsys.readouterr().err
    assert stubs.main([]) == 0 and stubs.main(["--check"]) == 0
    assert blobs.is_pristine(find_module("1.1"), file)
    pristine = file.read_text()
    exercise.file.write_text(labs.SOLVED)
    assert stubs.main([]) == 0 and file.read_text() == pristine
    assert not blobs.is_pristine(find_module("1.1"), file)
    labs.add("c1/m02_b", stub=labs.SOLVED)
    assert stubs.main([]) == 1, "a solution may not be recorded as a stub"


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_damaged_list_of_stubs_is_one_line(tmp_path, content):
    file = tmp_path / "stubs.json"
    file.write_bytes(content)
    with pytest.raises(LabError, match=r"`git restore labs/kit/stubs\.json`"):
        blobs.recorded(file)
    assert blobs.recorded(tmp_path / "none") == {}


def test_the_repository_s_stubs_are_recorded():
    assert set(blobs.recorded()) == {f"{file.parent.name}/{file.stem}" for file in LABS.glob("*/m[0-9][0-9]_*.py")}
