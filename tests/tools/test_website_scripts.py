"""The list of modules in a browser: filters with their state in the address, and what the reader has read.

Run with `pytest -m browser`. The browser is the one named by CHROMIUM, or the first found among the usual names.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from shared.course import load_course

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
COURSE = load_course()
ADDRESS = "http://course.test/course/"
MARK = '<button type="button" class="mark-read" data-module="2.3" aria-pressed="false" hidden>Mark as read</button>'


@pytest.fixture(scope="module")
def html():
    sys.path.insert(0, str(ROOT / "tools/website"))
    import home
    import module_list

    modules = COURSE.modules_of("c2")
    bar = f'<span class="progress" data-modules="{" ".join(f"{m.id}:1" for m in modules)}" hidden></span>'
    series = {s.id: module_list.module_list(COURSE.modules_of(s.id), "course.md") for s in COURSE.series}
    lists = "".join(f"<h2>{id}</h2><p>x</p>{items}" for id, items in series.items())
    importer = (ROOT / "docs/course.md").read_text().partition('<div class="progress-import"')[2]
    sources = [(ROOT / "docs/assets/js" / name).read_text() for name in ("filters.js", "progress.js")]
    scripts = "".join(f"<script>{source}</script>" for source in sources)
    body = f'{MARK}{bar}{home.filters("course.md", COURSE)}{lists}<div class="progress-import"{importer}{scripts}'
    return f"<!doctype html><meta charset=utf-8><title>t</title><body>{body}"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # not at the top: the file is collected where playwright is not installed

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.fail(f"no browser found among {', '.join(names)}: install Chromium, or set CHROMIUM to one")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])


@pytest.fixture
def page(browser, html):
    context = browser.new_context()
    context.set_default_timeout(10_000)
    page = context.new_page()
    page.route("**/*", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(ADDRESS)
    yield page
    context.close()


def listed(page):
    return page.eval_on_selector_all("ol.modules > li:not([hidden])", "items => items.map(item => item.dataset.module)")


def wanted(role=None, level=None, series=None):
    in_series = [module for module in COURSE.modules if module.series]
    return [
        m.id
        for m in in_series
        if (not role or role in m.roles) and (not level or m.level == level) and (not series or m.series == series)
    ]


def test_each_filter_and_all_together(page):
    assert listed(page) == wanted()
    page.get_by_label("Decision maker").check()
    assert listed(page) == wanted(role="decision")
    page.get_by_label("Engine builder").check()
    page.get_by_label("Decision maker").locator("xpath=ancestor::fieldset").get_by_label("All").check()
    page.get_by_label("C3", exact=True).check()
    assert listed(page) == wanted(level="engine builder", series="c3") != []
    assert page.locator("h2:visible").count() == 1
    assert f"{len(wanted(level='engine builder', series='c3'))} modules" in page.locator(".filters output").inner_text()
    page.get_by_role("button", name="Show all").click()
    assert listed(page) == wanted()
    assert page.url == ADDRESS


def test_the_choice_stands_in_the_address_and_comes_back_from_it(page):
    page.get_by_label("ML engineer").check()
    page.get_by_label("Optimizer").check()
    assert page.url == f"{ADDRESS}#role=ml&level=optimizer"
    page.reload()
    assert listed(page) == wanted(role="ml", level="optimizer")
    page.evaluate("location.hash = '#series=c8'")
    page.wait_for_function("document.querySelectorAll('ol.modules > li:not([hidden])').length < 10")
    assert listed(page) == wanted(series="c8")


def test_nonsense_in_the_address_is_everything(page):
    page.goto(f"{ADDRESS}#role=%22%5D&level=nobody&x=1")
    page.reload()
    assert listed(page) == wanted()


def test_what_is_marked_as_read_stays(page):
    button = page.get_by_role("button", name="Mark as read")
    assert page.locator(".progress").inner_text() == "0 of 9 read"
    button.click()
    page.reload()
    assert page.get_by_role("button", name="Read", exact=True).get_attribute("aria-pressed") == "true"
    assert page.locator(".progress").inner_text() == "1 of 9 read"
    assert page.locator("li.is-read").get_attribute("data-module") == "2.3"
    page.get_by_role("button", name="Read", exact=True).click()
    assert page.locator(".progress").inner_text() == "0 of 9 read"


def give(page, content):
    file = {"name": "progress.json", "mimeType": "application/json", "buffer": content.encode()}
    page.get_by_label("Take over a progress file").set_input_files(file)
    return page.locator(".progress-import output")


def test_the_progress_that_labs_keeps_is_taken_over(page, tmp_path):
    from labs.kit.catalog import find_module
    from labs.kit.progress import Progress

    progress = Progress(tmp_path / "progress.json")
    exercises = find_module("2.3").exercises
    for exercise in exercises:
        progress.record(exercise, True, [])
    progress.save()
    said = give(page, progress.file.read_text())
    said.get_by_text("found").wait_for()
    count = len(exercises)
    assert f"{count} exercise" in page.locator('li[data-module="2.3"] .module-mark').inner_text()
    page.reload()
    assert f"{count} exercise" in page.locator('li[data-module="2.3"] .module-mark').inner_text()
    page.get_by_role("button", name="Forget everything").click()
    assert page.locator(".module-mark").count() == 0


@pytest.mark.parametrize("content", ["no json", "[]", "null", '{"version": 2, "passed": {}}', '{"version": 1}'])
def test_another_file_is_refused_in_words(page, content):
    give(page, content).get_by_text("This ").wait_for()


@pytest.mark.parametrize("kept", ["no json", "[]", "null", '{"version": 1, "read": null}', '{"version": 9}'])
def test_damaged_progress_is_no_progress(page, kept):
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.evaluate("text => localStorage.setItem('course.progress', text)", kept)
    page.reload()
    page.get_by_role("button", name="Mark as read").click()
    assert page.locator(".progress").inner_text() == "1 of 9 read"
    assert errors == []
