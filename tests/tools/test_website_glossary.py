"""Terms are defined once, and linked where a page's text first uses them, nowhere else."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import glossary

from shared.course import load_course

TERMS = (
    glossary.Term("cache", "Anything kept."),
    glossary.Term("KV cache", 'Keys & values: "kept".', ("key-value cache",)),
    glossary.Term("TTFT", "Time to first token."),
    glossary.Term("prefill", "The first phase."),
    glossary.Term("batch", "Several at once."),
    glossary.Term("batch size", "How many at once."),
    glossary.Term("token", "A piece of a word.", link=False),
)


def link(html):
    return glossary.link_terms(html, TERMS, "../glossary.md")


def linked(html):
    """What is linked, as (anchor, text)."""
    return re.findall(r'<a class="term" href="\.\./glossary\.md#([^"]+)"[^>]*>(.*?)</a>', link(html), re.DOTALL)


def test_only_the_first_use_is_linked_and_the_text_stays():
    html = "<p>The prefill. Another prefill.</p>"
    assert linked(html) == [("prefill", "prefill")]
    assert re.sub(r"</?a[^>]*>", "", link(html)) == html


def test_the_longest_term_wins_and_the_shorter_one_still_gets_its_own():
    assert linked("<p>A KV cache is a cache.</p>") == [("kv-cache", "KV cache"), ("cache", "cache")]
    assert linked("<p>batch size of a batch</p>") == [("batch-size", "batch size"), ("batch", "batch")]


def test_aliases_plurals_hyphens_and_line_ends():
    assert linked("<p>Key-value caches, batches</p>") == [("kv-cache", "Key-value caches"), ("batch", "batches")]
    assert linked("<p>the KV\ncache</p>") == [("kv-cache", "KV\ncache")]
    assert linked("<p>KV-cache blocks</p>") == [("kv-cache", "KV-cache")]


def test_capitals_matter_in_abbreviations_only():
    assert linked("<p>Prefill sets TTFT</p>") == [("prefill", "Prefill"), ("ttft", "TTFT")]
    assert linked("<p>ttft</p>") == []


@pytest.mark.parametrize("text", ["prefilled", "non-prefill", "minillm.prefill", "prefill_share", "#prefill", "batchwise"])
def test_parts_of_other_words_are_not_terms(text):
    assert linked(f"<p>{text}</p>") == []


@pytest.mark.parametrize(
    "html",
    [
        "<h2>prefill</h2>",
        "<p><code>prefill</code></p>",
        '<p><a href="x">the <em>prefill</em></a></p>',
        "<pre><code>a <span>b</span> prefill</code></pre>",
        '<span class="arithmatex">\\(prefill\\)</span>',
        '<button type="button">prefill</button>',
        "<details><summary>prefill</summary></details>",
        "<table><tr><td>prefill</td></tr></table>",
        '<div class="nb-html"><p>prefill</p></div>',
        '<div class="evidence-cards"><div><br>prefill</div></div>',
        '<p><img alt="prefill" src="prefill.svg"></p>',
        "<!-- prefill -->",
    ],
)
def test_no_link_where_one_would_be_in_the_way(html):
    assert link(html) == html
    after = html + "<p>prefill</p>"
    assert len(linked(after)) == 1, "text after it is open again"


def test_ordinary_words_are_listed_but_not_linked():
    assert linked("<p>a token</p>") == []


def test_the_definition_travels_with_the_link():
    assert 'title="Keys &amp; values: &quot;kept&quot;."' in link("<p>KV cache</p>")


def test_pages_link_to_the_glossary_from_where_they_are():
    course = load_course()
    deep = glossary.on_html("<p>prefill</p>", "series/c2_anatomy/03_kv_cache.md", course, pytest.fail)
    assert 'href="../../reference/glossary.md#prefill"' in deep
    beside = glossary.on_html("<p>prefill</p>", "reference/results.md", course, pytest.fail)
    assert 'href="glossary.md#prefill"' in beside


@pytest.mark.parametrize("page", ["reference/glossary.md", "api/minillm-kv.md", "index.md"])
def test_some_pages_are_left_alone(page):
    assert glossary.on_html("<p>prefill</p>", page, load_course(), pytest.fail) == "<p>prefill</p>"


def test_the_real_glossary_is_in_order_and_every_entry_says_something():
    terms = glossary.read()
    assert len(terms) >= 90
    slugs = [term.slug for term in terms]
    assert len(set(slugs)) == len(slugs)
    for term in terms:
        assert term.definition.endswith("."), term.name
        assert 20 < len(term.definition) < 260, (term.name, len(term.definition))


def test_modules_named_in_the_glossary_exist():
    course = load_course()
    for term in glossary.read():
        if term.module:
            course.module(term.module)


def test_the_page_has_a_heading_for_each_term_and_letter():
    page = glossary.glossary("reference/glossary.md", load_course())
    assert len(re.findall(r"^### ", page, re.MULTILINE)) == len(glossary.read())
    letters = re.findall(r'href="#(letter-[^"]+)"', page)
    assert letters and all(f"{{ #{letter} .letter }}" in page for letter in letters)


def test_two_terms_cannot_share_a_name(tmp_path):
    file = tmp_path / "glossary.toml"
    file.write_text('["a b"]\ndefinition = "x."\n["c"]\naliases = ["A B"]\ndefinition = "y."\n', "utf-8")
    with pytest.raises(glossary.GlossaryError, match="names both"):
        glossary.read(file)
    file.write_text('["a"]\naliases = ["b"]\n', "utf-8")
    with pytest.raises(glossary.GlossaryError, match=r"\[a\].*definition"):
        glossary.read(file)
