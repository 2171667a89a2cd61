"""A number on a page keeps its text and gains a badge with what it rests on; a citation says which version it cites."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import evidence_badges as badges

from shared.citations import load
from shared.comparison import compare
from shared.course import load_course
from shared.evidence import EvidenceError, computed, measured, published
from shared.rendering import MIME

WEIGHTS = computed("weights_8b", 16.06, "GB", formula="parameters * 2", inputs={"parameters": 8.03e9}, title="weights & head")
SPEED = measured(
    "decode",
    [24.0, 23.0, 25.0],
    "tokens/s",
    environment={"cpu": "a CPU", "gpus": [], "date": "2026-11-29"},
    checkpoint="smollm2-135m",
    dtype="bf16",
    input_tokens=128,
    output_tokens=128,
    concurrency=1,
    recording={"steps": [1] * 50},
)
LINKED = published("price", 2, "$/hour", source="A page, https://example.com/a?b=1.", date="2026", setting="one card")


def entries(*evidence):
    return {e.name: e.to_dict() for e in evidence}


def render(body, *evidence):
    told = []
    return badges.with_badges(body, entries(*evidence), told.append), told


def notebook(path, *documents):
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": "", "outputs": [{"data": {MIME: d}}]} for i, d in enumerate(documents)
    ]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ""}, *cells]}), "utf-8")
    return path


def test_a_number_keeps_its_text_and_opens_its_card():
    html, told = render('<p>It takes <a href="evidence:weights_8b:.1f">16.1 GB</a>.</p>', WEIGHTS)
    assert told == []
    assert "evidence:weights" not in html
    assert re.search(r'<span class="evidence-number" data-label="computed">16\.1 GB<button type="button"', html)
    target = re.search(r'popovertarget="([^"]+)"', html)[1]
    card = re.search(rf'<div popover id="{re.escape(target)}".*?</div>', html, re.DOTALL)[0]
    assert "parameters * 2; parameters = 8.03e+09" in card
    assert "weights &amp; head" in card


def test_what_is_read_aloud_says_the_label_and_the_number():
    html, _ = render('<a href="evidence:weights_8b"><strong>16 GB</strong></a>', WEIGHTS)
    assert 'aria-label="C, computed: what 16 GB rests on"' in html


def test_one_card_serves_every_mention():
    link = '<a href="evidence:decode">24 tokens/s</a>'
    html, _ = render(f"<p>{link} and {link}</p>", SPEED, WEIGHTS)
    assert html.count("popovertarget=") == 2
    assert html.count("<div popover") == 1
    assert "data-search-exclude" in html


def test_a_card_holds_machine_and_spread_but_no_recording():
    html, _ = render('<a href="evidence:decode">24</a>', SPEED)
    assert "median of 3 runs, 23 – 25 tokens/s" in html
    assert "a CPU, 2026-11-29" in html
    assert "steps" not in html


def test_an_address_in_a_card_is_a_link():
    html, _ = render('<a href="evidence:price">$2/hour</a>', LINKED)
    assert '<a href="https://example.com/a?b=1">https://example.com/a?b=1</a>' in html


def test_a_name_that_nothing_shows_is_told_and_left_as_text():
    html, told = render('<p><a href="evidence:nothing">3 GB</a></p>', WEIGHTS)
    assert html == "<p>3 GB</p>"
    assert told == ["evidence:nothing names nothing that an output of this page shows"]


def test_outputs_are_drawn_with_badges_and_both_sides_of_a_comparison():
    predicted = computed("predicted", 20, "tokens/s", formula="f", inputs={})
    compared = compare(predicted, SPEED, title="decode, one request").to_dict()
    table = badges.OUTPUTS[MIME]({"entries": [WEIGHTS.to_dict()], "comparisons": [compared]})
    assert table.count("evidence-badge is-word") == 3
    assert '<th scope="col">measured</th>' in table
    assert "<td>1.2×</td><td>within 20 %</td>" in table
    html = badges.with_badges(table, entries(WEIGHTS, predicted, SPEED), pytest.fail)
    assert html.count("<div popover") == 3


def test_entries_come_from_a_notebooks_outputs(tmp_path):
    compared = compare(computed("predicted", 20, "tokens/s", formula="f", inputs={}), SPEED).to_dict()
    file = notebook(tmp_path / "a.ipynb", {"entries": [WEIGHTS.to_dict()], "comparisons": [compared]})
    assert list(badges.evidence_of(file)) == ["weights_8b", "predicted", "decode", "decode.ratio"]


def test_evidence_that_lost_its_context_is_refused(tmp_path):
    bad = WEIGHTS.to_dict() | {"context": {}}
    with pytest.raises(EvidenceError, match=r"a\.ipynb, cell c0: .*formula"):
        badges.evidence_of(notebook(tmp_path / "a.ipynb", {"entries": [bad], "comparisons": []}))


def test_a_citation_names_file_symbol_and_version_and_leads_there():
    target = "vllm/vllm/v1/core/sched/scheduler.py#Scheduler.schedule"
    html, told = render(f'<a href="cite:{target}"><code>Scheduler.schedule</code></a>')
    version = load("vllm").version
    assert told == []
    assert f'title="vllm/v1/core/sched/scheduler.py::Scheduler.schedule, vLLM {version}"' in html
    assert f"blob/v{version}/vllm/v1/core/sched/scheduler.py#L" in html
    assert f'<span class="cite-version">vLLM {version}</span>' in html


def test_a_citation_without_a_page_is_text(monkeypatch):
    monkeypatch.setattr("shared.citations.PAGES", {})
    html, _ = render('<a href="cite:vllm/vllm/v1/core/sched/scheduler.py">the scheduler</a>')
    assert html.startswith('<span class="cite" title="vllm/v1/core/sched/scheduler.py, vLLM ')
    assert "href" not in html


def test_a_citation_of_nothing_is_told():
    html, told = render('<a href="cite:vllm/vllm/no_such.py">x</a>')
    assert html == "x"
    assert len(told) == 1 and "no_such.py" in told[0]


def test_the_examples_of_the_labels_page_open_their_cards():
    text = badges.label_examples("reference/evidence.md", load_course())
    targets = re.findall(r'popovertarget="([^"]+)"', text)
    assert len(targets) == 3
    assert sorted(targets) == sorted(re.findall(r'<div popover id="([^"]+)"', text))
    assert {"computed", "measured", "published"} == set(re.findall(r'number" data-label="(\w+)"', text))
