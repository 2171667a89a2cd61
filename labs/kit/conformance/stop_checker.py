"""Checks for a stop checker (minillm.text.stop). subject: its class, called as (stop strings, include_stop_str_in_output)."""

from __future__ import annotations

import random


def _run(subject, stop, pieces, include=False):
    checker = subject(stop, include)
    shown = "".join([checker.push(piece) for piece in pieces])
    return shown + checker.flush(), checker.matched


def _definition(stop, text, include):
    """The first end of any stop string; of several that end there, the longest."""
    for end in range(1, len(text) + 1):
        here = [s for s in stop if text[:end].endswith(s)]
        if here:
            longest = max(here, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def check_without_stop_strings_text_passes_at_once(subject):
    checker = subject((), False)
    assert checker.push("Hello") == "Hello" and checker.push("") == "" and checker.flush() == ""
    assert checker.matched is None


def check_a_stop_string_in_one_piece_or_across_pieces(subject):
    for pieces in (["one\nUser: two"], ["one\nUs", "er", ": two"], list("one\nUser: two")):
        got = _run(subject, ("\nUser:",), pieces)
        assert got == ("one", "\nUser:"), f"{pieces} gave {got}, expected ('one', '\\nUser:')"


def check_part_of_a_stop_string_is_held_back_and_released(subject):
    checker = subject(("</a>",), False)
    shown = [checker.push(piece) for piece in ("42<", "/", "b", "<", "/a")]
    assert shown == ["42", "", "</b", "", ""], f"shown piece by piece: {shown}"
    assert checker.flush() == "</a", "an end that turned out to be no stop string belongs to the answer"


def check_nothing_follows_a_match(subject):
    checker = subject(("END",), False)
    assert (checker.push("a END b"), checker.push("c"), checker.flush()) == ("a ", "", "")
    assert checker.matched == "END"


def check_any_text_cut_anywhere_equals_the_definition(subject):
    rng = random.Random(0)
    for _ in range(1500):
        stop = tuple("".join(rng.choices("ab", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 3)))
        text, include = "".join(rng.choices("ab", k=rng.randint(0, 20))), rng.random() < 0.5
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        got, want = _run(subject, stop, pieces, include), _definition(stop, text, include)
        assert got == want, f"stop {stop}, pieces {pieces}, include {include}: got {got}, expected {want}"


def check_no_more_is_held_back_than_may_begin_a_stop_string(subject):
    rng = random.Random(1)
    for _ in range(300):
        stop = tuple("".join(rng.choices("ab", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 3)))
        text, checker, shown = "".join(rng.choices("ab", k=12)), subject(stop, False), ""
        for i, char in enumerate(text, start=1):
            shown += checker.push(char)
            if checker.matched is not None:
                break
            held = max(k for s in stop for k in range(len(s)) if text[:i].endswith(s[:k]))
            assert shown == text[: i - held], f"stop {stop}: after {text[:i]!r}, {shown!r} is shown, {text[: i - held]!r} is safe"


def check_a_stop_string_is_no_pattern(subject):
    """It is text: to `re`, some of these mean something else."""
    for stop, text in (("a.c", "abc a.c!"), ("**", "a* **b"), ("[END]", "E D [END]"), ("\\n", "a\nb\\n."), ("$", "1$")):
        got, want = _run(subject, (stop,), list(text)), (text[: text.index(stop)], stop)
        assert got == want, f"stop {stop!r}, text {text!r}: got {got}, expected {want}; a stop string is text, not a pattern"
