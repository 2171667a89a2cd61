"""The calculators' elements: by mouse and keyboard, on a phone, from a link, without scripts, all from file://.

Run with `pytest -m browser`. Their arithmetic is test_calculator_arithmetic.py's.
"""

import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs" / "assets"


@pytest.fixture(scope="module")
def site(tmp_path_factory, data):
    """A folder with one page a calculator, as its authored page has it, and what it loads: to be opened from file://."""
    folder = tmp_path_factory.mktemp("calculators")
    shutil.copytree(ASSETS / "css", folder / "assets/css")
    shutil.copytree(ASSETS / "js/calc", folder / "assets/js/calc", ignore=shutil.ignore_patterns("data.js"))
    data.write(None, folder, pytest.fail)
    for name in ("memory", "roofline", "cost"):
        lines = (ROOT / f"docs/calculators/{name}.md").read_text("utf-8").splitlines()
        element = next(line for line in lines if "-calculator>" in line)
        styles = '<link rel="stylesheet" href="assets/css/site.css"><meta name="viewport" content="width=device-width">'
        body = f'<body data-md-color-scheme="default"><main class="md-typeset"><h1>{name}</h1>{element}</main></body>'
        head = f'<head><meta charset="utf-8"><title>{name}</title>{styles}{data.head(element, "")}</head>'
        (folder / f"{name}.html").write_text(f'<!doctype html><html lang="en">{head}{body}</html>', "utf-8")
    return folder


@pytest.fixture
def visit(chromium, site):
    """visit("memory", "?users=9") -> the page, opened; at the end no page may have logged an error or asked for anything else."""
    contexts, faults = [], []

    def open_page(name, query="", **options):
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(site.as_uri()) else faults.append(request.url))
        page.goto(f"{(site / name).as_uri()}.html{query}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


def verdict(page):
    return page.locator(".calc-verdict > span").first.inner_text()


def test_the_verdict_is_what_the_budget_says(visit):
    page = visit("memory", "?model=llama-3.1-8b&gpu=rtx-4090&context=8192&users=4")
    assert verdict(page) == "Fits: 4 of at most 5 requests."
    page.get_by_label("Requests at once", exact=True).fill("6")
    assert verdict(page) == "Does not fit: room for 5, not 6."
    page.get_by_role("button", name="Fewer requests: 5").click()
    assert verdict(page) == "Fits: 5 of at most 5 requests."
    assert page.locator(".calc-figures .calc-label").count() == page.locator(".calc-figures dd").count() > 0


def test_every_change_it_offers_makes_it_fit(visit):
    page = visit("memory", "?model=llama-3.1-70b&gpu=l40s&weights=int4-g128&context=16384&users=12")
    assert verdict(page).startswith("Does not fit")
    names = page.locator(".calc-ideas button").all_inner_texts()
    assert len(names) >= 2
    for name in names:
        fresh = visit("memory", page.evaluate("location.search"))
        fresh.get_by_role("button", name=name, exact=True).click()
        assert verdict(fresh).startswith("Fits"), name


@pytest.mark.parametrize("name, change", [
    ("memory", ("Requests at once", "3")), ("roofline", ("Context", "777")), ("cost", ("Prompt", "1234")),
])  # fmt: skip
def test_a_link_brings_back_the_result(visit, name, change):
    page = visit(name, "?h=kept#anchor")
    assert page.evaluate("location.search") == "?h=kept"  # untouched until something is chosen
    page.get_by_label(change[0], exact=True).fill(change[1])
    page.wait_for_function("location.search.length > 20")
    assert "h=kept" in page.evaluate("location.search") and page.evaluate("location.hash") == "#anchor"
    again = visit(name, page.evaluate("location.search"))
    assert again.get_by_label(change[0], exact=True).input_value() == change[1]
    assert again.locator(".calc-figures").inner_text() == page.locator(".calc-figures").inner_text()


def test_a_link_to_what_is_not_there_says_so(visit):
    page = visit("memory", "?model=gpt-9&users=-3&context=4096")
    problem = page.get_by_role("alert").inner_text()
    assert "gpt-9" in problem and "-3" in problem and "4096" not in problem
    assert page.get_by_label("Model").input_value() == "llama-3.1-8b"
    assert page.get_by_label("Tokens per request", exact=True).input_value() == "4096"


def test_nonsense_is_named_at_its_field_and_shows_no_result(visit):
    page = visit("memory")
    users = page.get_by_label("Requests at once", exact=True)
    for text, says in (("0", "from 1 to"), ("2.5", "whole number"), ("", "Enter a number")):
        users.fill(text)
        assert says in page.locator("#calc-users-error").inner_text()
        assert users.get_attribute("aria-invalid") == "true"
        assert not page.locator(".calc-output").is_visible()
    users.fill("2")
    assert page.locator(".calc-output").is_visible() and users.get_attribute("aria-invalid") is None


def test_the_keyboard_alone_moves_a_slider_and_the_points(visit):
    page = visit("roofline")
    before = page.locator(".is-decode.is-linear circle").get_attribute("cx")
    page.get_by_label("Batch of the decode step", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.get_by_label("Batch of the decode step", exact=True).input_value() == "12"
    page.wait_for_function("(old) => document.querySelector('.is-decode.is-linear circle')?.getAttribute('cx') > old", arg=before)
    assert page.evaluate("document.activeElement.getAttribute('aria-valuetext')") == "12 sequences"


def test_a_format_without_a_peak_is_refused_by_name(visit):
    page = visit("roofline", "?gpu=rtx-3090&format=fp8")
    assert "no fp8 peak for NVIDIA GeForce RTX 3090" in verdict(page)
    assert not page.locator(".calc-output").is_visible()


@pytest.mark.parametrize("name, query, says", [
    ("memory", "?gpu=a10g", "memory of NVIDIA A10G"),
    ("memory", "?model=deepseek-v2&gpu=b200", "shapes of DeepSeek-V2"),
    ("roofline", "?gpu=rtx-3090&format=int8", "int8 peak of NVIDIA GeForce RTX 3090"),
])  # fmt: skip
def test_values_from_memory_are_flagged(visit, name, query, says):
    assert says in visit(name, query).locator(".calc-warning").first.inner_text()
    assert visit(name).locator(".calc-warning").count() == 0


def test_the_roofline_hands_its_inputs_on(visit):
    page = visit("roofline", "?model=qwen3-8b&gpu=h100-sxm&format=w4&batch=32&context=1024")
    target = page.get_by_role("link", name="Does this batch fit in memory?").get_attribute("href")
    given = ("memory.md?", "model=qwen3-8b", "gpu=h100-sxm", "weights=int4-g128", "users=32", "context=1024")
    assert all(part in target for part in given)
    assert "decode=" in page.get_by_role("link", name="What do tokens cost").get_attribute("href")


@pytest.mark.parametrize("name", ["memory", "roofline", "cost"])
def test_it_fits_a_phone(visit, name):
    page = visit(name, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("name", ["memory", "roofline", "cost"])
def test_without_scripts_the_page_says_what_is_missing(visit, name):
    assert "needs JavaScript" in visit(name, java_script_enabled=False).inner_text("main")


EXAMPLES = re.findall(r"\]\((\w+)\.md(\?[^)]+)\)", (ROOT / "docs/calculators/index.md").read_text("utf-8"))


@pytest.mark.parametrize("name, query", EXAMPLES)
def test_the_questions_to_start_from_are_links_to_results(visit, name, query):
    page = visit(name, query)
    assert page.get_by_role("alert").count() == 0 and page.locator(".calc-output").is_visible()
    for part in query[1:].split("&"):
        field, value = part.split("=")
        assert page.locator(f"[name={field}]").input_value() == value


@pytest.mark.parametrize("name, says", [
    ("memory", ['weight_bytes(llama-3.1-8b, "bf16") = 16,060,522,496 B', "vllm-project/vllm issue 7768"]),
    ("roofline", ["operators(llama-3.1-8b, Step(8, 1, 2048", "bf16 peak of NVIDIA GeForce RTX 4090: karpathy/llm.c"]),
    ("cost", ["cost_per_million(2.5, 20000) / 0.6", "none comes from a table"]),
])  # fmt: skip
def test_a_result_unfolds_into_its_formulas_and_sources(visit, name, says):
    page = visit(name)
    page.get_by_text("How this is computed").focus()
    page.keyboard.press("Enter")
    text = page.locator(".calc-output details").inner_text()
    assert all(part in text for part in says) and "[object" not in text
    page.locator("input[type=range]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".calc-output details").get_attribute("open") is not None  # stays open while inputs move
