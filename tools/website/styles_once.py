"""Pygments works out which CSS class stands for which kind of word, for every block of code anew. Once for a style is enough."""

from __future__ import annotations

from pygments.formatters.html import HtmlFormatter

_create, _made = HtmlFormatter._create_stylesheet, {}


def _create_once(self: HtmlFormatter) -> None:
    key = (self.style, self.classprefix)
    if key not in _made:
        _create(self)
        _made[key] = (self.ttype2class, self.class2style)
    self.ttype2class, self.class2style = _made[key]


def install() -> None:
    HtmlFormatter._create_stylesheet = _create_once
