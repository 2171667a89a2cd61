"""Everything that can be said about a notebook without running it. Whether its outputs still come out is nbval's to say."""

from __future__ import annotations

from pathlib import Path

from notebook_kit import anatomy, citations, links, outputs
from notebook_kit.card import without_card
from notebook_kit.cells import Notebook, NotebookError, read
from notebook_kit.prose import bare_numbers

ROOT = Path(__file__).resolve().parents[2]


def check(path: Path, root: Path = ROOT) -> list[str]:
    """What is wrong, one line each; empty for a notebook that may be published. root: where its labs/ and other pages lie."""
    try:
        notebook = read(path)
    except NotebookError as e:
        return [str(e)]
    return [
        *anatomy.faults(path, notebook, root),
        *outputs.faults(notebook),
        *links.faults(path, notebook, root),
        *citations.faults(notebook),
        *_number_faults(notebook),
    ]


def _number_faults(notebook: Notebook) -> list[str]:
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            found += [
                f"cell {cell.get('id')}: {number!r} carries no label; show it as evidence and write [{number}](evidence:name)"
                for number in bare_numbers(without_card(cell["source"]))
            ]
    return found
