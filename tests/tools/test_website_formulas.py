"""Formulas are drawn when the site is built, as the browser would; without node they are left to it."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import formulas
import own_scripts

KATEX = Path(__file__).resolve().parents[2] / "docs" / formulas.KATEX
INLINE = '<span class="arithmatex">\\(a &lt; b\\)</span>'
BLOCK = '<div class="arithmatex">\n\\[\\begin{aligned}x &amp;= 1\\end{aligned}\\]\n</div>'

needs_node = pytest.mark.skipif(formulas.find_node() is None, reason="formulas are not drawn: no node, and no playwright")


@pytest.fixture
def site(tmp_path):
    shutil.copytree(KATEX.parent, tmp_path / "site" / Path(formulas.KATEX).parent)
    return tmp_path / "site"


def drawn(site, body):
    page = site / "index.html"
    page.write_text(f"<head></head><body>{body}</body>", "utf-8")
    told = []
    formulas.draw_all(site, told.append)
    return page.read_text("utf-8"), told


@needs_node
def test_formulas_are_drawn_and_the_page_needs_no_program(site):
    page, told = drawn(site, f"<p>{INLINE} and {INLINE}</p>{BLOCK}")
    assert page.count(formulas.DRAWN) == 3 == page.count('class="katex"') and page.count("katex-display") == 1
    assert "\\(" not in page and "\\[" not in page and "katex-error" not in page and told == []
    assert '<annotation encoding="application/x-tex">a &lt; b</annotation>' in page, "what is read aloud, and copied"
    head = own_scripts.with_own_scripts(page, "")
    assert "katex.min.css" in head and "math.js" not in head


@needs_node
def test_a_faulty_formula_is_red_and_does_not_stop_the_build(site):
    page, _ = drawn(site, '<span class="arithmatex">\\(\\frac{1\\)</span>' + INLINE)
    assert page.count("katex-error") == 1 and page.count('class="katex"') == 1


@needs_node
def test_a_program_that_fails_is_an_error(site):
    (site / formulas.KATEX).write_text("throw Error('broken')")
    with pytest.raises(RuntimeError, match="broken"):
        drawn(site, INLINE)


def test_pages_without_formulas_stay_as_they_are(site):
    assert drawn(site, "<p>none</p>") == ("<head></head><body><p>none</p></body>", [])


def test_without_node_the_browser_draws(site, monkeypatch):
    monkeypatch.setattr(formulas, "find_node", lambda: None)
    page, told = drawn(site, INLINE)
    assert INLINE in page and "math.js" in own_scripts.with_own_scripts(page, "")
    assert len(told) == 1 and "no node is installed" in told[0]


def test_the_node_of_playwright_serves(monkeypatch):
    pytest.importorskip("playwright", reason="playwright is not installed")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert Path(formulas.find_node()).parent.name == "driver"
