"""The API pages: every module of ours is on one, under the name by which it is imported."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import api

from shared.course import load_course

ROOT = Path(__file__).resolve().parents[2]
COURSE = load_course()


def test_every_module_is_listed_once_under_its_package():
    found = api.packages()
    modules = [module for names in found.values() for module in names]
    assert len(set(modules)) == len(modules)
    for file in (ROOT / "minillm").rglob("*.py"):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        if not file.stem.startswith("_"):
            assert name in modules
    assert "shared.budget" in found["shared"]
    assert "minillm.kernels" in found and not any(name.startswith("kernels") for name in modules)
    assert "shared.engine_scripts" not in found


def test_a_module_and_a_folder_of_the_same_name_are_told_apart():
    assert api._file("minillm.server.page") == ROOT / "minillm/server/page.py"
    assert api._file("minillm.server") == ROOT / "minillm/server/__init__.py"
    assert api._file("minillm.kernels") == ROOT / "kernels/__init__.py"


def test_pages_are_written_once_and_old_ones_removed(tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "api/minillm-gone.md").write_text("old", "utf-8")
    api.write(COURSE, tmp_path, pytest.fail)
    names = {path.name for path in (tmp_path / "api").iterdir()}
    assert names == {"index.md", *(Path(api.page_of(package)).name for package in api.packages())}
    assert all(name.count(".") == 1 for name in names)  # a second dot would be read as a language
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "api").iterdir()}
    api.write(COURSE, tmp_path, pytest.fail)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert "::: minillm.kv.paged" in (tmp_path / "api/minillm-kv.md").read_text("utf-8")
    assert "search: {boost: 0.003}" in (tmp_path / "api/minillm-kv.md").read_text("utf-8")


def test_the_navigation_names_every_page():
    first, *rest = api.navigation(COURSE)
    assert first == "api/index.md"
    assert [path for entry in rest for path in entry.values()] == [api.page_of(package) for package in api.packages()]


def test_kernels_are_linked_by_the_name_they_are_imported_by(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/__init__.py").write_text('"""Kernels."""', "utf-8")
    (tmp_path / "kernels/norm.py").write_text("def rms(x): ...\n\n\ndef _private(x): ...\n", "utf-8")
    monkeypatch.setattr(api, "ROOT", tmp_path)
    text = api._directive("minillm.kernels.norm")
    assert "::: kernels.norm" in text
    assert "[](){#minillm.kernels.norm}\n[](){#minillm.kernels.norm.rms}" in text
    assert "_private" not in text


def test_signatures_stay_out_of_the_search_on_api_pages_only():
    source = '<div class="doc-signature highlight">f()</div><div class="highlight">x</div>'
    changed = api.on_html(source, "api/minillm-kv.md", COURSE, pytest.fail)
    assert changed.count("data-search-exclude") == 1
    assert changed.replace("data-search-exclude ", "") == source
    assert api.on_html(source, "series/start.md", COURSE, pytest.fail) == source


@pytest.mark.parametrize(
    "docstring, said",
    [
        ("The engine: steps. More.", "The engine: steps."),
        ("Two\nlines, one\nsentence\n\nMore.", "Two lines, one sentence."),
        ("Ends in a colon:\n\n    code", "Ends in a colon."),
    ],
)
def test_the_overview_says_the_first_sentence(docstring, said):
    assert api._first_sentence(docstring) == said
