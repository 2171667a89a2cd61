"""Stop strings: end the answer where one appears, and never show part of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopChecker:
    """Passes text on, except for an end that may turn out to begin a stop string.

    The answer ends at the first character that completes a stop string; of several completed there, the longest counts.
    This depends on the text alone, not on how it is cut into pushes (a stop string may lie across tokens or inside
    one), and an answer never has to go on, once a stop string is complete, to see whether another fits better.

    Each character costs amortised constant time a stop string, however long that is: Knuth, Morris and Pratt, "Fast
    pattern matching in strings" (1977).
    """

    def __init__(self, stop: Sequence[str] = (), include_stop_str_in_output: bool = False):
        """stop: non-empty strings."""
        self.matched: str | None = None  # the stop string that ended the answer
        self._include = include_stop_str_in_output
        self._patterns = [_Pattern(s) for s in stop]
        self._held = ""

    def push(self, text: str) -> str:
        """The text that is safe to show. "" once a stop string has matched: what follows one is dropped."""
        if self.matched is not None:
            return ""
        for i, char in enumerate(text):
            completed = [p.string for p in self._patterns if p.advance(char)]
            if completed:
                self.matched = max(completed, key=len)
                seen, self._held = self._held + text[: i + 1], ""
                return seen if self._include else seen[: -len(self.matched)]
        seen = self._held + text
        safe = len(seen) - max((p.length for p in self._patterns), default=0)
        self._held = seen[safe:]
        return seen[:safe]

    def flush(self) -> str:
        """At the end of the answer: the text held back, which turned out to begin no stop string."""
        held, self._held = self._held, ""
        return held


class _Pattern:
    """One stop string, and how many of its first characters the text seen so far ends with."""

    def __init__(self, string: str):
        self.string = string
        self.length = 0
        self._borders = _borders(string)

    def advance(self, char: str) -> bool:
        """Take the text's next character in. True if it completes the string."""
        while self.length and self.string[self.length] != char:
            self.length = self._borders[self.length - 1]  # the next longest beginning that can still be under way
        self.length += self.string[self.length] == char
        return self.length == len(self.string)


def _borders(string: str) -> list[int]:
    """For each prefix of `string`, the length of the longest shorter prefix that it also ends with."""
    borders, length = [0], 0
    for char in string[1:]:
        while length and string[length] != char:
            length = borders[length - 1]
        length += string[length] == char
        borders.append(length)
    return borders
