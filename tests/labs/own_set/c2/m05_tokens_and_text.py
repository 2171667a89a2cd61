"""Answers to labs/c2/m05_tokens_and_text.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence

from labs.kit import exercise
from minillm.text.sections import ANSWER, MARKERS, Marker, Piece
from minillm.text.tokenizer import Tokenizer


@exercise(reference="minillm.text.stream:StreamDecoder", part="text.stream")
class StreamDecoder:
    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True):
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._is_first = True  # no shown token so far
        tail = b""
        for token_id in reversed(prompt_token_ids):
            if self._is_shown(token_id):
                self._is_first = False
                tail = tokenizer.token_bytes(token_id) + tail
                if len(tail) >= 3:
                    break
        self._decoder.decode(tail)  # what it leaves open is the answer's

    def push(self, token_id: int) -> str:
        if not self._is_shown(token_id):
            return ""
        data = self._tokenizer.token_bytes(token_id, first=self._is_first)
        self._is_first = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)

    def _is_shown(self, token_id: int) -> bool:
        return token_id not in self._hidden and self._tokenizer.token(token_id) is not None


@exercise(reference="minillm.text.stop:StopChecker", part="text.stop")
class StopChecker:
    def __init__(self, stop: Sequence[str] = (), include_stop_str_in_output: bool = False):
        self._stop = tuple(stop)
        self._include = include_stop_str_in_output
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        if self.matched is not None:
            return ""
        text = self._held + text
        found = _first_to_end(text, self._stop)
        if found:
            start, self.matched = found
            self._held = ""
            return text[: start + len(self.matched)] if self._include else text[:start]
        shown = len(text) - _length_held(text, self._stop)
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _first_to_end(text: str, strings: Iterable[str]) -> tuple[int, str] | None:
    """Where the string begins that is complete first in the text, and which it is: of several that end there, the longest."""
    found = [(text.find(string), string) for string in strings]
    return min(((at, string) for at, string in found if at >= 0), key=lambda f: (f[0] + len(f[1]), f[0]), default=None)


def _length_held(text: str, strings: Iterable[str]) -> int:
    """Length of the longest end of text that is a beginning of a string, but not all of it."""
    return max((n for s in strings for n in range(1, len(s)) if text.endswith(s[:n])), default=0)


@exercise(reference="minillm.text.sections:SectionSplitter")
class SectionSplitter:
    def __init__(self, markers: Sequence[Marker] = MARKERS, start: str = ANSWER):
        self._opening = {marker.opening: marker.kind for marker in markers}
        self._closing = {marker.kind: {marker.closing: ANSWER} for marker in markers}
        if start != ANSWER and start not in self._closing:
            raise ValueError(f"start is {start!r}; expected {ANSWER!r} or one of {', '.join(map(repr, self._closing))}")
        self._section, self._kind, self._held = 0, start, ""

    def push(self, text: str) -> list[Piece]:
        text = self._held + text
        pieces = []
        while found := _first_to_end(text, self._next_kind):
            at, marker = found
            pieces += self._piece(text[:at])
            self._section, self._kind = self._section + 1, self._next_kind[marker]
            text = text[at + len(marker) :]
        shown = len(text) - _length_held(text, self._next_kind)
        self._held = text[shown:]
        return pieces + self._piece(text[:shown])

    def flush(self) -> list[Piece]:
        held, self._held = self._held, ""
        return self._piece(held)

    @property
    def _next_kind(self) -> dict[str, str]:
        """The markers that count now, and the kind of section that each begins."""
        return self._opening if self._kind == ANSWER else self._closing[self._kind]

    def _piece(self, text: str) -> list[Piece]:
        return [Piece(self._section, self._kind, text)] if text else []
