"""A notebook as a page: nothing a reader needs is lost, and what is missing is told."""

import base64
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import exercises
import own_scripts
import papers
from notebook_page import convert

from labs.kit.catalog import find_module
from shared.course import load_course

COURSE = load_course()
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (400).to_bytes(4)).decode()
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="288pt" viewBox="0 0 288 216"></svg>'


def code(source, *outputs, tags=(), **metadata):
    return {"cell_type": "code", "metadata": {"tags": list(tags), **metadata}, "source": source, "outputs": list(outputs)}


def shown(**data):
    """An output with, say, image_svg_xml for image/svg+xml."""
    types = {name.replace("_", "/", 1).replace("_xml", "+xml"): value for name, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": types}


def printed(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def page(*cells, shows=None):
    told = []
    made = convert({"cells": list(cells)}, "03_kv_cache", told.append, shows or {})
    return made, told


def test_input_and_output_are_told_apart():
    made, told = page(code("print(1)\n", printed("\x1b[31m1\x1b[0m\n"), printed("noise", "stderr")))
    assert made.markdown == "```{.python .nb-input}\nprint(1)\n```\n\n```{.text .nb-output}\n1\n```"
    assert told == []


def test_a_fence_within_an_output_does_not_end_it():
    made, _ = page(code("x", printed("````\nyes\n````")))
    assert made.markdown.endswith("`````{.text .nb-output}\n````\nyes\n````\n`````")


def test_tags_hide():
    made, _ = page(code("secret", printed("seen"), tags=["hide-input"]), code("gone", printed("gone"), tags=["remove-cell"]))
    assert "secret" not in made.markdown and "gone" not in made.markdown and "seen" in made.markdown


@pytest.mark.parametrize(
    "kind, data, suffix, size", [("image_png", PNG, "png", (640, 400)), ("image_svg_xml", SVG, "svg", (288, 216))]
)
def test_a_figure_is_a_file_with_its_size_and_alt_text(kind, data, suffix, size):
    made, told = page(code("plot()", shown(**{kind: data}, text_plain="<Figure>"), alt="Seconds [s] against tokens"))
    assert list(made.files) == [f"03_kv_cache-figure-1.{suffix}"]
    assert f"![Seconds (s) against tokens](03_kv_cache-figure-1.{suffix})" in made.markdown
    assert 'width="{}" height="{}"'.format(*size) in made.markdown
    assert told == []


def test_what_a_reader_would_miss_is_told():
    _, told = page(code("plot()", shown(image_svg_xml=SVG)))
    assert len(told) == 1 and "alt" in told[0]
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no"}
    _, told = page(code("1/0", error))
    assert told == ["a cell ends in ValueError"]
    made, told = page(code("1/0", error, tags=["raises-exception"]))
    assert told == [] and "ValueError: no" in made.markdown


def test_html_stays_one_block():
    made, _ = page(code("x", shown(text_html="<style>p{}</style><table>\n\n<tr></tr>\n \n</table>", text_plain="x")))
    block = made.markdown.split("\n\n", 1)[1]
    assert "\n\n" not in block and "<style" not in block and 'tabindex="0"' in block


def test_an_output_the_site_draws_itself():
    data = {"text/html": "<p>theirs</p>", "application/x-ours": {"n": 3}}
    output = {"output_type": "execute_result", "metadata": {}, "data": data}
    made, _ = page(code("x", output), shows={"application/x-ours": lambda data: f"<b>{data['n']}</b>"})
    assert "<b>3</b>" in made.markdown and "theirs" not in made.markdown


def test_links_between_notebooks_lead_to_pages():
    cell = {"cell_type": "markdown", "metadata": {}, "source": "[a](../start.ipynb#predict) [b](https://example.org/x.ipynb)"}
    made, _ = page(cell)
    assert made.markdown == "[a](../start.md#predict) [b](https://example.org/x.ipynb)"


def test_the_exercise_box_holds_stub_check_and_hints():
    lab = find_module("2.3")
    told = []
    text = exercises.exercise_section(COURSE.module("2.3"), told.append)
    assert told == []
    for exercise in lab.exercises:
        assert f"### Write `{exercise.name}`" in text
        assert f'<autoref identifier="{exercise.reference.replace(":", ".")}" optional>' in text
        assert f"minillm serve --kv contiguous --mine={exercise.part}" in text
    assert "labs check 2.3" in text and "raise NotImplementedError" in text
    assert "Hint 1 of 3" in text and "Hint 3 of 3" in text


def test_a_module_without_an_exercise_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("LABS_ROOT", str(tmp_path))
    told = []
    assert exercises.exercise_section(COURSE.module("2.3"), told.append) == ""
    assert len(told) == 1 and "2.3" in told[0]


def test_large_scripts_only_where_they_are_used():
    plain = "<head></head><body></body>"
    assert own_scripts.with_own_scripts(plain, "../") == plain
    math = own_scripts.with_own_scripts('<head></head><span class="arithmatex">', "../../")
    assert '<script src="../../assets/js/math.js" defer>' in math and "diagrams" not in math
    assert '<script src="assets/js/diagrams.js" defer>' in own_scripts.with_own_scripts('<head></head><pre class="mermaid">', "")
    offline = own_scripts.with_own_scripts('<script src="https://unpkg.com/iframe-worker/shim"></script>', "../")
    assert offline == '<script src="../assets/vendor/iframe-worker.js"></script>'


def test_what_pages_load_exists():
    assets = Path(own_scripts.__file__).resolve().parents[2] / "docs/assets"
    named = [name for _, names in own_scripts.LOADS for name in names]
    assert [name for name in named if not (assets / name).is_file()] == []


def test_papers_lose_their_title_and_lead_nowhere():
    changelog = papers.changelog("changelog.md", COURSE)
    assert changelog.startswith("What a learner would notice") and "## 0.1.0" in changelog
    third_party = papers.third_party("about.md", COURSE)
    assert "\n### " in third_party and "\n## " not in third_party and "](LICENSE)" not in third_party


def test_the_search_box_has_a_name():
    box = own_scripts.with_own_scripts(f"{own_scripts.SEARCH}>", "")
    assert 'aria-label="Search"' in box
    material = Path(pytest.importorskip("material").__file__).parent / "templates/partials/search.html"
    assert own_scripts.SEARCH in material.read_text("utf-8")
