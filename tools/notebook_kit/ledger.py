"""The evidence that a notebook's own outputs show, and the links in its prose that name it.

Prose writes `[16.06 GB](evidence:weights_8b)`: an entry that some output of this notebook shows, its text exactly as evidence
writes it; `[16.1 GB](evidence:weights_8b:.1f)` picks another format. A run rewrites the texts, so no measured number in prose is
stale.
"""

from __future__ import annotations

import re

from notebook_kit.cells import Cell, Notebook, NotebookError
from shared.comparison import collect
from shared.evidence import Evidence, EvidenceError
from shared.rendering import MIME, format_value

LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\(evidence:(?P<name>[a-z0-9][a-z0-9_.-]*)(?::(?P<spec>[^)\s]*))?\)")


def documents(cell: Cell) -> list[dict]:
    """The evidence documents among a cell's outputs."""
    return [output["data"][MIME] for output in cell.get("outputs", []) if MIME in output.get("data", {})]


def ledger(notebook: Notebook) -> dict[str, Evidence]:
    """Every entry shown, by name, in order. Raises NotebookError for a name that stands for two numbers."""
    found: dict[str, Evidence] = {}
    for cell in notebook["cells"]:
        for document in documents(cell):
            try:
                collect(document, found)
            except (EvidenceError, KeyError, TypeError) as e:
                raise NotebookError(f"cell {cell.get('id')}: {e}") from e
    return found


def written(match: re.Match, entries: dict[str, Evidence]) -> str:
    """What the text of a link should be. Raises NotebookError for a name nobody shows or a format Python does not know."""
    name, spec = match["name"], match["spec"] or ""
    if name not in entries:
        known = ", ".join(entries) or "none"
        raise NotebookError(f"evidence:{name} names nothing that an output of this notebook shows; shown: {known}")
    try:
        return format_value(entries[name].value, entries[name].unit, spec).replace("$", r"\$")  # or Jupyter takes it for math
    except ValueError as e:
        raise NotebookError(f"evidence:{name}:{spec}: {e}") from e


def refresh(notebook: Notebook) -> None:
    """Rewrites, in place, the text of every evidence link to what the outputs say; one that names nothing stays."""
    entries = ledger(notebook)

    def replace(match: re.Match) -> str:
        try:
            return match[0].replace(f"[{match['text']}]", f"[{written(match, entries)}]", 1)
        except NotebookError:
            return match[0]

    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(replace, cell["source"])
