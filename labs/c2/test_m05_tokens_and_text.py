"""Checks of 2.5: no broken character, no leaked stop string, every section in its place, however the text is cut."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_equal, assert_raises
from labs.kit.conformance import checks as suite
from labs.kit.tiny_tokenizers import TEXTS, tokenizer
from minillm.text.sections import MARKERS, Marker

BROKEN = "\N{REPLACEMENT CHARACTER}"


def streamed(lab, tok, prompt, answer, skip=True):
    """What each push showed, and last the flush."""
    decoder = lab.StreamDecoder(tok, prompt, skip)
    return [decoder.push(token) for token in answer] + [decoder.flush()]


def named(tok, ids):
    return [tok.token_bytes(i) for i in ids]


def cut(text, seed):
    """The text in up to eight pieces, some perhaps empty."""
    rng = random.Random(seed)
    ends = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(8)))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


# ------------------------------------------------------------------------------------------------------------- StreamDecoder


@checks("StreamDecoder")
@pytest.mark.parametrize("style", ["bytes", "merged", "fallback"])
def test_known_texts_come_back(lab, style):
    tok = tokenizer(style)
    for text in TEXTS:
        ids = tok.encode(text)
        got, hint = (
            "".join(streamed(lab, tok, [], ids)),
            "a token may be part of a character: collect bytes, not the texts of tokens",
        )
        if got == f" {text}":
            hint = "first=True for the first token that is shown: this tokenizer puts a space before every word, the first too"
        assert_equal(got, text, "pushes and flush, joined", inputs=f"tokens {named(tok, ids)}", hint=hint)


@checks("StreamDecoder")
def test_each_character_comes_with_the_token_that_completes_it(lab):
    tok = tokenizer("bytes")
    cases = {
        "a€b": ["a", "", "", "€", "b", ""],
        "👍": ["", "", "", "👍", ""],
        "é\N{COMBINING DOT BELOW}": ["", "é", "", "\N{COMBINING DOT BELOW}", ""],
    }
    for text, expected in cases.items():
        got = streamed(lab, tok, [], tok.encode(text))
        assert_equal(got, expected, "what each push shows, and flush", inputs=f"the bytes of {text!r}, one a token")


@checks("StreamDecoder")
def test_a_token_may_end_one_character_and_begin_another(lab):
    tok = tokenizer("merged")
    for text in TEXTS:
        ids = tok.encode(text)
        decoder, shown, seen = lab.StreamDecoder(tok, []), "", b""
        for token in ids:
            shown += decoder.push(token)
            seen += tok.token_bytes(token)
            assert_equal(
                shown, seen.decode(errors="ignore"), "the text shown so far", inputs=f"tokens that add {seen!r}",
                hint="characters that are whole are shown at once, though the token goes on with part of the next",
            )  # fmt: skip


@checks("StreamDecoder")
def test_bytes_that_are_no_text(lab):
    tok = tokenizer("bytes")
    cases = {
        b"a\xe2\x82": ["a", "", "", BROKEN],
        b"\xffa": [BROKEN, "a", ""],
        b"\xe2\x82a": ["", "", BROKEN + "a", ""],
        b"\x80\x80\x80\x80b": [BROKEN] * 4 + ["b", ""],
        b"\xf0\x9f\xe2\x82\xac": ["", "", BROKEN, "", "€", ""],
        b"\xe0\x80a": ["", BROKEN * 2, "a", ""],
        b"\xf4\x90a": ["", BROKEN * 2, "a", ""],
        b"\xc0\xf5a": [BROKEN, BROKEN, "a", ""],
        b"": [""],
    }
    for data, expected in cases.items():
        got = streamed(lab, tok, [], list(data))
        hint = "neither hold back what can no longer become a character, nor drop it: after E0 only A0 to BF can, and so on"
        assert_equal(got, expected, "what each push shows, and flush", inputs=f"bytes {data!r}, one a token", hint=hint)


@checks("StreamDecoder")
def test_the_prompt_may_end_inside_a_character(lab):
    tok = tokenizer("bytes")
    for text in ("x€y", "x👍y", "👍", "éy"):
        data = list(text.encode())
        for at in range(len(data) + 1):
            before = bytes(data[:at]).decode(errors="ignore")
            assert_equal(
                "".join(streamed(lab, tok, data[:at], data[at:])), text[len(before) :], "the answer's text",
                inputs=f"prompt {bytes(data[:at])!r}, answer {bytes(data[at:])!r}, a byte a token",
                hint="up to three bytes of the prompt may belong to the answer's first character, and none of its text does",
            )  # fmt: skip


@checks("StreamDecoder")
def test_what_the_prompt_left_open_and_nothing_finishes(lab):
    tok = tokenizer("bytes")
    for prompt, answer, expected in [
        (b"x\xe2\x82", b"a", [BROKEN + "a", ""]),
        (b"x\xe2\x82", b"", [BROKEN]),
        (b"x\xf0\x9f", b"\x98a", ["", BROKEN + "a", ""]),
        (b"x\xff", b"a", ["a", ""]),
    ]:
        hint = "bytes that were still open when the answer began are its own, and so is the U+FFFD for them"
        inputs = f"prompt {prompt!r}, answer {answer!r}, a byte a token"
        got = streamed(lab, tok, list(prompt), list(answer))
        assert_equal(got, expected, "what each push shows, and flush", inputs=inputs, hint=hint)


@checks("StreamDecoder")
def test_special_tokens_and_ids_without_a_token(lab):
    tok = tokenizer("bytes")
    end = min(tok.special_ids)
    name, nothing = tok.token(end), tok.vocab_size + 7
    for answer, skip, expected in [
        ([0x61, end, 0x62], True, ["a", "", "b", ""]),
        ([0x61, end, 0x62], False, ["a", name, "b", ""]),
        ([0xE2, end, 0x82, 0xAC], True, ["", "", "", "€", ""]),
        ([0x61, nothing, 0x62], True, ["a", "", "b", ""]),
    ]:
        inputs = f"ids {answer}, of which {end} is {name!r} and {nothing} is no token; skip_special_tokens={skip}"
        assert_equal(streamed(lab, tok, [], answer, skip), expected, "what each push shows, and flush", inputs=inputs)
    got = "".join(streamed(lab, tok, [0xE2, 0x82, end], [0xAC]))
    hint = "a special token that is not shown adds no bytes, in the prompt too"
    assert_equal(got, "€", "the answer's text", inputs=f"prompt E2 82 {name}, answer AC", hint=hint)


@checks("StreamDecoder")
def test_the_space_before_the_first_word(lab):
    tok = tokenizer("fallback")
    bos, a, padding = 1, tok.encode("a")[0], tok.vocab_size + 7
    for prompt, answer, skip, expected in [
        ([], [a, a], True, "a a"),
        ([bos], [a, a], True, "a a"),
        ([a], [a, a], True, " a a"),
        ([a, bos], [a], True, " a"),
        ([bos], [a], False, " a"),
        ([], [bos, a], True, "a"),
        ([], [padding, a], True, "a"),
        ([padding], [a], True, "a"),
        ([a, padding], [a], True, " a"),
    ]:
        got = "".join(streamed(lab, tok, prompt, answer, skip))
        inputs = f"prompt {[tok.token(i) for i in prompt]}, answer {[tok.token(i) for i in answer]}, skip_special_tokens={skip}"
        hint = "first=True is for a token before which nothing has been shown, neither of the answer nor of the prompt"
        assert_equal(got, expected, "the answer's text", inputs=inputs, hint=hint)


@checks("StreamDecoder")
@pytest.mark.parametrize("style", ["bytes", "merged", "fallback"])
@given(text=st.text(max_size=30), prompt=st.text(max_size=6))
def test_any_text_after_any_prompt(lab, style, text, prompt):
    tok = tokenizer(style)
    before, answer = tok.encode(prompt), tok.encode(text)
    expected = tok.decode([*before, *answer])[len(tok.decode(before)) :]
    inputs = f"prompt {prompt!r}, answer {text!r}, in tokens {named(tok, answer)}"
    assert_equal("".join(streamed(lab, tok, before, answer)), expected, "pushes and flush, joined", inputs=inputs)


@checks("StreamDecoder")
@pytest.mark.parametrize("check", suite("text.stream"), ids=lambda check: check.__name__.removeprefix("check_"))
def test_any_stream_decoder(lab, check):
    check(lab.StreamDecoder)


# --------------------------------------------------------------------------------------------------------------- StopChecker


def checked(lab, stop, pieces, include=False):
    """Everything shown, and what matched."""
    checker = lab.StopChecker(stop, include)
    shown = "".join([checker.push(piece) for piece in pieces])
    return shown + checker.flush(), checker.matched


@checks("StopChecker")
@pytest.mark.parametrize("pieces", [["one\nUser: two"], ["one\nUs", "er", ": two"], list("one\nUser: two")], ids=repr)
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_in_one_piece_or_across_pieces(lab, pieces, include):
    expected = ("one\nUser:" if include else "one", "\nUser:")
    inputs = f"stop '\\nUser:', pieces {pieces}, include_stop_str_in_output={include}"
    hint = "look for it in the text so far, not in each piece, and show nothing behind it"
    assert_equal(checked(lab, ["\nUser:"], pieces, include), expected, "text shown and matched", inputs=inputs, hint=hint)


@checks("StopChecker")
def test_no_stop_strings_no_waiting(lab):
    checker = lab.StopChecker()
    got = [checker.push("Hel"), checker.push(""), checker.push("lo"), checker.flush()]
    assert_equal((got, checker.matched), (["Hel", "", "lo", ""], None), "pushes and flush, and matched", inputs="no stop strings")


@checks("StopChecker")
def test_what_may_begin_a_stop_string_waits_and_nothing_else(lab):
    checker = lab.StopChecker(("</a>",))
    got = [checker.push(piece) for piece in ("42<", "/", "b", "x", "<", "/a")]
    inputs = "stop '</a>', pushes '42<', '/', 'b', 'x', '<', '/a'"
    hint = "hold back the longest end of the text that is a beginning of '</a>': here '<', '</', '', '', '<', '</a'"
    assert_equal(got, ["42", "", "</b", "x", "", ""], "what each push shows", inputs=inputs, hint=hint)
    hint = "an end that turned out to be no stop string belongs to the answer"
    assert_equal(checker.flush(), "</a", "flush", inputs=inputs, hint=hint)


@checks("StopChecker")
def test_nothing_follows_a_match(lab):
    checker = lab.StopChecker(("END",))
    got = [checker.push("a END b"), checker.push("c"), checker.push("END"), checker.flush()]
    assert_equal((got, checker.matched), (["a ", "", "", ""], "END"), "pushes and flush, and matched", inputs="stop 'END'")


@checks("StopChecker")
@pytest.mark.parametrize("stop", [["b", "aab"], ["aab", "b"], ["ab", "aab", "b"]], ids=repr)
def test_of_several_that_are_complete_together_the_longest_counts(lab, stop):
    assert_equal(checked(lab, stop, ["ca", "ab."]), ("c", "aab"), "text shown and matched", inputs=f"stop {stop}, text 'caab.'")


@checks("StopChecker")
def test_the_first_end_counts_not_the_first_beginning(lab):
    got = checked(lab, ["abcd", "bc"], list("xabcdy"))
    hint = "'abcd' began earlier, but 'bc' is complete earlier, and an answer need not go on to find out"
    assert_equal(got, ("xa", "bc"), "text shown and matched", inputs="stop 'abcd' and 'bc', text 'xabcdy'", hint=hint)


@checks("StopChecker")
def test_a_stop_string_that_overlaps_itself(lab):
    for stop, text, shown in [("aab", "aaab", "a"), ("abac", "ababac", "ab"), ("aa", "baab", "b")]:
        inputs = f"stop {stop!r}, text {text!r}, a character a push"
        hint = f"when the next character does not fit, part of what matched may still begin {stop!r}: do not start over"
        assert_equal(checked(lab, [stop], list(text)), (shown, stop), "text shown and matched", inputs=inputs, hint=hint)


@checks("StopChecker")
@pytest.mark.parametrize("check", suite("text.stop"), ids=lambda check: check.__name__.removeprefix("check_"))
def test_any_stop_checker(lab, check):
    check(lab.StopChecker)


# ----------------------------------------------------------------------------------------------------------- SectionSplitter


def sections(lab, pieces, **options):
    """[(section, kind, text)] with each section's pieces joined."""
    splitter, found = lab.SectionSplitter(**options), {}
    for section, kind, text in [piece for p in pieces for piece in splitter.push(p)] + splitter.flush():
        assert_equal(text == "", False, "a piece with empty text", inputs=f"pieces {pieces}")
        found[section, kind] = found.get((section, kind), "") + text
    return [(*key, text) for key, text in found.items()]


def by_search(text, start="answer", markers=MARKERS):
    """The definition, on the whole text: again and again the marker that counts and ends first."""
    found, number, kind = [], 0, start
    while True:
        counts = (
            {m.opening: m.kind for m in markers} if kind == "answer" else {m.closing: "answer" for m in markers if m.kind == kind}
        )
        ends = [(text.find(marker) + len(marker), -len(marker), marker) for marker in counts if marker in text]
        if not ends:
            return found + [(number, kind, text)] * (text != "")
        end, _, marker = min(ends)
        found += [(number, kind, text[: end - len(marker)])] * (end > len(marker))
        number, kind, text = number + 1, counts[marker], text[end:]


THOUGHT = "<think>2+2?\n</think>\n\nFour.<tool_call>{}</tool_call><tool_call>[1]</tool_call>"


@checks("SectionSplitter")
@pytest.mark.parametrize("size", [99, 1, 2, 7])
def test_the_usual_answer(lab, size):
    pieces = [THOUGHT[i : i + size] for i in range(0, len(THOUGHT), size)]
    expected = [
        (1, "reasoning", "2+2?\n"),
        (2, "answer", "\n\nFour."),
        (3, "tool_call", "{}"),
        (5, "tool_call", "[1]"),
    ]
    hint = "every marker that counts raises the number by one, also past a section without text (0 and 4 here); strip nothing"
    assert_equal(sections(lab, pieces), expected, "sections", inputs=f"{THOUGHT!r} in pushes of {size}", hint=hint)


@checks("SectionSplitter")
def test_pieces_come_as_soon_as_they_are_certain(lab):
    splitter = lab.SectionSplitter()
    steps = [
        ("a<", [(0, "answer", "a")]),
        ("", []),
        ("th", []),
        ("e", [(0, "answer", "<the")]),
        ("<think", []),
        (">b</t", [(1, "reasoning", "b")]),
        ("o<", [(1, "reasoning", "</to")]),
        ("/think>\n<tool_call>{", [(2, "answer", "\n"), (3, "tool_call", "{")]),
        ("<think>", [(3, "tool_call", "<think>")]),
        ("</tool_call", []),
    ]
    said = ""
    for text, expected in steps:
        said += text
        hint = "hold back only an end that may become a marker that counts here; one piece a section"
        assert_equal(splitter.push(text), expected, f"push({text!r})", inputs=f"in all {said!r}", hint=hint)
    assert_equal(splitter.flush(), [(3, "tool_call", "</tool_call")], "flush()", inputs=f"in all {said!r}")


@checks("SectionSplitter")
def test_pieces_have_names(lab):
    splitter = lab.SectionSplitter()
    got = [getattr(piece, "kind", None) for piece in [*splitter.push("a<think>b<"), *splitter.flush()]]
    hint = "Piece(section, kind, text): readers say piece.kind, and a plain tuple has no names"
    inputs = "push 'a<think>b<', then flush"
    assert_equal(got, ["answer", "reasoning", "reasoning"], "the kind of each piece", inputs=inputs, hint=hint)


@checks("SectionSplitter")
@pytest.mark.parametrize(
    "text",
    [
        "a</think>b",
        "<think>a</think>b<think>c</think>d",
        "<think>a<think>b</think>c",
        "<think><tool_call>x</tool_call></think>",
        "<tool_call></think></tool_call>",
        "</think>",
        "",
    ],
)
def test_markers_that_do_not_count_are_text(lab, text):
    hint = "in an answer every opening marker counts and nothing else, in a section only its own closing one"
    assert_equal(sections(lab, [text]), by_search(text), "sections", inputs=repr(text), hint=hint)


@checks("SectionSplitter")
def test_a_prompt_may_have_opened_the_section(lab):
    for pieces in (["so: 4</think>4"], list("so: 4</think>4")):
        got = sections(lab, pieces, start="reasoning")
        hint = "the template wrote <think>; the answer starts behind it"
        assert_equal(
            got, [(0, "reasoning", "so: 4"), (1, "answer", "4")], "sections", inputs=f"start='reasoning', {pieces}", hint=hint
        )
    assert_raises(ValueError, lambda: lab.SectionSplitter(start="thought"), "SectionSplitter(start='thought')", match="thought")


@checks("SectionSplitter")
def test_an_answer_may_end_anywhere(lab):
    for text in ("<think>half a th", "<think>a</thi", "x<tool", "<tool_call>{", "<think>"):
        inputs = f"{text!r}, then flush"
        hint = "what was held back is text of the section it stands in"
        assert_equal(sections(lab, [text]), by_search(text), "sections", inputs=inputs, hint=hint)


@checks("SectionSplitter")
def test_other_markers(lab):
    markers = [Marker("thought", "((", "))"), Marker("call", "x((", "aab")]
    for text in ("1((2))3", "x((aaab)", "(((2)))", "x((("):
        for pieces in ([text], list(text)):
            inputs = f"markers {markers}, pieces {pieces}"
            assert_equal(sections(lab, pieces, markers=markers), by_search(text, markers=markers), "sections", inputs=inputs)


WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "think>", "<t", "a", "\n"]


@checks("SectionSplitter")
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=10),
    start=st.sampled_from(["answer", "reasoning", "tool_call"]),
    seed=st.integers(0, 999),
)
def test_sections_of_any_text_cut_anywhere(lab, words, start, seed):
    text = "".join(words)
    for pieces in (cut(text, seed), list(text)):
        inputs = f"start={start!r}, pieces {pieces}"
        assert_equal(sections(lab, pieces, start=start), by_search(text, start), "sections", inputs=inputs)
