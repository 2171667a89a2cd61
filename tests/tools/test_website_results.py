"""The results page: every number of every record, with machine, date and command."""

import html
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

import results_page

from shared import results
from shared.course import load_course
from shared.evidence import EvidenceError, computed, measured
from shared.rendering import format_value

COURSE = load_course()
MACHINE = {
    "date": "2026-11-29T20:57:05Z",
    "os": "Linux",
    "cpu": "A <CPU>",
    "cores": 2.0,
    "threads": None,
    "memory_bytes": 8_000_000_000,
    "commit": "0123456789abcdef+changes",
    "versions": {"torch": "2.13.0"},
    "gpus": [],
}


def entry(name, value, title, unit="ms"):
    context = dict(checkpoint="tiny", dtype="fp32", input_tokens=1, output_tokens=1, concurrency=1)
    return measured(name, [value, value + 2, value + 1], unit, environment=MACHINE, title=title, **context)


def page(folder, *evidence, name="run", title="A run"):
    results.save(folder / f"{name}.json", title, "python run.py --a <b>", evidence, MACHINE)
    return results_page.recorded_runs("reference/results.md", COURSE, folder)


def texts(table):
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[re.sub(r"<button.*?</button>|<[^>]+>", "", c) for c in re.findall(r"<t[hd].*?</t[hd]>", r, re.DOTALL)] for r in rows]


def test_a_run_says_when_where_and_how(tmp_path):
    text = page(tmp_path, entry("a", 1, "first `step`"))
    assert "## A run { #run }" in text
    for fact in (
        "2026-11-29",
        "A &lt;CPU&gt;, 2 cores, 8 GB of memory, no GPU",
        "torch 2.13.0",
        "commit 0123456789 with changes",
    ):
        assert fact in text
    assert "python run.py --a &lt;b&gt;" in text
    assert "results/run.json" in text
    assert "first <code>step</code>" in text


def test_rows_and_columns_become_a_grid(tmp_path):
    figures = ("load", "decode")
    evidence = [entry(f"{s}.{f}", i * 10 + j, f"{s}: {f}") for i, s in enumerate("abc", 1) for j, f in enumerate(figures, 1)]
    head, *rows = texts(page(tmp_path, *evidence))
    assert head == ["", "load", "decode"]
    assert rows == [["a", "12 ms", "13 ms"], ["b", "22 ms", "23 ms"], ["c", "32 ms", "33 ms"]]


def test_a_grid_wider_than_high_is_turned(tmp_path):
    evidence = [entry(f"{s}.s{j}", i * 10 + j, f"stage {j}, {s} waiting") for i, s in enumerate("xy", 1) for j in range(6)]
    head, *rows = texts(page(tmp_path, *evidence))
    assert head == ["", "x waiting", "y waiting"]
    assert rows[0] == ["stage 0", "11 ms", "21 ms"]


def test_numbers_outside_a_grid_are_listed_after_it(tmp_path):
    ratio = computed("ratio", 1.5, "×", formula="a / b", inputs={"a": 3, "b": 2}, title="b / a")
    rows = texts(page(tmp_path, entry("a.x", 1, "a: x"), entry("b.x", 2, "b: x"), ratio))
    assert rows[-1] == ["b / a", "1.5×"]


def test_badges_of_two_runs_do_not_share_a_card(tmp_path):
    page(tmp_path, entry("a", 1, "a"), name="one")
    text = page(tmp_path, entry("a", 5, "a"), name="two")
    targets = re.findall(r'popovertarget="([^"]+)"', text)
    assert targets == ["evidence-one-a", "evidence-two-a"]
    assert sorted(re.findall(r'popover id="([^"]+)"', text)) == targets


def test_an_incomplete_record_stops_the_build(tmp_path):
    (tmp_path / "bad.json").write_text("{}", "utf-8")
    with pytest.raises(EvidenceError, match=r"bad\.json"):
        results_page.recorded_runs("reference/results.md", COURSE, tmp_path)


def test_every_recorded_number_is_on_the_page():
    text = results_page.recorded_runs("reference/results.md", COURSE)
    assert text.startswith("## "), "no blank start"
    shown = 0
    for file in results.RESULTS.glob("*.json"):
        if file.name != "schema.json":
            run = results.load(file)
            shown += len(run.evidence)
            for e in run.evidence:
                assert html.escape(format_value(e.value, e.unit)) in text, (file.name, e.name)
    assert text.count("popovertarget=") == shown
    assert text.index("{ #peers }") < 200, "peers come first"
