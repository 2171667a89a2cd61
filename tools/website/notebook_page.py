"""A notebook as one Markdown page: prose as it is, inputs and outputs told apart, figures as files beside it."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from module_list import pages_of_notebooks

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
Warn = Callable[[str], None]
FIGURES = (("image/svg+xml", "svg"), ("image/png", "png"))


@dataclass
class Page:
    """markdown: the page's text; files: {name: bytes} to lie beside it."""

    markdown: str
    files: dict[str, bytes] = field(default_factory=dict)


def convert(notebook: dict, stem: str, warn: Warn, shows: Mapping[str, Callable[[dict], str]] = MappingProxyType({})) -> Page:
    """notebook: parsed JSON of an .ipynb file, outputs included; stem: its file name without suffix.

    warn is told of what a reader would miss: a figure without alt text, an error among the outputs.
    shows: for a mime type, what turns an output of that type into HTML; preferred to the output's other forms.
    """
    page = Page("")
    parts = []
    for cell in notebook["cells"]:
        source, tags = text_of(cell["source"]), cell.get("metadata", {}).get("tags", [])
        if "remove-cell" in tags:
            continue
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            if source.strip() and "hide-input" not in tags:
                parts.append(_fence(source, "python", "nb-input"))
            for output in cell.get("outputs", []):
                parts.append(_own(output, shows) or _output(output, cell.get("metadata", {}), stem, page, warn))
    page.markdown = pages_of_notebooks("\n\n".join(part for part in parts if part))
    return page


def text_of(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _own(output: dict, shows: Mapping[str, Callable[[dict], str]]) -> str:
    """The output in a form of the site's own, where it has one."""
    return next((_html(show(output["data"][mime])) for mime, show in shows.items() if mime in output.get("data", {})), "")


def _output(output: dict, metadata: dict, stem: str, page: Page, warn: Warn) -> str:
    if output["output_type"] == "stream":
        return _fence(ANSI.sub("", text_of(output["text"])), "text", "nb-output") if output.get("name") == "stdout" else ""
    if output["output_type"] == "error":
        if "raises-exception" not in metadata.get("tags", []):
            warn(f"a cell ends in {output['ename']}")
        return _fence(ANSI.sub("", f"{output['ename']}: {output['evalue']}"), "text", "nb-output nb-error")
    data = output["data"]
    for mime, suffix in FIGURES:
        if mime in data:
            return _figure(text_of(data[mime]), suffix, metadata, stem, page, warn)
    if "text/html" in data:
        return _html(text_of(data["text/html"]))
    if "text/markdown" in data:
        return text_of(data["text/markdown"])
    return _fence(text_of(data["text/plain"]), "text", "nb-output") if "text/plain" in data else ""


def _figure(raw: str, suffix: str, metadata: dict, stem: str, page: Page, warn: Warn) -> str:
    content = raw.encode() if suffix == "svg" else base64.b64decode(raw)
    name = f"{stem}-figure-{len(page.files) + 1}.{suffix}"
    page.files[name] = content
    alt = metadata.get("alt")
    if not alt:
        warn(f"figure {len(page.files)} has no alt text (`alt` in its cell's metadata)")
    width, height = SIZE[suffix](content)
    attributes = f'loading=lazy width="{width}" height="{height}"'  # so that the text below does not move when the figure comes
    return f'<figure class="nb-figure" markdown="1">\n\n![{_escape(alt or name)}]({name}){{ {attributes} }}\n\n</figure>'


def _svg_size(content: bytes) -> tuple[int, int]:
    """From its viewBox, in units of its own; only their ratio matters here."""
    box = re.search(rb'<svg[^>]*viewBox="([^"]+)"', content)
    _, _, width, height = map(float, box[1].split()) if box else (0, 0, 4, 3)
    return round(width), round(height)


def _png_size(content: bytes) -> tuple[int, int]:
    """From its header: two integers of four bytes, 16 bytes from the start."""
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


SIZE = {"svg": _svg_size, "png": _png_size}


def _html(source: str) -> str:
    """An output that is HTML already. Blank lines would end the block for Markdown; wide ones scroll in their own box."""
    source = re.sub(r"<style.*?</style>", "", source, flags=re.S)
    source = re.sub(r"\n\s*\n", "\n", source).strip()
    scrolls = ' tabindex="0" role="region" aria-label="Output of the cell above"' if "<table" in source else ""
    return f'<div class="nb-html"{scrolls} markdown="0">\n{source}\n</div>'


def _fence(body: str, language: str, classes: str) -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", body)), default=0))
    return f"{ticks}{{.{language} .{' .'.join(classes.split())}}}\n{body.rstrip()}\n{ticks}"


def _escape(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False).replace("[", "(").replace("]", ")")
