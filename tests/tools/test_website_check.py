"""tools/website/check.py and search_index.py: what a strict build refuses, and what the search's index holds."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

WEBSITE = Path(__file__).resolve().parents[2] / "tools/website"
HOME = '<h1 id="top">Home</h1><a href="a/">A</a>'


@pytest.fixture
def website(monkeypatch):
    monkeypatch.syspath_prepend(str(WEBSITE))
    yield importlib.import_module
    for name in ("check", "search_index"):
        sys.modules.pop(name, None)


@pytest.fixture
def faults(website, tmp_path):
    """faults(home, a="...") -> what the check says of a site of two pages."""

    def find(home=HOME, a='<h2 id="part">A</h2>', **files):
        for name, text in {"index.html": home, "a/index.html": a, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
        found = []
        website("check").check(tmp_path, found.append)
        return found

    return find


@pytest.mark.parametrize("fine", [
    "<p>No link</p>", '<a href="a/#part">', '<a href="a/?x=1#part">', '<a href="#top">', '<a href="#level=user">', '<a href="">',
    '<a href="https://example.org/">', '<a href="mailto:a@example.org">', '<img src="x.png" alt="">',
    '<link rel="canonical" href="https://example.org/">', '<pre>&lt;script src="https://example.org/x.js"&gt;</pre>',
])  # fmt: skip
def test_what_is_in_order(faults, fine):
    assert faults(HOME + fine) == []


@pytest.mark.parametrize("broken, says", [
    ('<img src="x.png">', "index.html: an image has no alt text: x.png"),
    ('<a href="b/">', "a link leads to 'b/', which is not there"),
    ('<a href="../">', "a link leads to '../', which is not there"),
    ('<a href="a/#other">', "no such place"),
    ('<a href="#other">', "no such place"),
    ('<script src="https://example.org/x.js">', "asks another site for https://example.org/x.js"),
    ('<script\n  src="//example.org/x.js">', "asks another site"),
    ('<link rel="stylesheet" href="https://example.org/x.css">', "asks another site"),
    ('<iframe src="http://example.org/">', "asks another site"),
])  # fmt: skip
def test_what_is_refused(faults, broken, says):
    (fault,) = faults(HOME + broken)
    assert says in fault


def test_a_page_that_no_other_leads_to(faults):
    alone = {"b/index.html": '<a href="../c/">C</a>', "c/index.html": '<a href="../b/">B</a>', "404.html": "<p>"}
    assert faults(**alone) == ["b/index.html: no page leads here", "c/index.html: no page leads here"]


def test_a_style_may_not_ask_another_site(faults):
    assert len(faults(**{"x.css": 'a { background: url("https://example.org/x.png") }'})) == 1
    assert len(faults(**{"x.css": '@import "//example.org/x.css";'})) == 1
    assert faults(**{"x.css": "a { background: url(x.png) url('data:image/png;base64,x') }"}) == []


def doc(location, text="Words."):
    return {"location": location, "title": "T", "text": text}


def test_what_the_index_keeps(website):
    docs = [
        doc("api/x/", ""),
        doc("api/x/#empty", ""),
        doc("api/x/#said"),
        doc("series/a/#p", "<p>See <code>x</code>:</p>"),
    ]
    kept = list(website("search_index").kept(docs))
    assert [d["location"] for d in kept] == ["api/x/", "api/x/#said", "series/a/#p"]
    assert kept[-1]["text"] == "<p>See x:</p>"


@pytest.mark.parametrize("place, block", [("series/a.md", " "), ("api/x.md", " "), ("events.md", "<pre><b>y</b></pre>")])
def test_the_search_does_not_read_coloured_code(website, place, block):
    content = "<p>See <code>x</code>:</p><pre><b>y</b></pre><p>z</p>"
    page = SimpleNamespace(meta={}, content=content, file=SimpleNamespace(src_uri=place))
    website("search_index").thin({}, page=page, config=None, nav=None)
    assert page.content == f"<p>See <code>x</code>:</p>{block}<p>z</p>"
    website("search_index").whole({}, page=page, config=None, nav=None)
    assert (page.content, page.meta) == (content, {})


@pytest.mark.parametrize("script, complaints", [('x=location.protocol!=="file:",y', 0), ("x", 1)])
def test_the_theme_waits_for_the_search_to_open(website, tmp_path, script, complaints):
    bundle = tmp_path / "assets/javascripts/bundle.0.min.js"
    bundle.parent.mkdir(parents=True)
    bundle.write_text(script, "utf-8")
    (tmp_path / "search").mkdir()
    (tmp_path / "search/search_index.json").write_text(json.dumps({"config": {}, "docs": [doc("a/")]}), "utf-8")
    found = []
    website("search_index").tune(tmp_path, found.append)
    assert len(found) == complaints
    assert "file:" not in bundle.read_text("utf-8")
