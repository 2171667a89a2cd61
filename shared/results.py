"""Recorded runs: one JSON file a run under results/, with its evidence and the machine it came from.

The machine is written once a file. In memory every measured Evidence carries it, so that none can lose it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.evidence import Evidence, EvidenceError, format_value

SCHEMA_VERSION = 1
RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True)
class Run:
    """What one command showed. command: how to run it again; environment: shared.environment.capture() of that run."""

    title: str
    command: str
    environment: dict[str, Any]
    evidence: tuple[Evidence, ...]

    def __getitem__(self, name: str) -> Evidence:
        for entry in self.evidence:
            if entry.name == name:
                return entry
        raise KeyError(f"no evidence {name!r}; there is {', '.join(e.name for e in self.evidence)}")


def save(path: Path, title: str, command: str, evidence: Iterable[Evidence], environment: dict[str, Any] | None = None) -> Run:
    """Writes one run, whole or not at all. environment: that of the measured entries, else captured now.

    Raises EvidenceError for a name used twice, or for measured entries of different environments: those are two runs.
    """
    entries = [e.to_dict() for e in evidence]
    machines = [e["context"].pop("environment") for e in entries if e["label"] == "measured"]
    if environment is None:
        from shared.environment import capture

        environment = machines[0] if machines else capture()
    if any(machine != environment for machine in machines):
        raise EvidenceError(f"{path}: measured in different environments; capture one a run and pass it to each measured()")
    raw = {"schema": SCHEMA_VERSION, "title": title, "command": command, "environment": environment, "evidence": entries}
    run = _parse(raw, str(path))
    partial = Path(path).with_suffix(".partial")
    partial.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return run


def load(path: Path) -> Run:
    """Reads one run. Raises EvidenceError, naming the file, for anything that is not a complete record."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise EvidenceError(f"{path}: cannot be read as JSON: {e}") from e
    return _parse(raw, str(path))


def _parse(raw: Any, where: str) -> Run:
    fields = {"schema", "title", "command", "environment", "evidence"}
    if not isinstance(raw, dict) or set(raw) != fields:
        raise EvidenceError(f"{where}: a run has the fields {', '.join(sorted(fields))}")
    if raw["schema"] != SCHEMA_VERSION:
        raise EvidenceError(f"{where}: schema {raw['schema']!r} is not the one this code reads, {SCHEMA_VERSION}")
    kinds = {"title": str, "command": str, "environment": dict, "evidence": list}
    empty = [name for name, kind in kinds.items() if not (isinstance(raw[name], kind) and raw[name])]
    if empty:
        raise EvidenceError(f"{where}: empty, or not of the right kind: {', '.join(empty)}")
    try:
        evidence = tuple(Evidence.from_dict(_with_machine(entry, raw["environment"])) for entry in raw["evidence"])
    except EvidenceError as e:
        raise EvidenceError(f"{where}: {e}") from e
    names = [e.name for e in evidence]
    if len(set(names)) < len(names):
        raise EvidenceError(f"{where}: used twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    return Run(raw["title"], raw["command"], raw["environment"], evidence)


def _with_machine(entry: Any, environment: dict[str, Any]) -> Any:
    if isinstance(entry, dict) and entry.get("label") == "measured" and isinstance(entry.get("context"), dict):
        return {**entry, "context": {**entry["context"], "environment": environment}}
    return entry


def table(run: Run) -> str:
    """The run as a Markdown table, for a README or a page."""
    rows = ["| figure | value | spread | label |", "| --- | ---: | --- | --- |"]
    for e in run.evidence:
        repeats = e.context.get("repeats", 1)
        low, high = (format_value(e.context.get(end, 0.0), "") for end in ("min", "max"))
        spread = f"{low} – {high}, {repeats} runs" if repeats > 1 else ""
        rows.append(f"| {e.context.get('title', e.name)} | {format_value(e.value, e.unit)} | {spread} | {e.label} |")
    return "\n".join(rows)
