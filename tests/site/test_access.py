"""Usable by everyone: axe-core finds nothing serious on any page, in both themes and on both screens; a keyboard is enough.

Run with `pytest -m browser`.
"""

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
COLOURS, ALL_BUT_COLOURS = {"runOnly": "color-contrast"}, {"rules": {"color-contrast": {"enabled": False}}}
# All of axe's rules once on each screen, and once more, in the other theme, the one that depends on it.
LOOKS = [(DESKTOP, "light", {}), (DESKTOP, "dark", COLOURS), (PHONE, "dark", {}), (PHONE, "light", COLOURS)]
# Modules and the API are many pages made of the same parts: there each screen and each theme once.
FEWER = [LOOKS[0], LOOKS[2]]
# What the longest pages of the API are made of is on its short ones too, and there its colours are measured.
LONG_PAGE, LOOK_AT_A_LONG_PAGE = 500_000, [(DESKTOP, "light", ALL_BUT_COLOURS)]
FIND = """(options) => axe.run(document, {resultTypes: ["violations"], ...options})
    .then(({violations}) => violations.filter(({impact}) => ["serious", "critical"].includes(impact))
        .map(({id, nodes}) => [id, nodes.length, nodes.slice(0, 3).map(({html}) => html.slice(0, 120))]))"""


def test_axe_finds_nothing_serious_on_any_page(http_site, visitor):
    reader, found = visitor(http_site), {}
    for name in http_site.pages():
        page = reader.open(name)
        page.add_script_tag(path=AXE)
        for screen, scheme, options in looks(http_site, name):
            page.set_viewport_size(screen)
            look(page, scheme)
            for rule, count, examples in page.evaluate(FIND, options):
                found[f"{name or 'home'}, {screen['width']} px, {scheme}: {rule}"] = (count, examples)
    assert found == {}


def looks(site, name):
    if not name.startswith(("series/", "api/")):
        return LOOKS
    return LOOK_AT_A_LONG_PAGE if (site.folder / name / "index.html").stat().st_size > LONG_PAGE else FEWER


def look(page, scheme):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    named = {"light": "default", "dark": "slate"}[scheme]
    page.wait_for_function("(name) => document.body.dataset.mdColorScheme === name", arg=named)


def focused(page) -> str:
    return page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def tab_to(page, selector, limit=80):
    """Presses Tab until what has the focus matches; returns how often."""
    for count in range(1, limit + 1):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return count
    raise AssertionError(f"{limit} times Tab never came to {selector}; the last was {focused(page)}")


def test_the_first_tab_offers_to_skip_to_the_content(http_site, visitor):
    page = visitor(http_site).open("reference/glossary/")
    assert tab_to(page, ".md-skip", limit=3)
    page.keyboard.press("Enter")
    assert "#" in page.url


def test_search_by_keyboard(http_site, visitor):
    page = visitor(http_site).open("")
    tab_to(page, ".md-search__input")
    page.keyboard.type("KV cache")
    page.locator(".md-search-result__item").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.activeElement.matches('.md-search-result__link')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/03_kv_cache/**")


def test_navigation_by_keyboard(http_site, visitor):
    page = visitor(http_site).open("")
    tab_to(page, ".md-tabs__link[href^='course']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/course/")
    tab_to(page, ".md-content a[href$='03_kv_cache/']", limit=150)
    page.keyboard.press("Enter")
    page.wait_for_url("**/03_kv_cache/")


def test_the_menu_of_a_phone_by_keyboard(http_site, visitor):
    """A screen of 390 px is also what a desktop shows at 300 % zoom."""
    page = visitor(http_site, viewport=PHONE).open("about/")
    tab_to(page, "[for=__drawer]", limit=4)
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('__drawer').checked")
    tab_to(page, ".md-nav--primary a[href$='changelog/']", limit=150)
    page.keyboard.press("Enter")
    page.wait_for_url("**/changelog/")


def test_the_search_of_a_phone_by_keyboard(http_site, visitor):
    page = visitor(http_site, viewport=PHONE).open("about/")
    tab_to(page, "[for=__search]", limit=8)
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.matches('.md-search__input')")


def test_a_closed_menu_is_passed_over(http_site, visitor):
    page = visitor(http_site, viewport=PHONE).open("about/")
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.md-sidebar--primary')") is None, focused(page)


def test_a_folded_answer_by_keyboard(http_site, visitor):
    page = visitor(http_site).open("series/c2_anatomy/03_kv_cache/")
    tab_to(page, ".md-content summary", limit=400)
    assert page.evaluate("document.activeElement.parentElement.open") is False
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open") is True


@pytest.mark.parametrize("name", ["memory", "roofline", "cost"])
def test_a_calculator_by_keyboard(http_site, visitor, name):
    page = visitor(http_site).open(f"calculators/{name}/")
    before = page.locator(".calc-output").inner_text()
    tab_to(page, "input[type=range]", limit=100)
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(old) => document.querySelector('.calc-output').innerText !== old", arg=before)


RING = "(({outlineStyle, boxShadow}) => [outlineStyle, boxShadow])(getComputedStyle(document.activeElement))"


def test_what_has_the_focus_is_seen(http_site, visitor):
    page = visitor(http_site).open("course/")
    unseen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(RING) == ["none", "none"]:
            unseen.append(focused(page))
    assert unseen == []
