"""From a matplotlib figure to SVG that suits a light and a dark page, a phone, a screen reader and a diff.

One file serves both themes because its colours are mid-tones: text and axes at over 4:1 against white and against #111, series
at 3:1 or more. A theme query inside the file would not do: notebooks show SVG as an image, which knows the system's theme and
not the notebook's. Where the SVG is part of the page instead, as on the site, `--plot-ink` sets the colour of text and axes.
"""

from __future__ import annotations

import io
import re
from html import escape
from importlib import import_module
from typing import Any

INK = "#797979"  # as far from white as from #111
# Okabe and Ito's colours that reach 3:1 on both backgrounds; their orange, sky blue and yellow do not on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKERS = "osD^vPX*"
HATCHES = ("", "///", "\\\\\\", "xx", "--", "||")  # dots would be drawn as curves, half a megabyte of them
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the layout is the same everywhere
    "font.size": 11,
    "axes.labelsize": 11,
    "legend.fontsize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 2.0,
    "lines.markersize": 7.0,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text: it can be searched and copied, and is a tenth of the size
    "svg.hashsalt": "minillm",  # ids are otherwise random
}
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def matplotlib(module: str) -> Any:
    """A module of matplotlib, looked up at run time: it is an extra, not a dependency. Raises ImportError with the remedy."""
    try:
        return import_module(f"matplotlib.{module}" if module else "matplotlib")
    except ImportError as e:
        raise ImportError("plots need matplotlib, which is not installed; pip install -e '.[learn]' brings it") from e


def to_svg(figure: Any, alt: str) -> str:
    """The figure as one <svg> element, the same bytes each time. alt: said by screen readers and shown on hover."""
    buffer = io.StringIO()
    _restart_layout(figure)
    with matplotlib("").rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _without_page_wide_style(svg)
    svg = _without_unused_ids(svg)
    # Black is what an artist gets that was added outside our style.
    svg = re.sub(rf"(?i){INK}|#000000", f"var(--plot-ink, {INK})", svg)
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")  # Verdana has the same widths
    text = escape(alt, quote=True)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{text}" ', 1)
    return re.sub(r"(<svg [^>]*>)", lambda m: f"{m[1]}\n <title>{text}</title>", svg, count=1)


def _restart_layout(figure: Any) -> None:
    """Each drawing would move the axes on from where the last one left them, by less and less; start from the same place."""
    for axes in figure.axes:
        if (place := axes.get_subplotspec()) is not None:
            axes.set_position(place.get_position(figure))
            axes.set_in_layout(True)  # set_position takes it as settled by hand


def _without_page_wide_style(svg: str) -> str:
    """matplotlib's <style> has a rule for `*`, which would reach every drawing of a page; the root hands it down as well."""
    svg, found = re.subn(r"\s*<defs>\s*<style[^>]*>\*\{[^}]*\}</style>\s*</defs>", "", svg, count=1)
    return svg.replace("<svg ", '<svg style="stroke-linejoin: round; stroke-linecap: butt" ', 1) if found else svg


def _without_unused_ids(svg: str) -> str:
    """Every figure has an `axes_1`; two figures on one page must not share an id."""
    used = set(re.findall(r"#([\w.-]+)", svg))
    return re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
