"""Links in raw HTML: MkDocs resolves those of Markdown only."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from mkdocs.structure.files import File, Files

LINK = re.compile(r'href="(?P<path>(?![a-z]+:|/)[^"#]*\.(?:md|ipynb))(?P<anchor>#[^"]*)?"')


def resolve(html: str, page: File, files: Files, warn: Callable[[str], None]) -> str:
    """Every href to a .md file becomes a link to its page, one to a notebook leads to that file from wherever the page lies."""

    def url(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.src_uri), match["path"]))
        found = files.get_file_from_path(target)
        if found is None:
            warn(f"{page.src_uri}: a link to {match['path']}, which does not exist")
            return match[0]
        return f'href="{found.url_relative_to(page)}{match["anchor"] or ""}"'

    return LINK.sub(url, html)
