"""Notebooks as files: built from a list of cells, read, brought into one normal form, written only when something changed.

The normal form holds nothing that differs from machine to machine or from run to run, outputs aside: fixed cell ids, no
execution times, no widget state, one kernel name, execution counts 1, 2, 3.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_METADATA = ("tags", "alt")
WIDGET = "application/vnd.jupyter.widget-view+json"
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class NotebookError(Exception):
    """A notebook that cannot be read, written or run; one line, or a line and what the cell printed."""


def write(path: str | Path, cells: Iterable[Sequence[Any]]) -> Path:
    """Makes a notebook, without outputs, from ("md", text), ("code", source) or ("code", source, {"tags": [...], "alt": "..."}).

    Indentation and blank lines around a text are removed, so triple-quoted strings may follow their code. Ids come from what the
    cells say: the same list gives the same file. Folders are made. Raises NotebookError for a cell of another form.
    """
    notebook: Notebook = {"cells": [_cell(number, cell) for number, cell in enumerate(cells, 1)]}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, notebook)
    return path


def read(path: Path) -> Notebook:
    """The notebook as plain JSON, texts joined. Raises NotebookError for a file that is not a version 4 notebook."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if notebook["nbformat"] != 4:
            raise NotebookError(f"{path}: nbformat {notebook['nbformat']}, this tool reads 4")
        for cell in notebook["cells"]:
            cell["source"] = _joined(cell["source"])
            for output in cell.get("outputs", []):
                _join_output(output)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise NotebookError(f"{path}: cannot be read as a notebook: {type(e).__name__}: {e}") from e
    return notebook


def save(path: Path, notebook: Notebook) -> bool:
    """Writes the normal form, whole or not at all; says whether the file changed."""
    text = json.dumps(normalised(notebook), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return True


def normalised(notebook: Notebook) -> Notebook:
    """A copy in normal form. Ids that are there and unique are kept."""
    cells = [_normal_cell(cell) for cell in notebook["cells"]]
    taken: set[str] = set()
    for cell in cells:
        known = cell["id"]
        cell["id"] = known if known and ID.fullmatch(known) and known not in taken else _new_id(cell, taken)
        taken.add(cell["id"])
    count = 0
    for cell in cells:
        if cell["cell_type"] == "code" and cell["execution_count"] is not None:
            count += 1
            cell["execution_count"] = count
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = count
    metadata: dict[str, Any] = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    if ran := notebook.get("metadata", {}).get("minillm"):
        metadata["minillm"] = ran
    return {"cells": [_with_lines(cell) for cell in cells], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def code_hash(notebook: Notebook) -> str:
    """Of all code, in order: stored by a run, so that code edited since is noticed even where outputs are not compared."""
    code = [cell["source"].strip() for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def tags(cell: Cell) -> set[str]:
    return set(cell.get("metadata", {}).get("tags", []))


def has_figure(cell: Cell) -> bool:
    return any(mime.startswith("image/") for output in cell.get("outputs", []) for mime in output.get("data", {}))


def slug(text: str) -> str:
    """The anchor that a heading gets on the site and on GitHub: lower case, words joined by hyphens."""
    text = unicodedata.normalize("NFKC", text).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip())


def _cell(number: int, cell: Sequence[Any]) -> Cell:
    kind, text, *rest = cell if isinstance(cell, tuple | list) and len(cell) in (2, 3) else (None, None)
    metadata = rest[0] if rest else {}
    if kind not in ("md", "code") or not isinstance(text, str) or set(metadata) - set(KEPT_METADATA):
        form = '("md", text) or ("code", source, {"tags": [...], "alt": "..."})'
        raise NotebookError(f"cell {number}: {form}, not {str(cell)[:80]}")
    source = textwrap.dedent(text).strip("\n").rstrip()
    return {"cell_type": "markdown" if kind == "md" else "code", "source": source, "metadata": dict(metadata)}


def _normal_cell(cell: Cell) -> Cell:
    metadata = {key: cell["metadata"][key] for key in KEPT_METADATA if cell.get("metadata", {}).get(key)}
    if alt := _alt_of_outputs(cell):
        metadata["alt"] = alt
    if "tags" in metadata:
        metadata["tags"] = sorted(set(metadata["tags"]))
    normal = {"cell_type": cell["cell_type"], "id": cell.get("id"), "metadata": metadata, "source": cell["source"]}
    if cell["cell_type"] == "code":
        outputs = [_normal_output(output) for output in cell.get("outputs", [])]
        normal |= {"execution_count": cell.get("execution_count"), "outputs": [output for output in outputs if output]}
    return normal


def _alt_of_outputs(cell: Cell) -> str | None:
    """The alt text that shared/plots.py stores with a figure; the code that drew it knows best what it shows."""
    metadata = [of_mime for output in cell.get("outputs", []) for of_mime in output.get("metadata", {}).values()]
    return next((of_mime["alt"] for of_mime in metadata if isinstance(of_mime, dict) and of_mime.get("alt")), None)


def _normal_output(output: dict[str, Any]) -> dict[str, Any] | None:
    output = {key: value for key, value in output.items() if key not in ("metadata", "transient")}
    if "data" in output:
        output["data"] = {mime: value for mime, value in output["data"].items() if mime != WIDGET}
        output["metadata"] = {}
        if not output["data"]:
            return None
    return output


def _new_id(cell: Cell, taken: set[str]) -> str:
    """From the heading or the first line of code; a number where that is taken. ASCII only, as the format demands."""
    lines = [line for line in cell["source"].splitlines() if line.strip()] or [cell["cell_type"]]
    ascii_only = unicodedata.normalize("NFKD", lines[0]).encode("ascii", "ignore").decode()
    base = "-".join(re.findall(r"[a-z0-9]+", ascii_only.lower()))[:40].strip("-") or cell["cell_type"]
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def _with_lines(cell: Cell) -> Cell:
    """Texts as lists of lines, as Jupyter writes them: a diff then shows lines."""
    cell = {**cell, "source": cell["source"].splitlines(keepends=True)}
    for output in cell.get("outputs", []):
        if "text" in output:
            output["text"] = output["text"].splitlines(keepends=True)
        for mime, value in output.get("data", {}).items():
            if isinstance(value, str) and not mime.startswith("image/png"):
                output["data"][mime] = value.splitlines(keepends=True)
    return cell


def _join_output(output: dict[str, Any]) -> None:
    if "text" in output:
        output["text"] = _joined(output["text"])
    for mime, value in output.get("data", {}).items():
        if isinstance(value, list) and not mime.endswith("json"):
            output["data"][mime] = _joined(value)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
