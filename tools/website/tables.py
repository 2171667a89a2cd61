"""The hardware and model tables as HTML: sortable, each cell with its source, unverified ones marked, a list of sources below."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared import budget, hardware, models
from shared.course import Course
from shared.sources import Source
from shared.units import bytes_text

HOW = {
    "read": "read in the source itself",
    "copy": "read in a second-hand copy",
    "computed": "computed from values that were read",
    "memory": "written from memory, not looked up: the calculators refuse it unless asked",
}
PEAKS = (("bf16", "fp32"), ("fp16", "fp32"), ("fp16", "fp16"), ("fp8", "fp32"), ("int8", "int32"), ("fp4", "fp32"))


@dataclass(frozen=True)
class Cell:
    """One value. shown: as HTML text; sort: what the column is ordered by; source: None where the table says nothing."""

    shown: str
    sort: float | str
    source: Source | None = None
    note: str = ""


EMPTY = Cell("", "")


def hardware_table(page_uri: str, course: Course) -> str:
    """Every accelerator of shared/hardware.toml. Bandwidths in GB/s, peaks in TFLOP/s (TOP/s for int8), dense."""
    columns = ["Accelerator", "Memory", "Bandwidth GB/s", *(_peak_title(*peak) for peak in PEAKS)]
    columns += ["L2", "Multi&shy;processors", "Shared memory each", "Power W", "Best GEMM % of peak", "Price $/h", "Links GB/s"]
    rows = [_accelerator(hardware.load(name, allow_unverified=True)) for name in hardware.names()]
    return table("Accelerators", columns, rows)


def _peak_title(dtype: str, accumulate: str) -> str:
    into = "" if accumulate in ("fp32", "int32") else f" into {accumulate}"
    return f"{dtype}{into} {'TOP/s' if dtype == 'int8' else 'TFLOP/s'}"


def _accelerator(gpu: hardware.Accelerator) -> list[Cell]:
    def fact(name: str, show) -> Cell:
        found = gpu.facts.get(name)
        return Cell(show(found.value), found.value, found.source, found.note) if found else EMPTY

    peaks = {(peak.dtype, peak.accumulate): peak.fact for peak in gpu.peaks}

    def peak(key: tuple[str, str]) -> Cell:
        found = peaks.get(key)
        return Cell(f"{found.value / 1e12:,.5g}", found.value, found.source, found.note) if found else EMPTY

    return [
        Cell(html.escape(gpu.name), gpu.name.lower()),
        fact("memory", _memory),
        fact("bandwidth", lambda v: f"{v / 1e9:,.5g}"),
        *(peak(key) for key in PEAKS),
        fact("l2", _memory),
        fact("multiprocessors", lambda v: f"{v:,.0f}"),
        fact("shared_memory", _memory),
        fact("power", lambda v: f"{v:,.0f}"),
        fact("gemm_share", lambda v: f"{100 * v:.1f}"),
        fact("price_per_hour", lambda v: f"{v:,.2f}"),
        _links(gpu.links),
    ]


def _memory(size: float) -> str:
    """In the unit in which it is a round number: cards are sold in GB, built in GiB, and report MiB."""
    for unit, scale in (("GiB", 2**30), ("GB", 1e9), ("MiB", 2**20), ("MB", 1e6), ("KiB", 2**10)):
        if size >= scale and abs(size / scale - round(size / scale)) < 1e-9:
            return f"{size / scale:,.0f} {unit}"
    return bytes_text(size)


def _links(links: Sequence[hardware.Link]) -> Cell:
    if not links:
        return EMPTY
    parts = [_sourced(f"{link.kind}: {link.each_way / 1e9:,.5g}", link.fact.source, link.fact.note) for link in links]
    return Cell("<br>".join(parts), max(link.each_way for link in links))


def model_table(page_uri: str, course: Course) -> str:
    """Every model of shared/models.toml: its shape, then what follows from it (computed by shared/budget.py)."""
    columns = ["Model", "Parameters", "Active a token", "KV cache a token, bf16", "Weights, bf16", "Layers", "Hidden size"]
    columns += ["Query heads", "KV heads", "Head size", "MLP size", "Vocabulary", "Context", "Experts", "Window"]
    rows = [_model(models.load(name, allow_unverified=True)) for name in models.names()]
    return table("Models", columns, rows)


def _model(model: models.Model) -> list[Cell]:
    def field(name: str) -> Cell:
        number = getattr(model, name)
        return Cell(f"{number:,}", number, model.source_of(name))

    def derived(number: float, shown: str, formula: str) -> Cell:
        shape = ("num_layers", "num_kv_heads", "head_dim", "intermediate_size", "mla", "moe")
        sources = [model.source_of(name) for name in shape]
        source = next((s for s in sources if not s.verified), sources[0])
        return Cell(shown, number, source, f"computed by {formula} from the shape")

    cache = budget.next_token_kv_bytes(model)
    total, active, weights = budget.num_parameters(model), budget.active_parameters(model), budget.weight_bytes(model)
    moe, mla = model.moe, model.mla
    experts = Cell(f"{moe.num_active} of {moe.num_experts}", moe.num_experts, model.source_of("moe")) if moe else EMPTY
    latent = Cell("latent", 0, model.source_of("mla"), "multi-head latent attention: keys and values come from one short vector")
    return [
        Cell(html.escape(model.name), model.name.lower()),
        derived(total, _count(total), "shared.budget.num_parameters"),
        derived(active, _count(active), "shared.budget.active_parameters"),
        derived(cache, bytes_text(cache), "shared.budget.next_token_kv_bytes"),
        derived(weights, bytes_text(weights), "shared.budget.weight_bytes"),
        field("num_layers"),
        field("hidden_size"),
        field("num_heads"),
        *([latent, latent] if mla else [field("num_kv_heads"), field("head_dim")]),
        field("intermediate_size"),
        field("vocab_size"),
        field("stated_context"),
        experts,
        field("sliding_window") if model.sliding_window else EMPTY,
    ]


def _count(number: float) -> str:
    for name, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.4g} {name}"
    return f"{number:,.0f}"


def table(caption: str, columns: Iterable[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A sortable table in a box of its own; below it, its cells' sources, if they have any."""
    used = {cell.source.id: cell.source for row in rows for cell in row if cell.source}
    head = "".join(f'<th scope="col">{title}</th>' for title in columns)
    body = "\n".join(
        f'<tr><th scope="row" data-sort="{html.escape(str(row[0].sort))}">{row[0].shown}</th>'
        + "".join(f'<td data-sort="{cell.sort}">{_sourced(cell.shown, cell.source, cell.note)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    box = (
        f'<div class="table-box" tabindex="0" role="region" aria-label="{caption}, a wide table">\n'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>\n</div>\n\n'
    )
    if not used:
        return box
    past = '<p class="skip-table"><a href="#sources">Past the table, to its sources</a></p>'
    return f"{past}\n{box}## Sources\n\n{_source_list(used.values())}"


def _sourced(shown: str, source: Source | None, note: str) -> str:
    """The value as a link to its source; a title, which evidence.js turns into a card, says it on the spot."""
    if not shown or source is None:
        return shown
    said = html.escape(". ".join(text for text in (note, f"{source.title} ({source.date}): {HOW[source.how]}") if text))
    doubt = "" if source.verified else '<span class="unverified" role="img" aria-label="unverified">?</span>'
    return f'<a class="sourced" href="#source-{source.id}" title="{said[:1].upper()}{said[1:]}">{shown}{doubt}</a>'


def _source_list(sources: Iterable[Source]) -> str:
    items = "\n".join(
        f'<li id="source-{source.id}">{html.escape(source.title)} ({source.date}) <em>{HOW[source.how]}</em></li>'
        for source in sources
    )
    return f'<ul class="sources" markdown="0">\n{items}\n</ul>'


MARKERS = {"hardware": hardware_table, "models": model_table}
