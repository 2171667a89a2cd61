import re
import xml.etree.ElementTree as ET
from importlib import import_module

import pytest
from IPython.core.formatters import DisplayFormatter

from shared import plot_svg, plots
from shared.hardware import Ceilings

SVG = "{http://www.w3.org/2000/svg}"
ROOF = {"a": Ceilings(100.0, 10.0), "b": Ceilings(200.0, 10.0)}


def lines(alt="Time grows with length."):
    x = [128, 256, 512, 1024]
    return plots.predicted_and_measured(
        {"cached": (x, [1, 2, 3, 4]), "not": (x, [2, 4, 6, 8])},
        {"cached": (x, [1, 2, 3, 4], [0.5, 1, 2, 3], [2, 3, 4, 5])},
        alt=alt,
        xlabel="context (tokens)",
        ylabel="step (ms)",
        log="x",
    )


EVERY = {
    "lines": lines,
    "roofline": lambda: plots.roofline(ROOF, {"decode": (1.0, 9.0), "prefill": (100.0, 70.0)}, alt="a"),
    "bars": lambda: plots.bars(["x", "y"], {"bf16": [196_608, 2], "fp8": [3, 4]}, alt="a", xlabel="bytes"),
    "stack": lambda: plots.bars(["x", "y"], {"weights": [1, 2], "cache": [3, 4]}, alt="a", xlabel="GB", stacked=True),
    "gantt": lambda: plots.gantt({"r0": [(0, 1, "prefill"), (1, 4, "decode")], "r1": [(1, 2, "prefill")]}, alt="a", xlabel="s"),
}


def texts(svg):
    return ["".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_are_seen_on_both_backgrounds(page):
    assert contrast(plot_svg.INK, page) > 4.2
    assert all(contrast(color, page) >= 3 for color in plot_svg.PALETTE)


@pytest.mark.parametrize("name", EVERY)
def test_svg_is_small_valid_and_the_same_every_time(name):
    plot = EVERY[name]()
    svg = plot.svg()
    assert ET.fromstring(svg).tag == f"{SVG}svg"
    assert svg == plot.svg() == EVERY[name]().svg()
    assert len(svg) < 60_000
    assert "<metadata" not in svg and "<style" not in svg and "<!DOCTYPE" not in svg


@pytest.mark.parametrize("name", EVERY)
def test_nothing_but_the_palette_and_the_ink_is_drawn(name):
    colors = set(re.findall(r"#[0-9a-fA-F]{6}\b", EVERY[name]().svg()))
    assert {c.lower() for c in colors} <= {c.lower() for c in (*plot_svg.PALETTE, plot_svg.INK)}


def test_a_page_can_set_the_colour_of_text():
    svg = lines().svg()
    assert f"fill: var(--plot-ink, {plot_svg.INK})" in svg
    assert svg.count(plot_svg.INK) == svg.count("var(--plot-ink")


def test_text_is_text_and_large_enough_on_a_phone():
    svg = lines().svg()
    assert {"context (tokens)", "step (ms)", "cached, predicted", "cached, measured", "1024"} <= set(texts(svg))
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    assert sizes and min(sizes) * 358 / width >= 9.9  # px, where a 390 px phone leaves 358 for the figure


def test_figures_on_one_page_share_no_id_that_means_different_things():
    one, other = (EVERY[name]().svg() for name in ("lines", "bars"))
    ids = [dict(re.findall(r'<\w+ id="([^"]+)"[^>]*>\s*(<[^>]+>)', svg)) for svg in (one, other)]
    assert ids[0] and all(ids[1][key] == value for key, value in ids[0].items() if key in ids[1])
    assert not re.search(r'id="(axes|figure|patch|line2d)_\d+"', one + other)


def test_alt_text_is_required():
    with pytest.raises(ValueError, match="alt text"):
        plots.figure(alt="  ")


def test_alt_text_is_where_readers_and_tools_look():
    alt = 'TPOT "p99" < 20 ms\n  & rising'
    data, metadata = DisplayFormatter().format(lines(alt))
    said = 'TPOT "p99" < 20 ms & rising'
    root = ET.fromstring(data["image/svg+xml"])
    assert (root.get("role"), root.get("aria-label"), root.find(f"{SVG}title").text) == ("img", said, said)
    assert metadata["image/svg+xml"]["alt"] == said
    assert data["text/plain"] == f"[figure: {said}]"


def test_series_differ_by_more_than_colour():
    plot = lines()
    drawn = [(line.get_linestyle(), line.get_marker()) for line in plot.axes.lines if line.get_linestyle() != "None"]
    assert len(set(drawn)) == 2
    hatches = {patch.get_hatch() for patch in EVERY["stack"]().axes.patches}
    assert len(hatches) == 2


def test_bars_print_their_values():
    assert {"196,608", "2", "3", "4"} <= set(texts(EVERY["bars"]().svg()))
    assert {"4", "6"} <= set(texts(EVERY["stack"]().svg()))  # sums
    with pytest.raises(ValueError, match="series 'a' has 1 values for 2 rows"):
        plots.bars(["x", "y"], {"a": [1]}, alt="a", xlabel="x")


def test_roofline_draws_the_ridge():
    plot = EVERY["roofline"]()
    assert {"a, ridge 10", "b, ridge 20", "decode", "prefill"} <= set(texts(plot.svg()))
    roof = plot.axes.lines[0]
    assert list(roof.get_ydata())[1:] == [100.0, 100.0] and roof.get_xdata()[1] == 10.0


def test_gantt_names_each_kind_once_and_refuses_time_running_backwards():
    shown = texts(EVERY["gantt"]().svg())
    assert [shown.count(kind) for kind in ("prefill", "decode", "r0", "r1")] == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="r0: a span ends at 1, before its start at 2"):
        plots.gantt({"r0": [(2, 1, "decode")]}, alt="a", xlabel="s")


@pytest.mark.parametrize("value, shown", [(1, "1"), (0.5, "0.5"), (1000, "1k"), (4096, "4096"), (1e5, "100k"), (1.5e12, "1.5T")])
def test_ticks(value, shown):
    assert plots._tick(value) == shown


def test_axes_can_be_added_to(tmp_path):
    plot = plots.figure(alt="a", xlabel="x", ylabel="y", log="y")
    plot.axes.plot([1, 2], [10, 100], label="late")
    plot.axes.text(1, 10, "noted")
    plot.legend().save(tmp_path / "a.svg")
    saved = (tmp_path / "a.svg").read_text()
    assert {"late", "noted"} <= set(texts(saved))
    assert "#000000" not in saved  # what matplotlib draws in black is black on a dark page
    with pytest.raises(ValueError, match=r"saved as \.svg"):
        plot.save(tmp_path / "a.png")
    with pytest.raises(ValueError, match='"xy"'):
        plots.figure(alt="a", log="z")


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(plot_svg, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install -e '.\[learn\]'"):
        plots.figure(alt="a")
    assert import_module("matplotlib")
