"""Every page of the site, over http and from a folder: it loads whole, alone, and as wide as the screen.

Run with `pytest -m browser`. The browser is the one named by CHROMIUM, or the first found among the usual names.
"""

import pytest

pytestmark = pytest.mark.browser

TO_THE_END = """async () => {
    for (let y = 0; y < document.documentElement.scrollHeight; y += 3 * innerHeight) {
        scrollTo(0, y);
        await new Promise(requestAnimationFrame);
    }
}"""
WIDE = """() => document.documentElement.scrollWidth > innerWidth
    ? [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth)
        .map((e) => `${e.tagName}.${e.className}`.slice(0, 60)).slice(0, 5) : null"""


@pytest.fixture(params=["http", "file"])
def site(request):
    return request.getfixturevalue(f"{request.param}_site")


def test_the_build_has_nothing_to_complain_of(site):
    assert [line for line in site.log.splitlines() if line.startswith(("WARNING", "ERROR"))] == []


def test_every_page_loads_and_none_scrolls_sideways(site, visitor, phone):
    """With everything that comes late: figures and formulas as the reader gets to them."""
    reader = visitor(site, **(phone if site.base.startswith("http:") else {}))
    names, wide = site.pages(), {}
    assert len(names) > 30
    for name in names:
        page = reader.open(name)
        page.evaluate(TO_THE_END)
        if found := page.evaluate(WIDE):
            wide[name] = found
        assert page.locator("h1").count() == 1, name
    assert wide == {}


def test_every_formula_is_drawn(site, visitor):
    reader = visitor(site)
    names = [name for name in site.pages() if 'class="arithmatex' in (site.folder / _file(name)).read_text("utf-8")]
    assert names
    for name in names:
        page = reader.open(name)
        page.locator(".arithmatex").last.scroll_into_view_if_needed()
        page.locator(".arithmatex .katex").first.wait_for(state="attached")
        assert page.locator(".arithmatex:not(:has(.katex))").count() == 0 == page.locator(".katex-error").count(), name


def test_formulas_come_drawn(http_site, visitor):
    """By the build: it has node, as playwright brings one."""
    reader, asked = visitor(http_site), []
    reader.page.on("request", lambda request: asked.append(request.url))
    page = reader.open("series/start/")
    assert page.locator(".arithmatex").count() == page.locator(".arithmatex .katex").count() > 0
    assert not any(name in url for url in asked for name in ("katex.min.js", "math.js"))


def test_formulas_that_the_build_left_are_drawn_when_they_come_near(http_site, visitor):
    reader, asked = visitor(http_site), []
    below = '<div style="height: 9000px"></div><span class="arithmatex">\\(a^2\\)</span>'
    html = f'<!doctype html><body>{below}<script src="../assets/js/math.js"></script>'
    reader.page.route("**/undrawn/", lambda route: route.fulfill(body=html, content_type="text/html"))
    reader.page.on("request", lambda request: asked.append(request.url))
    page = reader.open("undrawn/")
    page.wait_for_load_state("networkidle")
    assert not any("katex" in url for url in asked)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.locator(".arithmatex .katex").wait_for(state="attached")


def test_diagrams_are_drawn_when_they_come_near(site, visitor):
    reader, asked = visitor(site), []
    names = [name for name in site.pages() if 'class="mermaid"' in (site.folder / _file(name)).read_text("utf-8")]
    assert names
    reader.page.on("request", lambda request: asked.append(request.url))
    for name in names:
        asked.clear()
        page = reader.open(name)
        count = page.locator("pre.mermaid").count()
        page.wait_for_load_state("networkidle")
        assert not any("mermaid" in url for url in asked), f"{name}: nobody sees a diagram yet"
        page.locator(".mermaid").first.scroll_into_view_if_needed()
        page.locator("div.mermaid").first.wait_for()
        page.wait_for_function("() => !document.querySelector('pre.mermaid')")
        heights = page.locator("div.mermaid").evaluate_all("all => all.map((each) => each.clientHeight)")
        assert len(heights) == count and min(heights) > 100, f"{name}: {heights}"


def test_the_notebook_of_a_module_can_be_downloaded(http_site, visitor):
    page = visitor(http_site).open("series/c2_anatomy/03_kv_cache/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the notebook").click()
    assert download.value.suggested_filename == "03_kv_cache.ipynb"


def test_what_is_not_there_says_so_and_leads_home(http_site, visitor):
    reader = visitor(http_site)
    page = reader.open("404.html")
    assert page.locator("h1").count() == 1
    assert page.locator("a[href]").count() > 5


def _file(name: str) -> str:
    return name if name.endswith(".html") else f"{name}index.html"
