"""A learner's object can stand where the reference stands: names, parameters, defaults and annotations are the same."""

import pytest

from labs.kit.catalog import LABS, find_modules
from labs.kit.signatures import differences
from labs.kit.source import is_untouched
from labs.kit.subject import load_mine, load_reference

# what a learner has begun is theirs
UNTOUCHED = [e for module in find_modules(LABS) for e in module.exercises if is_untouched(e)]


@pytest.mark.parametrize("exercise", UNTOUCHED, ids=lambda e: e.key)
def test_stub_and_reference_have_one_signature(exercise):
    assert differences(load_mine(exercise), load_reference(exercise)) == []


@pytest.mark.parametrize("exercise", UNTOUCHED, ids=lambda e: e.key)
def test_the_stub_says_what_is_to_be_done(exercise):
    assert load_mine(exercise).__doc__


class Reference:
    def __init__(self, size: int): ...
    def get(self, key: str, default: int = 0) -> int: ...
    def _private(self): ...
    @property
    def full(self) -> bool: ...


class Same:
    def __init__(self, size: "int"): ...
    def get(self, key: str, default: int = 0) -> int: ...
    @property
    def full(self) -> bool: ...


def test_equal_classes():
    assert differences(Same, Reference) == []


@pytest.mark.parametrize(
    "change, says",
    [
        ({"get": lambda self, key: 0}, "get"),
        ({"full": lambda self: True}, "full is a function"),
        ({"more": lambda self: True}, "more is only in the stub"),
    ],
)
def test_a_difference_is_named(change, says):
    [line] = differences(type("Other", (), {**vars(Same), **change}), Reference)
    assert says in line


def test_functions():
    def f(a: int, b: int = 1) -> int: ...
    def g(a: int, b: int = 2) -> int: ...

    g.__name__ = "f"
    assert differences(f, f) == []
    assert differences(f, g) == ["f(a: int, b: int = 1) -> int in the stub, f(a: int, b: int = 2) -> int in the reference"]
    assert "class" in differences(f, Same)[0]
