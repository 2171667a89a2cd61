import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm.text.stop import StopChecker, _borders


def run(stop, pieces, include=False):
    checker = StopChecker(stop, include)
    shown = [checker.push(piece) for piece in pieces]
    return "".join(shown) + checker.flush(), checker.matched


def oracle(stop, text, include):
    """The definition, spelled out: the first end of any stop string; the longest of those that end there."""
    for end in range(1, len(text) + 1):
        here = [s for s in stop if text[:end].endswith(s)]
        if here:
            longest = max(here, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


FEW_LETTERS = st.text("ab", max_size=30)  # so that overlaps, false starts and self-overlaps are common


@settings(max_examples=500)
@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=4), FEW_LETTERS, st.booleans(), st.data())
def test_equals_the_definition_however_the_text_is_cut(stop, text, include, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(stop, pieces, include) == oracle(stop, text, include)


@settings(max_examples=300)
@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3), FEW_LETTERS)
def test_holds_back_just_what_may_begin_a_stop_string(stop, text):
    checker, shown = StopChecker(stop), ""
    for i, char in enumerate(text, start=1):
        shown += checker.push(char)
        if checker.matched is not None:
            break
        open_ends = [k for s in stop for k in range(len(s)) if text[:i].endswith(s[:k])]
        assert shown == text[: i - max(open_ends)]


@pytest.mark.parametrize(
    ("pieces", "shown", "matched"),
    [
        (["Hello\nUs", "er", ": hi"], "Hello", "\nUser:"),  # across tokens
        (["one\nUser: two"], "one", "\nUser:"),  # inside one
        (["a\nUs", "ually"], "a\nUsually", None),  # a false start is released
        (["a\nUse"], "a\nUse", None),  # and at the end of the answer too
        (["\nUser", "\nUser", ":"], "\nUser", "\nUser:"),  # a false start that contains the real one's beginning
    ],
)
def test_cases_by_hand(pieces, shown, matched):
    assert run(["\nUser:"], pieces) == (shown, matched)


def test_part_of_a_stop_string_is_never_shown():
    checker = StopChecker(["</answer>"])
    assert [checker.push(piece) for piece in ["42<", "/ans", "wer", ">"]] == ["42", "", "", ""]
    assert checker.matched == "</answer>"


def test_of_two_the_first_complete_one_wins_and_of_two_complete_the_longest():
    assert run(["abc", "ab"], ["xabc"]) == ("x", "ab")
    assert run(["b", "ab"], ["xab"]) == ("x", "ab")
    assert run(["bcd", "c"], ["abcd"]) == ("ab", "c")


def test_include_keeps_the_string_but_not_what_follows():
    assert run(["END"], ["text E", "ND more"], include=True) == ("text END", "END")


def test_nothing_after_a_match():
    checker = StopChecker(["."])
    assert checker.push("a.b") == "a"
    assert (checker.push("c."), checker.flush(), checker.matched) == ("", "", ".")


def test_without_stop_strings_text_passes_at_once():
    checker = StopChecker()
    assert (checker.push("anything"), checker.push("\n"), checker.flush()) == ("anything", "\n", "")


def test_borders_equal_their_definition():
    for string in map("".join, itertools.product("ab", repeat=9)):
        prefixes = [string[:i] for i in range(1, len(string) + 1)]
        assert _borders(string) == [max(k for k in range(len(p)) if p.endswith(p[:k])) for p in prefixes]


def test_work_grows_with_the_text_only():
    """A stop string that a client makes long and repetitive, to be slow, costs no more than twice its text in steps."""
    checker = StopChecker(["a" * 20_000 + "b"])
    pattern, steps = checker._patterns[0], 0

    class Counted(list):
        def __getitem__(self, index):
            nonlocal steps
            steps += 1
            return super().__getitem__(index)

    pattern._borders = Counted(pattern._borders)
    text = ("a" * 999 + "c") * 100
    shown = "".join(checker.push(text[i : i + 5]) for i in range(0, len(text), 5)) + checker.flush()
    assert shown == text
    assert 0 < steps <= len(text)
