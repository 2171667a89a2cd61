"""The hardware and model tables: every value of the data is there, with its source, and what nobody looked up is marked."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import tables

from shared import budget, hardware, models
from shared.course import load_course

COURSE = load_course()


class Rows(HTMLParser):
    """Rows of cells: (attributes, text, links' titles)."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.cell = [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.cell = {"attrs": dict(attrs), "text": "", "titles": [], "hrefs": []}
            self.rows[-1].append(self.cell)
        elif tag == "a" and self.cell is not None:
            self.cell["titles"].append(dict(attrs).get("title"))
            self.cell["hrefs"].append(dict(attrs)["href"])

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell["text"] += data


HARDWARE = tables.hardware_table("reference/hardware.md", COURSE)
MODELS = tables.model_table("reference/models.md", COURSE)


def column(html, title):
    head, *rows = Rows(html).rows
    index = next(i for i, cell in enumerate(head) if cell["text"].replace("\xad", "").startswith(title))
    return {row[0]["text"]: row[index] for row in rows}


def test_every_device_and_every_model_has_a_row():
    assert [row[0]["text"] for row in Rows(HARDWARE).rows[1:]] == [hardware.load(n).name for n in hardware.names()]
    assert [row[0]["text"] for row in Rows(MODELS).rows[1:]] == [
        models.load(n, allow_unverified=True).name for n in models.names()
    ]


def test_values_are_those_of_the_data():
    assert column(HARDWARE, "Memory")["NVIDIA GeForce RTX 4090"]["text"] == "24,564 MiB"
    assert column(HARDWARE, "Memory")["NVIDIA H100 SXM"]["text"] == "80 GB"
    assert column(HARDWARE, "Bandwidth")["NVIDIA GeForce RTX 4090"]["text"] == "1,008"
    assert column(HARDWARE, "fp16 into fp16")["NVIDIA GeForce RTX 4090"]["text"] == "330.3"
    assert column(HARDWARE, "Links")["NVIDIA GeForce RTX 3090"]["text"].startswith("NVLink 3: 56.25"), "in one direction"


def test_what_follows_from_a_shape_is_computed_by_the_courses_own_functions():
    model = models.load("llama-3.1-8b")
    cell = column(MODELS, "KV cache")[model.name]
    assert float(cell["attrs"]["data-sort"]) == budget.next_token_kv_bytes(model) == 131_072
    assert float(column(MODELS, "Weights")[model.name]["attrs"]["data-sort"]) == budget.weight_bytes(model)
    assert "shared.budget.next_token_kv_bytes" in cell["titles"][0]


@pytest.mark.parametrize("html", [HARDWARE, MODELS])
def test_every_value_names_its_source_and_leads_to_it(html):
    listed = set(re.findall(r'<li id="([^"]+)"', html))
    cells = [cell for row in Rows(html).rows[1:] for cell in row[1:] if cell["text"]]
    assert len(cells) > 100
    for cell in cells:
        assert cell["titles"] and all(cell["titles"]), cell
        assert {href.removeprefix("#") for href in cell["hrefs"]} <= listed


def test_what_was_written_from_memory_is_marked_and_nothing_else():
    for name in hardware.names():
        gpu = hardware.load(name)
        cell = column(HARDWARE, "Bandwidth")[gpu.name]
        assert cell["text"].endswith("?") is (not gpu.fact("bandwidth").source.verified), name
    for name in models.names():
        model = models.load(name, allow_unverified=True)
        cell = column(MODELS, "Context")[model.name]
        assert cell["text"].endswith("?") is (not model.source_of("stated_context").verified), name


@pytest.mark.parametrize("html", [HARDWARE, MODELS])
def test_cells_of_a_column_sort_as_numbers(html):
    for row in Rows(html).rows[1:]:
        for cell in row[1:]:
            assert cell["attrs"]["data-sort"] == "" or float(cell["attrs"]["data-sort"]) >= 0


def test_a_wide_table_scrolls_in_a_box_that_the_keyboard_reaches():
    assert '<div class="table-box" tabindex="0" role="region" aria-label="Accelerators' in HARDWARE
    assert 'href="#sources"' in HARDWARE


@pytest.mark.parametrize(
    "size, text",
    [(24 * 2**30, "24 GiB"), (80e9, "80 GB"), (24564 * 2**20, "24,564 MiB"), (126e6, "126 MB"), (100 * 2**10, "100 KiB")],
)
def test_a_size_is_shown_in_the_unit_it_is_sold_in(size, text):
    assert tables._memory(size) == text
