"""Every way to get an exercise wrong is caught by the gate: one course full of faults, judged in one run."""

import json

import pytest

from labs.kit.blobs import blob_id
from labs.kit.catalog import find_modules
from labs.kit.gate import run_gate

WHOLE = object()  # the file as a whole
IN_A_CLASS = "\n\nclass TestMore:\n    def test_more(self):\n        pass\n\n\n@checks"
EMPTY_CHECK = 'from labs.kit import checks\n\n\n@checks("clamp")\ndef test_nothing(lab):\n    pass\n'
SILENT_CHECK = EMPTY_CHECK.replace("test_nothing", "test_upper").replace("pass", "assert lab.clamp(14) == 10")
ALL_OF_IT = "[subject(n) for n in (-4, 3, 14)] == [0, 3, 10]"

# name -> (file of a good module, text in it, what stands there instead, what the gate must say of it)
FAULTS = {
    "stub_passes": ("checks", WHOLE, EMPTY_CHECK, "the stub passes all its checks"),
    "stub_raises_another": (
        "stub",
        "low: int = 0",
        "low: int = None.x",
        "stub must fail with NotImplementedError, it ends as 'prob",
    ),
    "reference_fails": ("stub", "reference_of_labs", "reference_with_fault", "the reference fails in test_borders"),
    "reference_missing": ("stub", "reference_of_labs", "no_such_module", "no_such_module:clamp, and there is no such module"),
    "mistake_passes": ("wrong", '"value", "f', '"min(high, value)", "f', "no_upper_end passes all checks"),
    "mistake_crashes": (
        "wrong",
        '"value", "f',
        '"undefined", "f',
        "no_upper_end must fail with an assertion, it crashes in test_ins",
    ),
    "mistake_not_written": ("wrong", '"return value"', '"raise NotImplementedError"', "no_lower_end must fail with an assertion"),
    "no_message": ("checks", WHOLE, SILENT_CHECK, "no_upper_end fails in test_upper[wrong no_upper_end] without a message"),
    "checks_not_importable": (
        "checks",
        "from labs.kit import checks",
        "import missing_package",
        "No module named 'missing_package'",
    ),
    "checks_unreadable": ("checks", "def test_inside(", "def test_inside((", "test_m01_checks_unreadable.py, line 7"),
    "patch_fits_twice": ("wrong", '"return low"', '"return"', "occurs 2 times"),
    "two_mistakes": ("wrong", '"always_three"', '"no_lower_end"', "plants 2 mistakes in it, at least 3"),
    "no_mistakes": ("wrong", WHOLE, None, "its planted mistakes, is missing"),
    "mistakes_unreadable": ("wrong", WHOLE, "WRONG = {", "SyntaxError"),
    "mistakes_misshapen": ("wrong", WHOLE, "WRONG = {'clamp': {'a': 3}}\nHAPPY = {}", "WRONG maps exercises to"),
    "mistakes_of_nobody": ("wrong", 'HAPPY = {"', 'HAPPY = {"clasp": len, "', "names clasp, which is no exercise"),
    "no_naive_test": ("wrong", 'HAPPY = {"clamp": in_the_middle}', "HAPPY = {}", "no naive test of it in HAPPY"),
    "naive_test_too_good": ("wrong", "subject(3) == 3", ALL_OF_IT, "no planted mistake passes the naive test"),
    "naive_test_wrong": ("wrong", "subject(3) == 3", "subject(3) == 4", "the reference does not pass the naive test"),
    "no_hints": ("hints", WHOLE, None, "0 hints for it, 3 different ones"),
    "same_hint_twice": ("hints", "Two ends.", "min and max.", "3 different ones are needed"),
    "unmarked_check": ("checks", '@checks("clamp")\ndef test_b', "def test_b", "test_borders has no @checks"),
    "check_in_a_class": ("checks", "\n\n@checks", IN_A_CLASS, "TestMore.test_more has no @checks(…), or is a method"),
    "check_of_nobody": (
        "checks",
        '@checks("clamp")\ndef test_b',
        '@checks("clasp")\ndef test_b',
        "@checks('clasp'), which is no ex",
    ),
    "no_check": ("checks", WHOLE, "def test_nothing():\n    pass\n", "no check is marked @checks('clamp')"),
    "no_exercise": ("stub", WHOLE, "x = 1\n", "has no @exercise"),
    "not_python": ("stub", WHOLE, "def clamp(:\n", "line 1"),
    "not_recorded": ("stub", "", "", "its stub is not recorded"),
}
GOOD = ("as_it_should_be", "solved_by_a_learner")


@pytest.fixture(scope="module")
def problems(labs_folder):
    course = labs_folder()
    course.add("start/m00_as_it_should_be")
    course.add("capstone/m00_solved_by_a_learner", stub=course.SOLVED)
    for number, (name, (kind, old, new, _)) in enumerate(FAULTS.items(), start=1):
        good = getattr(course, kind.upper())
        course.add(f"c{number}/m01_{name}", **{kind: new if old is WHOLE else good.replace(old, new, 1)})
    stubs = course.folder / "stubs.json"
    pristine = [m for m in find_modules(course.root) if not m.path.endswith(("not_recorded", "solved_by_a_learner"))]
    stubs.write_text(json.dumps({module.path: blob_id(module.file) for module in pristine}))
    found = run_gate(course.wrong, course.root, stubs)
    return {key.split("_", 1)[1].split(":")[0]: lines for key, lines in found.items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(problems, name):
    assert any(FAULTS[name][3] in line for line in problems[name]), problems[name]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_module_is_left_alone(problems, name):
    assert problems[name] == []


def test_a_run_that_dies_is_told(labs, tmp_path):
    labs.add("c1/m01_a", checks=labs.CHECKS + "\nimport os\nos._exit(7)\n")
    [lines] = run_gate(labs.wrong, labs.root, tmp_path / "none.json").values()
    assert any("pytest ended with 7" in line for line in lines), lines
