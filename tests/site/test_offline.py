"""The copy of the site that is opened from its folder, with no server and no network.

Run with `pytest -m browser`. That each of its pages loads whole and alone is test_pages.py's.
"""

import pytest

pytestmark = pytest.mark.browser


def test_the_search_finds_and_leads_there(file_site, visitor):
    page = visitor(file_site, offline=True).open("reference/glossary.html")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("KV cache")
    first = page.locator(".md-search-result__item > a").first
    first.wait_for()
    assert "series/c2_anatomy/03_kv_cache.html" in first.get_attribute("href")
    first.click()
    page.wait_for_url("**/03_kv_cache.html*")
    assert page.locator("h1").inner_text().strip().startswith("KV cache")


def test_the_way_through_the_course_by_links(file_site, visitor):
    page = visitor(file_site, offline=True).open("index.html")
    page.locator(".md-tabs__link", has_text="Course").click()
    page.wait_for_url("**/course.html")
    page.locator(".md-content a[href$='03_kv_cache.html']").first.click()
    page.wait_for_url("**/03_kv_cache.html")
    page.locator(".md-footer__link--next").click()
    page.wait_for_url("**/series/c2_anatomy/0*.html")


def test_a_calculator_computes_and_its_links_lead_on(file_site, visitor):
    page = visitor(file_site, offline=True).open("calculators/roofline.html")
    before = page.locator(".calc-output").inner_text()
    page.get_by_label("Batch of the decode step", exact=True).fill("64")
    page.wait_for_function("(old) => document.querySelector('.calc-output').innerText !== old", arg=before)
    page.get_by_role("link", name="Does this batch fit in memory?").click()
    page.wait_for_url("**/calculators/memory.html?*users=64*")


def test_what_was_read_is_kept(file_site, visitor):
    page = visitor(file_site, offline=True).open("series/c2_anatomy/03_kv_cache.html")
    page.get_by_role("button", name="Mark as read").first.click()
    page.reload()
    page.locator(".mark-read[aria-pressed=true]").first.wait_for()


def test_the_theme_that_was_chosen_stays(file_site, visitor):
    page = visitor(file_site, offline=True, color_scheme="light").open("index.html")
    for _ in range(2):  # from the system's to light, then to dark
        page.locator("form[data-md-component=palette] label:not([hidden])").click()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    page.locator(".md-tabs__link", has_text="Course").click()
    page.wait_for_url("**/course.html")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
