"""Figures in one style for the notebooks and the site: readable on white and on #111, at 390 px, without colour vision.

    plots.predicted_and_measured({"": (x, y)}, {"": (x, seen)}, alt="...", xlabel="context (tokens)", ylabel="seconds")

Each function returns a Plot, which a notebook shows as SVG when it is a cell's last value. The alt text is required: it goes
into the SVG (role, aria-label and title), into the output's plain text, and into the output's metadata under "alt", from where
a tool can copy it into the cell's. A series is told apart by its marker, dash or hatch as well as by its colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.hardware import Ceilings
from shared.plot_svg import HATCHES, INK, MARKERS, PALETTE, STYLE, matplotlib, to_svg

WIDTH, HEIGHT = 5.0, 3.3  # inches: 480 px on a desktop; at 358 px, the text column of a phone, text is still 11 px
Line = tuple[Sequence[float], Sequence[float]]  # x, y
Points = tuple[Sequence[float], ...]  # x, y, or x, y, low, high
DASHES = ("-", "--", ":", "-.")


class Plot:
    """A figure with its alt text. axes: matplotlib's, to add to; `legend()` afterwards. Shows itself in a notebook."""

    def __init__(self, figure: Any, axes: Any, alt: str):
        self.figure, self.axes, self.alt = figure, axes, alt

    def svg(self) -> str:
        """One <svg> element, the same bytes for the same content."""
        return to_svg(self.figure, self.alt)

    def save(self, path: str | Path) -> None:
        """Write the SVG. Raises ValueError for another ending than .svg."""
        if Path(path).suffix != ".svg":
            raise ValueError(f"{path}: plots are saved as .svg")
        Path(path).write_text(self.svg() + "\n", "utf-8")

    def legend(self) -> Plot:
        """Name the labelled series above the axes, where they hide no data. Returns the plot."""
        handles, labels = self.axes.get_legend_handles_labels()
        if any(labels):
            short = max(map(len, labels)) <= 12 and len(labels) % 3 == 0
            columns = 3 if short else 2
            with matplotlib("").rc_context(STYLE):
                place = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0, "ncols": columns}
                self.axes.legend(handles, labels, handlelength=2.2, columnspacing=1.2, **place)
        return self

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"image/svg+xml": self.svg(), "text/plain": f"[figure: {self.alt}]"}
        return data, {"image/svg+xml": {"alt": self.alt}}


def figure(*, alt: str, xlabel: str = "", ylabel: str = "", log: str = "", height: float = HEIGHT) -> Plot:
    """Empty axes in our style. Labels carry units: "context (tokens)".

    alt: what the figure shows, in a sentence or two, for someone who does not see it; above all the finding.
    log: "", "x", "y" or "xy". height: inches, at a width of 5. Raises ValueError for an empty alt text or another log.
    """
    if not alt.strip():
        raise ValueError("a figure needs alt text: say in a sentence what it shows")
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f'log is "", "x", "y" or "xy", not {log!r}')
    with matplotlib("").rc_context(STYLE):
        drawing = matplotlib("figure").Figure(figsize=(WIDTH, height), layout="constrained")
        matplotlib("backends.backend_svg").FigureCanvasSVG(drawing)
        axes = drawing.subplots()
        axes.set_prop_cycle(color=PALETTE)
        axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib("ticker").FuncFormatter(_tick))
        axis.set_minor_formatter(matplotlib("ticker").NullFormatter())
    return Plot(drawing, axes, " ".join(alt.split()))


def predicted_and_measured(
    predicted: Mapping[str, Line], measured: Mapping[str, Points], *, alt: str, xlabel: str, ylabel: str, log: str = ""
) -> Plot:
    """Lines for what was predicted, points for what was measured; entries of the same name share a colour.

    Each entry is x and y; a measured one may add the low and high end of its spread. A name may be "" if there is only one.
    """
    plot = figure(alt=alt, xlabel=xlabel, ylabel=ylabel, log=log)
    for i, name in enumerate(dict.fromkeys([*predicted, *measured])):
        color = PALETTE[i % len(PALETTE)]
        if name in predicted:
            x, y = predicted[name]
            plot.axes.plot(x, y, DASHES[i % len(DASHES)], color=color, label=_said(name, "predicted"))
        if name in measured:
            x, y, *spread = measured[name]
            bars = None
            if spread:
                low, high = spread
                bars = [[m - a for m, a in zip(y, low, strict=True)], [b - m for m, b in zip(y, high, strict=True)]]
            marker = MARKERS[i % len(MARKERS)]
            plot.axes.errorbar(x, y, bars, fmt=marker, color=color, capsize=3, elinewidth=1.5, label=_said(name, "measured"))
    if "x" in log:
        at = sorted({float(x) for points in (*predicted.values(), *measured.values()) for x in points[0]})
        if len(at) <= 8:  # powers of two fall between a logarithmic axis's own marks
            plot.axes.set_xticks(at)
            plot.axes.minorticks_off()
    if "y" not in log:
        plot.axes.set_ylim(bottom=0)
    return plot.legend()


def roofline(machines: Mapping[str, Ceilings], work: Mapping[str, tuple[float, float]], *, alt: str) -> Plot:
    """Roofs of one or more machines (or of one machine's formats), and work beneath them.

    work: name -> arithmetic intensity (FLOP/byte) and speed (FLOP/s), both above zero: measured, or the roof's own height.
    """
    plot = figure(alt=alt, xlabel="arithmetic intensity (FLOP/byte)", ylabel="FLOP/s", log="xy", height=HEIGHT + 0.12 * len(work))
    ridges = [m.peak_flops / m.bandwidth for m in machines.values()]
    seen = [intensity for intensity, _ in work.values()]
    left, right = min([*ridges, *seen]) / 8, max([*ridges, *seen]) * 8
    for i, (name, machine) in enumerate(machines.items()):
        ridge = machine.peak_flops / machine.bandwidth
        x = [left, ridge, right]
        y = [left * machine.bandwidth, machine.peak_flops, machine.peak_flops]
        plot.axes.plot(x, y, DASHES[i % len(DASHES)], color=INK, label=f"{name}, ridge {ridge:.3g}")
        plot.axes.axvline(ridge, color=INK, linewidth=1, linestyle=":", alpha=0.6)
    for i, (name, (intensity, speed)) in enumerate(work.items()):
        style = {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)], "linestyle": "none"}
        plot.axes.plot([intensity], [speed], label=name, **style)
    plot.axes.set_xlim(left, right)
    return plot.legend()


def bars(
    rows: Sequence[str], series: Mapping[str, Sequence[float]], *, alt: str, xlabel: str, stacked: bool = False, digits: int = 3
) -> Plot:
    """Horizontal bars, the first row on top: side by side for each series, or stacked to a sum.

    series: name -> one value a row; the name may be "" if there is only one. Values are printed at the end of each bar (of the
    whole stack), with `digits` significant digits, or as whole numbers from 1,000 on.
    Raises ValueError if a series has not one value for each row.
    """
    for name, values in series.items():
        if len(values) != len(rows):
            raise ValueError(f"series {name!r} has {len(values)} values for {len(rows)} rows")
    per_row = 1 if stacked else len(series)
    plot = figure(alt=alt, xlabel=xlabel, height=1.1 + 0.34 * max(2, len(rows) * per_row))
    thick = 0.8 / per_row
    ends = [0.0] * len(rows)
    for i, (name, values) in enumerate(series.items()):
        place = [row if stacked else row + thick * (i - (per_row - 1) / 2) for row in range(len(rows))]
        plot.axes.barh(place, values, thick * 0.9, left=ends if stacked else None, label=name, **_filled(i))
        if stacked:
            ends = [end + value for end, value in zip(ends, values, strict=True)]
        else:
            _print_values(plot, place, values, digits)
    if stacked:
        _print_values(plot, range(len(rows)), ends, digits)
    plot.axes.set_yticks(range(len(rows)), rows)
    plot.axes.invert_yaxis()
    plot.axes.grid(visible=False, axis="y")
    plot.axes.margins(x=0.18)
    return plot.legend()


def gantt(rows: Mapping[str, Sequence[tuple[float, float, str]]], *, alt: str, xlabel: str, ylabel: str = "") -> Plot:
    """Who did what when: for each row, spans of (start, end, kind), the first row on top.

    Raises ValueError for a span that ends before it starts.
    """
    plot = figure(alt=alt, xlabel=xlabel, ylabel=ylabel, height=1.1 + 0.3 * max(3, len(rows)))
    kinds: dict[str, int] = {}
    for row, (name, spans) in enumerate(rows.items()):
        for start, end, kind in spans:
            if end < start:
                raise ValueError(f"{name}: a span ends at {end:g}, before its start at {start:g}")
            new = kind not in kinds
            look = _filled(kinds.setdefault(kind, len(kinds)))
            plot.axes.barh(row, end - start, 0.72, left=start, label=kind if new else None, **look)
    plot.axes.set_yticks(range(len(rows)), list(rows))
    plot.axes.invert_yaxis()
    plot.axes.grid(visible=False, axis="y")
    return plot.legend()


def _filled(i: int) -> dict[str, Any]:
    """Colour and hatch of the i-th kind of bar. The hatch is in the colour of text, the gap between bars is the page's."""
    return {"facecolor": PALETTE[i % len(PALETTE)], "edgecolor": INK, "linewidth": 0.6, "hatch": HATCHES[i % len(HATCHES)]}


def _print_values(plot: Plot, places: Sequence[float], values: Sequence[float], digits: int) -> None:
    for place, value in zip(places, values, strict=True):
        style = {"textcoords": "offset points", "va": "center", "color": INK, "fontsize": 10}
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
        plot.axes.annotate(text, (value, place), (4, 0), **style)


def _said(name: str, what: str) -> str:
    return f"{name}, {what}" if name else what


def _tick(value: float, position: int | None = None) -> str:
    """1, 10, 1k, 100k, 1M: shorter than powers of ten, and text instead of a formula. What would be cut short stays: 4096."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and float(f"{value / size:.3g}") == value / size:
            return f"{value / size:g}{prefix}"
    return f"{value:.10g}"
