"""Long signatures of the API pages are broken into lines here, as ruff would. mkdocstrings starts ruff for each of them, some
hundreds of times a build, and leaves them as they are where it is not installed."""

from __future__ import annotations

import re
from itertools import pairwise

from mkdocstrings_handlers.python._internal import rendering

OPENING, CLOSING = "([{", ")]}"
STRING = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""")


def install() -> None:
    rendering._get_formatter = lambda: broken


def broken(code: str, line_length: int) -> str:
    """code: `def name(parameters) -> result: pass`, longer than a line, or anything else, which stays as it is.

    The parameters come on a line of their own, or, if that is too long, each on its own.
    """
    if not code.startswith("def "):
        return code
    commas, end = _commas(code)
    start = code.index("(") + 1
    edges = [start, *(comma + 1 for comma in commas), end + 1]
    parameters = [code[a : b - 1].strip() for a, b in pairwise(edges)]
    parameters = [parameter for parameter in parameters if parameter]
    if not parameters:
        return code
    line = "    " + ", ".join(parameters)
    lines = [line] if len(line) <= line_length else [f"    {parameter}," for parameter in parameters]
    return "\n".join([code[:start], *lines, code[end:]])


def _commas(code: str) -> tuple[list[int], int]:
    """Where the commas between parameters are, and the parenthesis after the last."""
    commas, depth, at = [], 0, 0
    while at < len(code):
        if string := STRING.match(code, at):
            at = string.end()
            continue
        if code[at] in OPENING:
            depth += 1
        elif code[at] in CLOSING:
            depth -= 1
            if depth == 0:
                return commas, at
        elif code[at] == "," and depth == 1:
            commas.append(at)
        at += 1
    return [], len(code)
