"""Links of a notebook's prose: files beside it, anchors, the evidence its outputs show. Addresses on the web are not visited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from notebook_kit.anatomy import headings
from notebook_kit.cells import Notebook, NotebookError, read, slug
from notebook_kit.ledger import LINK as EVIDENCE_LINK
from notebook_kit.ledger import ledger, written
from notebook_kit.prose import without_code

LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\[[^\]]+\]:\s*(?P<target>\S+)", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:", "cite:")  # cite: has checks of its own


def faults(path: Path, notebook: Notebook, root: Path) -> Iterator[str]:
    try:
        entries = ledger(notebook)
    except NotebookError as e:
        yield str(e)
        return
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        prose = without_code(cell["source"])
        where = f"cell {cell.get('id')}"
        for match in EVIDENCE_LINK.finditer(prose):
            try:
                text = written(match, entries)
            except NotebookError as e:
                yield f"{where}: {e}"
                continue
            if match["text"] != text:
                yield f"{where}: says {match['text']!r} where evidence:{match['name']} is {text!r}; a run refreshes it"
        for match in LINK.finditer(prose):
            if match["image"] and not match["text"].strip():
                yield f"{where}: the image {match['target']} has no alt text"
        targets = [match["target"] for pattern in (LINK, DEFINITION) for match in pattern.finditer(prose)]
        targets += re.findall(r"<(?:a|img)\s[^>]*?(?:href|src)=[\"']([^\"']+)", prose)
        for target in targets:
            if fault := _target_fault(target, path, notebook, root):
                yield f"{where}: {fault}"


def _target_fault(target: str, path: Path, notebook: Notebook, root: Path) -> str | None:
    if target.startswith(ELSEWHERE):
        return None
    if target.startswith("evidence:"):
        readable = EVIDENCE_LINK.fullmatch(f"[]({target})")
        return None if readable else f"{target} is no evidence link: [text](evidence:name) or [text](evidence:name:.1f)"
    if re.match(r"[a-z][a-z0-9+.-]*:|/", target, re.IGNORECASE):
        return f"the link {target} works on one machine only; make it relative"
    file, _, anchor = target.partition("#")
    place = (path.parent / file).resolve() if file else path.resolve()
    if file and not (place.exists() and place.is_relative_to(root.resolve())):
        return f"the link {target} leads nowhere"
    if anchor and anchor not in (anchors(notebook) if not file else _anchors_of(place)):
        return f"the link {target} names no heading there; anchors are lower case, as in #explain-the-gap"
    return None


def anchors(notebook: Notebook) -> set[str]:
    return {slug(text) for cell in notebook["cells"] if cell["cell_type"] == "markdown" for _, text in headings(cell["source"])}


def _anchors_of(place: Path) -> set[str]:
    if place.suffix == ".ipynb":
        return anchors(read(place))
    return {slug(text) for _, text in headings(place.read_text(encoding="utf-8"))} if place.suffix == ".md" else set()
