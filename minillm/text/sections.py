"""Split an answer, while it streams, into what a client shows in different places: reasoning, tool calls, the answer proper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from minillm.text.stop import StopChecker

ANSWER = "answer"


class Marker(NamedTuple):
    """The texts between which a model writes one kind of section. Not empty, and opening and closing differ."""

    kind: str
    opening: str
    closing: str


class Piece(NamedTuple):
    """Text of one section. section: its number, so that two tool calls in a row can be told apart."""

    section: int
    kind: str
    text: str


# As Qwen3 writes them; DeepSeek-R1's reasoning has the same ones.
MARKERS = (Marker("reasoning", "<think>", "</think>"), Marker("tool_call", "<tool_call>", "</tool_call>"))


class SectionSplitter:
    """A state machine over the text of an answer; its states are the kinds of MARKERS, and "answer" for all that is between them.

    - In an answer every opening marker counts, inside a section only its own closing one. What does not count is text.
    - A marker that counts ends a section and begins the next, whose number is one higher. Its own text is in neither.
    - It counts at its last character; of several that end there, the longest. How the text is cut into pushes changes
      nothing: a marker may lie across tokens, or several in one.
    - Held back is only an end of the text that may turn out to begin a marker; it is a stop string's problem, and
      StopChecker solves it.
    - The pieces and the markers between them, in order, are the text: nothing is stripped.
    """

    def __init__(self, markers: Sequence[Marker] = MARKERS, start: str = ANSWER):
        """start: the kind of section 0. Where a chat template has written the opening marker itself, at the end of the
        prompt, the answer begins in the middle of a section. Raises ValueError for a kind that no marker has."""
        self._openings = {marker.opening: marker.kind for marker in markers}
        self._closings = {marker.kind: marker.closing for marker in markers}
        if start != ANSWER and start not in self._closings:
            raise ValueError(f"start is {start!r}; the kinds are {', '.join([ANSWER, *self._closings])}")
        self._section = 0
        self._enter(start)

    def push(self, text: str) -> list[Piece]:
        """The text that has become certain, a piece for each section it touches, none of them empty."""
        certain = []
        for char in text:
            certain.append(self._piece(self._border.push(char)))
            if self._border.matched is not None:
                self._section += 1
                self._enter(self._openings[self._border.matched] if self._kind == ANSWER else ANSWER)
        return _join(certain)

    def flush(self) -> list[Piece]:
        """At the end of the answer: the text held back. A section need not have been closed; its text keeps its kind."""
        return _join([self._piece(self._border.flush())])

    def _enter(self, kind: str) -> None:
        self._kind = kind
        self._border = StopChecker(tuple(self._openings) if kind == ANSWER else (self._closings[kind],))

    def _piece(self, text: str) -> Piece:
        return Piece(self._section, self._kind, text)


def _join(pieces: list[Piece]) -> list[Piece]:
    """One piece a section, empty ones left out."""
    joined = [
        Piece(*section, "".join(p.text for p in parts)) for section, parts in groupby(pieces, key=lambda p: (p.section, p.kind))
    ]
    return [piece for piece in joined if piece.text]
