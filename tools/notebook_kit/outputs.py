"""What is stored in a notebook: every cell run, nothing failed, no folder of one machine, each figure described and numbered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from notebook_kit.cells import WIDGET, Cell, Notebook, code_hash, has_figure, tags

UNCOMPARED = "nbval-ignore-output"
# Calls whose result differs from run to run. `time.time`, `environment.capture`: with the name before the dot.
CLOCKS = {"measured", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "timeit", "capture"}
DOTTED_CLOCKS = {"time.time", "time.time_ns", "environment.capture", "datetime.now", "evidence.measured"}
FOLDER = re.compile(r"(?<![\w.~:/])/(?:home|root|Users|tmp|work|opt|mnt|usr|var|workspace|private)/[\w.]|\b[A-Z]:\\\\?Users\b")


def faults(notebook: Notebook) -> Iterator[str]:
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    yield from _staleness(notebook, code)
    for index, cell in enumerate(code):
        for what in (*_cell_faults(cell), *_figure_faults(code, index)):
            yield f"cell {cell.get('id')}: {what}"
    for cell in notebook["cells"]:
        texts = [cell["source"], *(text for output in cell.get("outputs", []) for text in _texts(output))]
        if place := next((match[0] for text in texts if (match := FOLDER.search(text))), None):
            yield f"cell {cell.get('id')}: names a folder of one machine, {place}…"


def _staleness(notebook: Notebook, code: list[Cell]) -> Iterator[str]:
    unrun = [str(cell.get("id")) for cell in code if cell.get("execution_count") is None]
    if unrun:
        yield f"has cells that never ran: {', '.join(unrun)}; `python tools/notebooks.py run` runs and writes it"
        return
    if notebook.get("metadata", {}).get("minillm", {}).get("code") != code_hash(notebook):
        yield "holds outputs of other code than it shows; `python tools/notebooks.py run` brings them up to date"
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        yield "was not run from top to bottom; `python tools/notebooks.py run` does that"


def _cell_faults(cell: Cell) -> Iterator[str]:
    outputs = cell.get("outputs", [])
    for output in outputs:
        if output["output_type"] == "error" and "raises-exception" not in tags(cell):
            yield f"ends in an error, {output['ename']}: {output['evalue']}"
        if output.get("name") == "stderr":
            yield f"writes to stderr: {output['text'].strip()[:100]!r}; find out why, and mend or mute it in the code"
        if WIDGET in output.get("data", {}):
            yield "holds a widget, which is empty wherever it is read; print text instead"
    if outputs and UNCOMPARED not in tags(cell) and (call := _clock(cell["source"])):
        yield f"calls {call} and shows something: tag it {UNCOMPARED}, and print what must not change in a cell of its own"


def _figure_faults(code: list[Cell], index: int) -> Iterator[str]:
    cell = code[index]
    if not has_figure(cell):
        if re.search(r"\balt\s*=(?!=)", cell["source"]):  # every figure of shared.plots is given one
            yield "draws a figure and does not show it: make the plot the cell's last expression"
        return
    if not str(cell.get("metadata", {}).get("alt", "")).strip():
        yield 'shows a figure without alt text: draw it with shared.plots, or put "alt" into the cell\'s metadata'
    if not any(_prints_number(neighbour) for neighbour in code[max(index - 1, 0) : index + 2]):
        yield "shows a figure, which a re-run cannot compare: print one number from it, here or in the next cell, untagged"


def _prints_number(cell: Cell) -> bool:
    """Whether the cell's text holds a number and a re-run compares it."""
    if UNCOMPARED in tags(cell):
        return False
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", [])]
    return any(re.search(r"\d", text) and not text.startswith(("<Figure", "[figure:")) for text in texts)


def _clock(source: str) -> str | None:
    """The first call, outside function bodies, whose result differs from run to run."""
    if magic := re.search(r"^\s*%%?(?:time|timeit)\b", source, re.MULTILINE):
        return magic[0].strip()
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
    try:
        tree = compile(plain, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return None  # a cell that Python cannot read shows an error, which is a fault of its own
    return next((name for node in _run_now(tree) if isinstance(node, ast.Call) and (name := _clock_name(node.func))), None)


def _run_now(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs with the cell: bodies of functions run when they are called."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _run_now(child)


def _clock_name(function: ast.expr) -> str | None:
    name = ast.unparse(function)
    last_two = ".".join(name.split(".")[-2:])
    return name if name in CLOCKS or last_two in DOTTED_CLOCKS or last_two.split(".")[-1] in CLOCKS - {"capture"} else None


def _texts(output: dict[str, Any]) -> Iterator[str]:
    yield output.get("text", "")
    yield "\n".join(output.get("traceback", []))
    for mime, value in output.get("data", {}).items():
        if not mime.startswith("image/png"):
            yield value if isinstance(value, str) else str(value)
