"""What the calculators know: shared/models.toml and shared/hardware.toml as a script, and which pages load which scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

from shared import hardware, models
from shared.course import Course
from shared.sources import Source

DATA = Path("assets/js/calc/data.js")  # within docs; written by each build, not committed
ELEMENT = re.compile(r"<(memory|roofline|cost)-calculator\b")
COMMON = ("data", "core", "units", "state", "form", "facts", "plot")  # in the order in which they need each other
MODEL_FIELDS = [f.name for f in fields(models.Model) if f.name not in ("source", "other_sources", "aliases", "published_params")]


def write(course: Course, docs: Path, warn: Callable[[str], None]) -> None:
    """A plug of markers.py: the tables' values, in base units, as `window.course.tables`. An unchanged file keeps its time."""
    text = script()
    target = docs / DATA
    if not target.is_file() or target.read_text("utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


def head(html: str, up: str) -> str:
    """What a page's <head> needs for the calculators in it; empty where there are none. up: the way to the site's root."""
    kinds = list(dict.fromkeys(ELEMENT.findall(html)))
    style = f'<link rel="stylesheet" href="{up}assets/css/calculators.css">' if kinds or 'class="calc-cards"' in html else ""
    names = (*COMMON, *kinds) if kinds else ()
    return style + "".join(f'<script src="{up}assets/js/calc/{name}.js" defer></script>' for name in names)


def script() -> str:
    body = json.dumps(tables(), ensure_ascii=False, separators=(",", ":"))
    return f"(window.course = window.course || {{}}).tables = {body};\n"


def tables() -> dict:
    """{"models": [...], "accelerators": [...]} in the order of the tables; every value from memory is marked so."""
    return {
        "models": [_model(models.load(name, allow_unverified=True)) for name in models.names()],
        "accelerators": [_accelerator(hardware.load(name)) for name in hardware.names()],
    }


def _model(model: models.Model) -> dict:
    """The model's fields in camelCase; unverified: those nobody looked up."""
    return {
        **{_camel(name): _plain(getattr(model, name)) for name in MODEL_FIELDS},
        "unverified": [_camel(name) for name in MODEL_FIELDS if not model.source_of(name).verified],
        "source": _source(model.source_of("num_layers")),
    }


def _accelerator(gpu: hardware.Accelerator) -> dict:
    facts = {_camel(name): _fact(gpu.facts[name]) for name in ("memory", "bandwidth", "price_per_hour") if name in gpu.facts}
    peaks = [{"dtype": p.dtype, "accumulate": p.accumulate, **_fact(p.fact)} for p in gpu.peaks]
    return {"id": gpu.id, "name": gpu.name, **facts, "peaks": peaks}


def _fact(fact: hardware.Fact) -> dict:
    return {"value": fact.value, "note": fact.note, "source": _source(fact.source)}


def _source(source: Source) -> dict:
    return {"title": source.title, "date": source.date, "verified": source.verified}


def _plain(value):
    if is_dataclass(value):
        return {_camel(f.name): getattr(value, f.name) for f in fields(value)}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
