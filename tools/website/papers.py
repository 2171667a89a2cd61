"""The repository's papers as pages of the site: CHANGELOG.md and THIRD_PARTY.md are written once, at the root."""

from __future__ import annotations

import re

from module_list import ROOT

from shared.course import Course


def changelog(page: str, course: Course) -> str:
    return _without_title("CHANGELOG.md")


def third_party(page: str, course: Course) -> str:
    """Its sections become subsections of the page that shows it."""
    return re.sub(r"^## ", "### ", _without_title("THIRD_PARTY.md"), flags=re.MULTILINE)


def _without_title(name: str) -> str:
    """Its text. Links to other files of the repository become their names: the site does not hold those files."""
    text = re.sub(r"\A# .*\n+", "", (ROOT / name).read_text("utf-8"))
    return re.sub(r"\[([^\]]+)\]\((?![a-z]+:|#)[^)]+\)", r"`\1`", text)


MARKERS = {"changelog": changelog, "third party": third_party}
