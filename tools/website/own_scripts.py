"""No page may load a script from elsewhere, and what is large or used on few pages is loaded only there."""

from __future__ import annotations

import re
from pathlib import Path

from calculator_data import head as calculator_head
from formulas import DRAWN

# What a page's HTML must hold, and what it then loads from assets/, in this order.
LOADS = (
    (DRAWN, ("vendor/katex/katex.min.css",)),
    ('class="arithmatex"', ("js/math.js",)),  # which loads KaTeX when a formula comes near
    ('class="mermaid"', ("js/diagrams.js",)),  # which loads mermaid when a diagram comes near
    ('class="home-head"', ("css/home.css",)),
    ('class="filters"', ("js/filters.js",)),
    ("data-module", ("js/progress.js",)),
)
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'  # Material gives this dialog no name
# ... and its two buttons on small screens neither a name nor a place in the order of the Tab key. Enter it does understand.
BUTTON = '<label class="md-header__button md-icon" for="__'
BUTTONS = {"drawer": "Navigation", "search": "Search"}


def only_own_scripts(site: Path) -> None:
    """Changes the built pages below `site`."""
    for path in site.rglob("*.html"):
        old = path.read_text("utf-8")
        new = with_own_scripts(old, "../" * (len(path.relative_to(site).parts) - 1))
        if new != old:
            path.write_text(new, "utf-8")


def with_own_scripts(html: str, up: str) -> str:
    """up: the way from this page to the site's root, "../" a folder."""
    html = html.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    for kind, name in BUTTONS.items():
        html = html.replace(f'{BUTTON}{kind}"', f'{BUTTON}{kind}" tabindex="0" role="button" aria-label="{name}"')
    html = re.sub(r"https://unpkg\.com/iframe-worker/shim", f"{up}assets/vendor/iframe-worker.js", html)
    head = "".join(_tag(f"{up}assets/{name}") for sign, names in LOADS if sign in html for name in names)
    head += calculator_head(html, up)
    return html.replace("</head>", head + "</head>", 1) if head else html


def _tag(address: str) -> str:
    if address.endswith(".css"):
        return f'<link rel="stylesheet" href="{address}">'
    return f'<script src="{address}" defer></script>'
