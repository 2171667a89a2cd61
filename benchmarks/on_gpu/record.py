"""From what the processes found to a file of the repository's results."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from on_gpu.process import Found
from shared.evidence import Evidence, EvidenceError, computed, measured
from shared.results import RESULTS, save

ABSENT = dict.fromkeys(("checkpoint", "dtype", "input_tokens", "output_tokens", "concurrency"))
CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu")


def environment(card: Mapping[str, Any]) -> dict[str, Any]:
    """shared.environment.capture(), with the card as CUDA sees it and, where nvidia-smi is, its clocks at the start."""
    from shared.environment import capture

    machine = capture()
    machine["gpus"] = machine["gpus"] or [{"name": card["name"], "memory_bytes": card["memory_bytes"], "driver": None}]
    return {**machine, "card": dict(card), "clocks": clocks()}


def clocks() -> dict[str, str]:
    """As nvidia-smi words them, of the first card; empty without it."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(CLOCKS, (cell.strip() for cell in text.split(",")), strict=False))


def evidence(found: Mapping[str, Found], machine: Mapping[str, Any]) -> list[Evidence]:
    """All rows, and for each section how many of its cases failed, with the cause of each, and which were cut off."""
    entries = []
    for section, piece in found.items():
        failed, names = dict(piece.failed), {e.name for e in entries}
        for row in piece.rows:
            try:
                if row["name"] in names:
                    raise EvidenceError(f"{row['name']} was found twice")
                entries.append(entry(row, machine))
            except EvidenceError as e:  # a number that is none (NaN, infinite) must not cost the others
                failed[row["name"]] = str(e)
            names.add(row["name"])
        facts = {"title": f"{section}: cases that failed", "failed": failed, "cut": piece.cut, "cases": len(piece.ended)}
        entries.append(measured(f"{section}.failed", len(failed), "", environment=machine, **ABSENT, **facts))
    return entries


def entry(row: Mapping[str, Any], machine: Mapping[str, Any]) -> Evidence:
    row = dict(row)
    label, name, unit = row.pop("label"), row.pop("name"), row.pop("unit")
    if label == "computed":
        return computed(name, row.pop("value"), unit, **row)
    return measured(name, row.pop("samples"), unit, environment=machine, **{**ABSENT, **row})


def default_path(card: str, date: str) -> Path:
    """results/gpu-<card>-<date>.json"""
    words = re.sub(r"[^a-z0-9]+", "-", card.lower().replace("nvidia", "")).strip("-")
    return RESULTS / f"gpu-{words}-{date[:10]}.json"


def write(path: Path, command: str, found: Mapping[str, Found], machine: Mapping[str, Any]) -> None:
    """After each section anew, so that a run that is cut off keeps what it has."""
    title = f"Kernels and minillm on {machine['card']['name']}"
    save(path, title, command, evidence(found, machine), dict(machine))
