"""The table of kernels: what kernels/compiled.json holds, a row for each variant and architecture."""

from __future__ import annotations

import html
import json
from pathlib import Path

from tables import Cell, table

from shared.course import Course

COMPILED = Path(__file__).resolve().parents[2] / "kernels/compiled.json"
COLUMNS = ["Variant", "For", "Registers", "Spilled bytes", "Shared memory KB", "Warps", "Occupancy %", "Limited by"]
COLUMNS += ["Widest load, bits", "Tensor-core instructions"]


def kernels(page_uri: str, course: Course) -> str:
    """Whole table, sorted as in the file."""
    return table("Kernels", COLUMNS, [_row(row) for row in json.loads(COMPILED.read_text("utf-8"))["rows"]])


def _row(row: dict) -> list[Cell]:
    occupancy, limiter = row.get("occupancy"), row.get("limiter") or ""
    return [
        Cell(html.escape(row["name"]), row["name"]),
        Cell(row["arch"], row["arch"]),
        _number(row["registers"]),
        _number(row["spill_bytes"]),
        Cell(f"{row['shared_bytes'] / 1e3:,.1f}", row["shared_bytes"]),
        _number(row["num_warps"]),
        Cell("" if occupancy is None else f"{100 * occupancy:.0f}", occupancy or 0),
        Cell(html.escape(limiter), limiter),
        _number(row["widest_load"]),
        _number(row["tensor_core_instructions"]),
    ]


def _number(value: int | None) -> Cell:
    return Cell("", -1) if value is None else Cell(f"{value:,}", value)


MARKERS = {"kernels": kernels}
