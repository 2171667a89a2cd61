import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm.text.sections import ANSWER, MARKERS, Marker, SectionSplitter

WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "think>", "<t", "a", "\n", "é"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map("".join)


def split(pieces, **options):
    """All pieces, joined a section."""
    splitter, sections = SectionSplitter(**options), {}
    for piece in [p for text in pieces for p in splitter.push(text)] + splitter.flush():
        assert piece.text
        kind, text = sections.get(piece.section, (piece.kind, ""))
        assert kind == piece.kind
        sections[piece.section] = (kind, text + piece.text)
    return [(number, *rest) for number, rest in sections.items()]


def by_regex(text, start=ANSWER):
    """The definition for MARKERS, no one of which ends another: cut the whole text at the next marker that counts."""
    sections, kind = [], start
    while True:
        counts = {m.opening: m.kind for m in MARKERS} if kind == ANSWER else {f"</{kind.replace('reasoning', 'think')}>": ANSWER}
        found = re.search("|".join(map(re.escape, counts)), text)
        sections.append((len(sections), kind, text[: found.start()] if found else text))
        if not found:
            return [section for section in sections if section[2]]
        kind, text = counts[found[0]], text[found.end() :]


@given(text=texts, start=st.sampled_from([ANSWER, "reasoning", "tool_call"]), seed=st.integers(0, 99))
def test_any_text_cut_anywhere_equals_the_definition(text, start, seed):
    cuts = sorted(random.Random(seed).choices(range(len(text) + 1), k=seed % 8))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces, start=start) == by_regex(text, start)
    assert split(list(text), start=start) == by_regex(text, start)


def test_text_is_shown_as_soon_as_it_is_no_marker():
    splitter = SectionSplitter()
    assert splitter.push("a<") == [(0, "answer", "a")]
    assert splitter.push("th") == []
    assert splitter.push("e") == [(0, "answer", "<the")]
    assert splitter.push("<think") == []
    assert splitter.push(">b</think") == [(1, "reasoning", "b")]
    assert splitter.push(">\n<tool_call>{") == [(2, "answer", "\n"), (3, "tool_call", "{")]
    assert splitter.flush() == []


def test_the_longest_of_the_markers_that_end_together_counts():
    markers = [Marker("short", "b>", "."), Marker("long", "ab>", ".")]
    assert split(["ab>x.y"], markers=markers) == [(1, "long", "x"), (2, "answer", "y")]


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match=r"'thought'; the kinds are answer, reasoning, tool_call"):
        SectionSplitter(start="thought")
