"""The stack picture: five layers as rows, and each series as a box across the layers that it covers."""

from __future__ import annotations

from html import escape

from module_list import href, series_uri

from shared.course import LAYERS, Course, Series

COLUMNS = 3  # for the series that keep to some layers; those that cover all stand beside, each in a column of its own
DECIDES = (
    "",
    "bytes and FLOPs a second",
    "one operation, one chip",
    "requests into batches",
    "many GPUs as one server",
    "which request goes where",
)


def stack(page: str, course: Course) -> str:
    """HTML for the page at this path within docs. In reading order from the gateway, at the top, down to the hardware."""
    num_layers = len(LAYERS) - 1
    whole = [series for series in course.series if len(series.layers) == num_layers]
    rest = sorted((series for series in course.series if series not in whole), key=lambda s: -max(s.layers))
    cells = [
        f'<div class="stack-layer" style="grid-row:{_row(n)}"><b>{LAYERS[n]}</b><span>{DECIDES[n]}</span></div>'
        for n in range(num_layers, 0, -1)
    ]
    columns = _columns(rest)
    cells += [_box(page, course, series, *columns[series.id]) for series in rest]
    cells += [_box(page, course, series, COLUMNS + n, COLUMNS + n + 1, "whole") for n, series in enumerate(whole, 1)]
    return (
        f'<nav class="stack" style="--stack-columns:{COLUMNS};--stack-whole:{len(whole)}" '
        f'aria-label="The stack of five layers, from the gateway above to the hardware below, and the series that cover them">'
        f"{''.join(cells)}</nav>"
    )


def _row(layer: int) -> int:
    return len(LAYERS) - layer


def _columns(placed: list[Series]) -> dict[str, tuple[int, int]]:
    """For each series its first column and the one after its last: the first free one, widened while the next is free too."""
    taken: dict[tuple[int, int], str] = {}
    first: dict[str, int] = {}
    for series in sorted(placed, key=lambda s: s.id):
        column = next(c for c in range(1, 99) if not any((layer, c) in taken for layer in series.layers))
        first[series.id] = column
        taken |= {(layer, column): series.id for layer in series.layers}
    if max(first.values()) > COLUMNS:
        raise ValueError(f"more than {COLUMNS} series share a layer; the stack picture needs another column")
    spans = {}
    for series in placed:
        end = first[series.id] + 1
        while end <= COLUMNS and not any((layer, end) in taken for layer in series.layers):
            end += 1
        spans[series.id] = (first[series.id], end)
    return spans


def _box(page: str, course: Course, series: Series, first: int, end: int, kind: str = "some") -> str:
    rows = f"{_row(max(series.layers))} / {_row(min(series.layers)) + 1}"
    count = len(course.modules_of(series.id))
    layers = ", ".join(LAYERS[n] for n in series.layers)
    return (
        f'<a class="stack-series {kind}" style="grid-row:{rows};grid-column:{first + 1} / {end + 1}" '
        f'href="{href(page, series_uri(series))}" title="{escape(series.question)}">'
        f"<b>{series.id.upper()}</b> <span>{escape(series.title)}</span>"
        f'<small>{count} modules<span class="visually-hidden"> on {layers}</span></small></a>'
    )
