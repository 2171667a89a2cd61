"""The course's own pages: what is written is linked, what is not stands as planned, and all of it comes from modules.toml."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.course import LAYERS, LEVELS, load_course

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import home
import markers
import module_list
import navigation
import pages
import raw_links
import stack as stack_picture

COURSE = load_course()
WRITTEN = ("start", "2.3", "2.4")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository in which three modules are written, each a notebook of one cell."""
    for id in WRITTEN:
        module = COURSE.module(id)
        card = "| layer | level |\n| --- | --- |\n| 3 | user |"
        text = f"# {module.title}\n\n> {module.question}\n\n{card}\n\nText.\n\n## Exercise\n\nWrite.\n\n## Sources"
        path = tmp_path / module.notebook
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": text}]}))
    for module in (module_list, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "exercise_section", lambda module, warn: "THE EXERCISE")
    return tmp_path


def ids(html):
    return re.findall(r'data-module="([^"]+)"', html)


def warn(message):
    raise AssertionError(message)


def test_the_full_list_holds_every_module_once_and_links_only_what_is_written(tree):
    html = home.all_modules("course.md", COURSE)
    assert ids(html) == [module.id for module in COURSE.modules]
    links = re.findall(r'href="([^"]+)"', html)
    assert [link for link in links if not link.endswith("index.md")] == [COURSE.module(id).notebook[:-5] + "md" for id in WRITTEN]
    assert html.count(">planned<") == len(COURSE.modules) - len(WRITTEN)


def test_a_path_is_the_course_s_own_in_its_order(tree):
    articles = home.paths("index.md", COURSE).split("<article")[1:]
    assert len(articles) == len(COURSE.roles)
    for role, article in zip(COURSE.roles, articles, strict=True):
        titles = [re.sub("<[^>]+>", "", title) for title in re.findall(r"</span> (.*?)</li>", article)]
        assert titles == [module.title for module in COURSE.path(role.id)]
        assert f'href="course.md#role={role.id}"' in article


def test_levels_count_their_modules():
    html = home.levels("index.md", COURSE)
    assert sum(map(int, re.findall(r"<small>(\d+) modules", html))) == len(COURSE.modules)
    assert re.findall(r"#level=([a-z-]+)", html) == [level.replace(" ", "-") for level in LEVELS]


def test_filters_offer_what_the_list_s_items_carry():
    offered = dict.fromkeys(("role", "level", "series"))
    for name in offered:
        offered[name] = set(re.findall(rf'name="{name}" value="([^"]+)"', home.filters("course.md", COURSE)))
    html = home.all_modules("course.md", COURSE)
    assert offered["role"] == {role for value in re.findall(r'data-roles="([^"]+)"', html) for role in value.split()}
    assert offered["level"] == {level.replace(" ", "-") for level in re.findall(r'data-level="([^"]+)"', html)}
    assert offered["series"] | {"alone"} == set(re.findall(r'data-series="([^"]+)"', html))


def test_the_stack_places_each_series_on_its_layers_without_overlap():
    html = stack_picture.stack("index.md", COURSE)
    boxes = re.findall(r'<a [^>]*style="grid-row:(\d+) / (\d+);grid-column:(\d+) / (\d+)" href="([^"]+)"', html)
    taken = set()
    for series in COURSE.series:
        top, bottom, left, right = next(map(int, box[:4]) for box in boxes if box[4] == module_list.series_uri(series))
        assert {len(LAYERS) - row for row in range(top, bottom)} == set(series.layers)
        cells = {(row, column) for row in range(top, bottom) for column in range(left, right)}
        assert cells and not cells & taken
        taken |= cells
    assert len(boxes) == len(COURSE.series)


def test_the_first_prediction_is_the_calculators_arithmetic():
    html = home.first_prediction("index.md", COURSE)
    # 24,564 MiB · 0.92 less 16.06 GB, in tokens of 131,072 bytes; blocks of 16 tokens
    tokens = int((24564 * 2**20 * 0.92 - 2 * 8_030_261_248) // 131072)
    assert f"{tokens:,} tokens" in html
    assert "16.06 GB" in html and f"<dd>{tokens // 8000}</dd>" in html and "computed" in html


def test_a_module_s_page(tree):
    module = COURSE.module("2.4")
    files = pages.module_page(COURSE, module, warn)
    text = files["04_attention_variants.md"].decode()
    assert set(files) == {"04_attention_variants.md", "04_attention_variants.ipynb"}
    assert f'title: "{module.title}"' in text
    assert "module 4 of 9" in text
    assert "| layer |" not in text and '<dl class="module-card">' in text and "labs check 2.4" in text
    assert '<a href="../../series/c2_anatomy/03_kv_cache.md">2.3 KV cache</a>' in text  # read before: written, so a link
    assert text.index("Write.") < text.index("THE EXERCISE") < text.index("## Sources")
    assert text.count('class="mark-read" data-module="2.4"') == 2
    assert '<a href="04_attention_variants.ipynb" download>' in text


def test_pages_of_modules_that_are_gone_are_removed_and_unchanged_ones_keep_their_time(tree, tmp_path):
    docs = tmp_path / "docs"
    pages.write_course(COURSE, docs, warn)
    page = docs / "series/start.md"  # which does not name 2.4
    before = page.stat().st_mtime_ns
    (tree / COURSE.module("2.4").notebook).unlink()
    pages.write_course(COURSE, docs, warn)
    assert not (docs / "series/c2_anatomy/04_attention_variants.md").exists()
    assert page.exists() and page.stat().st_mtime_ns == before
    assert (docs / "series/c8_papers/index.md").exists()


def test_the_table_of_contents_names_what_is_written(tree):
    course = next(entry["Course"] for entry in navigation.navigation(COURSE) if "Course" in entry)
    flat = [item for entry in course for value in entry.values() for item in (value if isinstance(value, list) else [value])]
    named = [uri if isinstance(uri, str) else next(iter(uri.values())) for uri in flat]
    assert set(named) == {
        "course.md",
        *(module_list.series_uri(series) for series in COURSE.series),
        *(module_list.module_uri(COURSE.module(id)) for id in WRITTEN),
    }


def test_an_unknown_marker_is_told():
    told = []
    text = markers.fill("a\n<!-- generated: nonsense -->\n<!-- generated: levels -->\n", "index.md", COURSE, told.append)
    assert len(told) == 1 and "nonsense" in told[0]
    assert '<ol class="levels">' in text


def test_links_in_raw_html_are_resolved_and_a_broken_one_is_told():
    target = SimpleNamespace(url_relative_to=lambda page: "../series/start/")
    files = SimpleNamespace(get_file_from_path={"series/start.md": target}.get)
    page = SimpleNamespace(src_uri="series/c1_gpu/index.md")
    told = []
    html = '<a href="../start.md#predict">a</a><a href="gone.md">b</a><a href="https://example.org/x.md">c</a>'
    done = raw_links.resolve(html, page, files, told.append)
    assert 'href="../series/start/#predict"' in done and 'href="https://example.org/x.md"' in done
    assert len(told) == 1 and "gone.md" in told[0]
