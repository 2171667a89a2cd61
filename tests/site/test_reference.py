"""Labels, terms and tables in a browser: by mouse, keyboard and touch, with scripts and without, from file://.

Run with `pytest -m browser`.
"""

import sys
from pathlib import Path

import pytest

from shared.course import load_course
from shared.evidence import computed

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs/assets"
OPEN = ".evidence-card:popover-open"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with two numbers, a term and the hardware table, as tools/website draws them."""
    sys.path.insert(0, str(ROOT / "tools/website"))
    try:
        import evidence_badges
        import glossary
        import tables
    finally:
        sys.path.pop(0)
    shown = [computed(name, 16.06, "GB", formula="parameters * 2", inputs={"parameters": 8}) for name in ("first", "second")]
    prose = '<p>It takes <a href="evidence:first">16.06 GB</a>.</p>' + "<p>More.</p>" * 9
    prose += '<p>Again <a href="evidence:first">16.06 GB</a>, then <a href="evidence:second">16.06 GB</a> of KV cache.</p>'
    body = evidence_badges.with_badges(prose, {e.name: e.to_dict() for e in shown}, pytest.fail)
    body = glossary.link_terms(body, glossary.read(), "#glossary") + tables.hardware_table("reference/hardware.md", load_course())
    styles = "".join(f'<link rel="stylesheet" href="{ASSETS.as_uri()}/css/{name}.css">' for name in ("site", "reference"))
    scripts = "".join(f'<script src="{ASSETS.as_uri()}/js/{name}.js" defer></script>' for name in ("evidence", "tables"))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>x</title>{styles}{scripts}'
    page = tmp_path_factory.mktemp("reference") / "page.html"
    main = f'<body data-md-color-scheme="default"><main class="md-typeset" style="padding: 1rem">{body}</main></body>'
    page.write_text(f'<!doctype html><html lang="en"><head>{head}</head>{main}</html>', "utf-8")
    return page.as_uri()


@pytest.fixture
def page(chromium, address):
    context = chromium.new_context(viewport={"width": 390, "height": 700}, has_touch=True)
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert errors == []


def test_a_label_opens_on_hover_and_closes_when_the_pointer_leaves(page):
    badge = page.locator(".evidence-badge").first
    badge.hover()
    card = page.locator(OPEN)
    card.wait_for()
    assert "parameters * 2; parameters = 8" in card.inner_text()
    box, mark = card.bounding_box(), badge.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert 0 < box["y"] - mark["y"] < 60, "beside its number"
    page.mouse.move(380, 690)
    card.wait_for(state="hidden")


def test_a_click_pins_a_card_and_another_closes_it(page):
    badge = page.locator(".evidence-badge").first
    badge.hover()
    page.locator(OPEN).wait_for()
    badge.click()
    page.mouse.move(380, 690)
    page.wait_for_timeout(400)  # longer than hovering alone would keep it
    assert page.locator(OPEN).count() == 1
    badge.click()
    assert page.locator(OPEN).count() == 0
    assert badge.get_attribute("aria-expanded") == "false"


def test_a_tap_opens_and_a_tap_elsewhere_closes(page):
    page.locator(".evidence-badge").first.tap()
    page.locator(OPEN).wait_for()
    page.touchscreen.tap(300, 680)
    page.locator(OPEN).wait_for(state="hidden")


def test_the_keyboard_opens_by_focus_and_closes_by_escape(page):
    page.keyboard.press("Tab")
    page.locator(OPEN).wait_for()
    assert page.evaluate("document.activeElement.className") == "evidence-badge"
    page.keyboard.press("Escape")
    page.locator(OPEN).wait_for(state="hidden")
    page.keyboard.press("Enter")
    page.locator(OPEN).wait_for()


def test_a_card_shared_by_two_mentions_stands_beside_the_one_in_use(page):
    page.keyboard.press("Tab")
    page.locator(OPEN).wait_for()
    above = page.locator(OPEN).bounding_box()["y"]
    page.keyboard.press("Tab")
    page.wait_for_function(
        "y => document.querySelector('.evidence-card:popover-open')?.getBoundingClientRect().y > y + 50", arg=above
    )
    expanded = page.locator(".evidence-badge").evaluate_all("all => all.map(b => b.getAttribute('aria-expanded'))")
    assert expanded == ["false", "true", "false"]


def test_a_term_says_what_it_means_and_leaves_no_second_tooltip(page):
    term = page.locator("a.term", has_text="KV cache")
    assert term.get_attribute("title") is None
    term.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    tip = page.get_by_role("tooltip")
    tip.wait_for()
    assert tip.inner_text().startswith("The keys and values of all tokens")
    assert term.get_attribute("aria-describedby") == "term-card"
    page.keyboard.press("Escape")
    tip.wait_for(state="hidden")


def test_without_scripts_a_click_still_opens_the_card(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#evidence-first").is_hidden()
    page.locator(".evidence-badge").first.click()
    assert page.locator("#evidence-first").is_visible()
    assert page.locator("a.term").first.get_attribute("title")
    context.close()


def test_a_heading_sorts_both_ways_and_keeps_empty_cells_last(page):
    def values(index):
        return page.locator(f"table.sortable tbody tr td:nth-child({index + 1})").evaluate_all(
            "all => all.map(c => c.dataset.sort)"
        )

    button = page.get_by_role("button", name="fp8 TFLOP/s")
    heading = page.locator("th", has=button)
    index = heading.evaluate("th => th.cellIndex")
    for order, sign in (("descending", -1), ("ascending", 1)):
        button.press("Enter")
        assert heading.get_attribute("aria-sort") == order
        found = values(index)
        filled = [float(v) for v in found if v]
        assert filled == sorted(filled, key=lambda v: sign * v)
        assert found[: len(filled)] == [v for v in found if v] and "" in found
    names = page.get_by_role("button", name="Accelerator")
    names.press("Enter")
    assert page.locator("th", has=names).get_attribute("aria-sort") == "ascending"
    assert heading.get_attribute("aria-sort") == "none"


def test_the_table_scrolls_in_its_box_and_not_the_page(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".table-box").evaluate("box => box.scrollWidth > box.clientWidth")


def test_a_value_names_its_source_on_focus_and_leads_to_it(page):
    cell = page.locator("a.sourced").first
    cell.hover()
    tip = page.get_by_role("tooltip")
    tip.wait_for()
    assert "(20" in tip.inner_text(), "a source has a date"
    cell.click()
    assert page.evaluate("document.querySelector('.sources :target')?.id") == cell.get_attribute("href").removeprefix("#")
