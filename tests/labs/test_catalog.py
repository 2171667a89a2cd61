"""Which exercises there are, in which order, and how they are asked for."""

import subprocess
import sys

import pytest

from labs.kit.catalog import LABS, find_module, find_modules
from labs.kit.checks_file import read_checks
from labs.kit.errors import LabError
from labs.kit.own_parts import own_parts
from labs.kit.source import is_untouched, unwritten


def test_an_exercise_is_read_from_its_decorator(labs):
    exercise = labs.add("c2/m03_kv_cache", stub=labs.STUB.replace('clamp")', 'clamp", part="ops.clamp")'))
    assert (exercise.module, exercise.name, exercise.key) == ("c2/m03_kv_cache", "clamp", "c2/m03_kv_cache:clamp")
    assert (exercise.reference, exercise.part) == ("reference_of_labs:clamp", "ops.clamp")
    assert exercise.file.read_text().splitlines()[exercise.line - 1].startswith("def clamp")
    assert exercise.checks_file.name == "test_m03_kv_cache.py"


def test_order_and_ids_are_the_course_s(labs):
    for path in ("checklist/m00_all", "c10/m01_b", "c2/m03_b", "start/m00_map", "c2/m01_a", "capstone/m00_end", "c1/m02_c"):
        labs.add(path)
    ids = ["start", "1.2", "2.1", "2.3", "10.1", "capstone", "checklist"]
    assert [module.id for module in find_modules()] == ids


@pytest.mark.parametrize("asked", ["2.3", "c2/m03_kv_cache", "labs/c2/m03_kv_cache.py", "./labs/c2/test_m03_kv_cache.py"])
def test_a_module_has_several_names(labs, asked):
    labs.add("c2/m03_kv_cache")
    labs.add("c2/m04_other")
    assert find_module(asked).path == "c2/m03_kv_cache"


def test_a_folder_may_be_called_test_something(labs, tmp_path):
    labs = type(labs)(tmp_path / "test_drive")
    labs.add("c2/m03_kv_cache")
    for name in ("m03_kv_cache.py", "test_m03_kv_cache.py"):
        assert find_module(str(labs.root / "c2" / name), labs.root).path == "c2/m03_kv_cache"


def test_an_unknown_name_gets_near_ones(labs):
    labs.add("c2/m03_kv_cache")
    with pytest.raises(LabError, match=r"no lab 'c2/m03_kv'.*c2/m03_kv_cache"):
        find_module("c2/m03_kv")


def test_a_file_that_does_not_parse_is_told(labs):
    labs.add("c2/m03_kv_cache", stub="x = 1\ndef f(:\n")
    module = find_module("2.3")
    assert module.exercises == () and module.problem == "labs/c2/m03_kv_cache.py, line 2: invalid syntax"


METHODS = '''
from labs.kit import exercise


@exercise(reference="reference_of_labs:clamp")
class Box:
    """A box."""

    size = 3

    def put(self, x):
        """Put it in."""
        {put}

    @property
    def full(self):
        raise NotImplementedError("yours")
'''


def test_a_stub_is_one_whose_bodies_only_raise(labs):
    stub = labs.add("c1/m01_a", stub=METHODS.format(put="raise NotImplementedError"))
    assert is_untouched(stub) and unwritten(stub) == ["put", "full"]
    begun = labs.add("c1/m02_a", stub=METHODS.format(put="return x"))
    assert not is_untouched(begun) and unwritten(begun) == ["full"]
    assert not is_untouched(labs.add("c1/m03_a", stub=labs.SOLVED))
    assert not is_untouched(labs.add("c1/m04_a", stub=labs.STUB.replace("NotImplementedError", "ValueError")))


def test_checks_are_read_with_the_exercise_they_belong_to(tmp_path):
    file = tmp_path / "test_m01_a.py"
    file.write_text(
        "import pytest\nfrom labs.kit import checks\npytestmark = checks('A')\n\ndef test_a(lab): ...\n"
        "@pytest.mark.parametrize('x', [1])\n@pytest.mark.checks('B')\ndef test_b(lab, x): ...\ndef helper(): ...\n"
    )
    assert [(check.name, check.exercise) for check in read_checks(file)] == [("test_a", "A"), ("test_b", "B")]
    assert read_checks(tmp_path / "missing.py") == []


def test_own_parts_are_the_exercises_with_a_part(labs):
    labs.add("c2/m03_a", stub=labs.SOLVED.replace('clamp")', 'clamp", part="ops.clamp")'))
    labs.add("c2/m04_b")
    [own] = own_parts().values()
    assert (own.part, own.module_id, own.file, own.state) == ("ops.clamp", "2.3", "labs/c2/m03_a.py", "attempted")
    assert own.load()(99) == 10


def test_own_parts_of_a_file_that_does_not_parse_are_known(labs):
    """From the text of their decorators, on one line or several."""
    folded = labs.SOLVED.replace('@exercise(reference="reference_of_labs:clamp")', "@exercise(\n    'a:b', part='ops.clamp'\n)")
    labs.add("c2/m03_a", stub=folded + '\n\n@exercise(reference="a:c")\nclass NoPart:\n    pass\n\n\ndef broken(:\n')
    [own] = own_parts().values()
    assert (own.part, own.module_id, own.file, own.state) == ("ops.clamp", "2.3", "labs/c2/m03_a.py", "not valid Python")
    assert (own.exercise.name, own.exercise.reference) == ("clamp", "a:b")
    assert own.exercise.file.read_text().splitlines()[own.exercise.line - 1].startswith("def clamp")


HEAVY = """
import sys
from labs.kit import exercise, hints, own_parts, state
own_parts.own_parts()
sys.exit(", ".join({"torch", "pytest", "numpy", "hypothesis"} & set(sys.modules)) or 0)
"""


def test_the_kit_needs_neither_torch_nor_pytest():
    done = subprocess.run([sys.executable, "-P", "-c", HEAVY], capture_output=True, text=True, cwd=LABS.parent, check=False)
    assert done.returncode == 0, done.stderr
