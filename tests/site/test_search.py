"""The search: what it finds, in which order, and when a page asks for its index.

Run with `pytest -m browser`.
"""

import json

import pytest

pytestmark = pytest.mark.browser


def answers(page, query):
    """The pages found, best first, as paths below the site."""
    field = page.locator(".md-search__input")
    field.fill(query)
    field.press("End")  # the theme searches when a key is let go
    # the list is emptied and filled anew: a result that repeats the question's last word belongs to it
    page.wait_for_function(
        """(query) => {
            const first = document.querySelector(".md-search-result__item");
            const word = query.split(" ").pop().toLowerCase();
            return first && [...first.querySelectorAll("mark")].some((mark) => mark.textContent.toLowerCase().startsWith(word));
        }""",
        arg=query,
    )
    items = page.locator(".md-search-result__item")  # one a page, its own link first, then those to its sections
    return items.evaluate_all("items => items.map((item) => item.querySelector('a').pathname.slice(1))")


@pytest.fixture
def page(http_site, visitor):
    page = visitor(http_site).open("about/")
    page.locator(".md-search__input").click()
    return page


@pytest.mark.parametrize("query, first", [
    ("KV cache", "series/c2_anatomy/03_kv_cache/"),
    ("tokens and text", "series/c2_anatomy/05_tokens_and_text/"),
    ("the map", "series/start/"),
])  # fmt: skip
def test_a_module_is_found_by_its_subject(page, query, first):
    assert answers(page, query)[0] == first


@pytest.mark.parametrize("query", ["KV cache", "paged", "scheduler", "tokenizer", "sampling", "speculative"])
def test_the_course_stands_above_the_api_for_a_concept(page, query):
    found = answers(page, query)
    courses = [place for place, path in enumerate(found) if path.startswith("series/")]
    apis = [place for place, path in enumerate(found) if path.startswith("api/")]
    assert courses and (not apis or courses[0] < apis[0]), found[:8]


@pytest.mark.parametrize("query, among", [
    ("continuous batching", "reference/glossary/"),
    ("roofline", "calculators/roofline/"),
    ("H100", "reference/hardware/"),
    ("SamplingParams", "api/minillm/"),
    ("kv_bytes_per_token", "api/shared/"),
    ("cost per million", "calculators/cost/"),
])  # fmt: skip
def test_terms_tables_calculators_and_names_are_found(page, query, among):
    assert among in answers(page, query)[:5]


def test_a_name_from_the_code_leads_to_its_place(page):
    assert "api/shared/" in answers(page, "kv_bytes_per_token")
    page.locator(".md-search-result__item a[href$='#shared.budget.kv_bytes_per_token']").click()
    page.wait_for_url("**#shared.budget.kv_bytes_per_token")


def test_what_is_not_there_is_said(page):
    page.locator(".md-search__input").fill("zyxwvut")
    page.locator(".md-search-result__meta", has_text="No matching documents").wait_for()


def test_a_page_asks_for_the_index_only_when_the_search_opens(http_site, visitor):
    reader, asked = visitor(http_site), []
    reader.page.on("request", lambda request: asked.append(request.url) if "search_index" in request.url else None)
    page = reader.open("")
    page.wait_for_load_state("networkidle")
    assert asked == []
    page.keyboard.press("/")  # one of the theme's keys for the search
    page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for()
    assert answers(page, "KV cache")
    assert len(asked) == 1


def test_a_link_with_a_question_opens_the_search(http_site, visitor):
    page = visitor(http_site).open("?q=KV+cache")
    page.locator(".md-search-result__item").first.wait_for()


def test_the_index_holds_prose_and_no_empty_entries(http_site):
    docs = json.loads((http_site.folder / "search/search_index.json").read_text("utf-8"))["docs"]
    places = [doc["location"] for doc in docs]
    assert len(places) == len(set(places))
    assert {"series/", "api/", "reference/", "calculators/"} <= {f"{place.partition('/')[0]}/" for place in places}
    assert all(doc["text"] for doc in docs if doc["location"].startswith("api/") and "#" in doc["location"])
    assert not [doc["location"] for doc in docs if doc["location"].startswith("series/") and "<pre" in doc["text"]]
