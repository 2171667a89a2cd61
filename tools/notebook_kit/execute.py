"""Runs a notebook from top to bottom in a fresh kernel, in its own folder, without a network, and stores what it printed."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from notebook_kit import card, ledger
from notebook_kit.cells import Notebook, NotebookError, code_hash, normalised, read, save, tags

BUDGET_S = 30.0
SLOW_START_BUDGET_S = 60.0  # a server or two processes must start: a cell tagged slow-start says so
CELL_TIMEOUT_S = 120
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm's, wherever there are no widgets
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Outcome:
    """One run. changed: the file differs from before; seconds: from the kernel's start to its end, cpu_seconds: of CPU time then.

    Far fewer CPU seconds than seconds: the notebook waited, for a server or for other work on this machine.
    """

    path: Path
    changed: bool
    seconds: float
    cpu_seconds: float
    budget: float

    @property
    def within_budget(self) -> bool:
        return self.seconds <= self.budget


def run(path: str | Path, cell_timeout: float = CELL_TIMEOUT_S) -> Outcome:
    """Executes one notebook, refreshes the evidence in its prose, and writes it in normal form if anything changed.

    Threads are the caller's to choose (OMP_NUM_THREADS). Raises NotebookError, and leaves the file as it was, when a cell fails
    or takes longer than cell_timeout seconds.
    """
    path = Path(path)
    notebook = normalised(read(path))
    node = nbformat.from_dict(_joined_cells(notebook))
    client = NotebookClient(
        node,
        timeout=cell_timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        coalesce_streams=True,
    )
    begin, cpu_begin = time.perf_counter(), _cpu_of_children()
    try:
        client.execute(env=os.environ | SETTINGS, stderr=subprocess.DEVNULL)  # a cell's own stderr is an output, not this
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as e:
        raise NotebookError(f"{path}: {_failure(node, e)}") from e
    seconds, cpu_seconds = time.perf_counter() - begin, _cpu_of_children() - cpu_begin
    ran: Notebook = dict(node)
    ran["metadata"] = {"minillm": {"code": code_hash(ran)}}
    card.refresh(path, ran)
    ledger.refresh(ran)
    slow = any("slow-start" in tags(cell) for cell in ran["cells"])
    return Outcome(path, save(path, ran), seconds, cpu_seconds, SLOW_START_BUDGET_S if slow else BUDGET_S)


def _cpu_of_children() -> float:
    """CPU seconds of all child processes that have ended: a kernel's, once it is shut down."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _joined_cells(notebook: Notebook) -> Mapping:
    cells = [{**cell, "source": "".join(cell["source"])} for cell in notebook["cells"]]
    for cell in cells:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return {**notebook, "cells": cells}


def _failure(node: nbformat.NotebookNode, error: Exception) -> str:
    """Which cell, its code and what it raised; without the client's own traceback."""
    failed = [cell for cell in node.cells if any(output.output_type == "error" for output in cell.get("outputs", []))]
    if isinstance(error, CellExecutionError) and failed:
        cell = failed[-1]
        raised = next(output for output in cell.outputs if output.output_type == "error")
        trace = "\n".join(raised.get("traceback", []))
        return f"cell {cell.id} failed: {raised.ename}: {raised.evalue}\n\n{cell.source}\n\n{trace}"
    return f"{type(error).__name__}: {str(error).strip()}"
