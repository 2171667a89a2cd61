"""A number is shown with its label and what it rests on, alike in text and in HTML, and nothing in it is taken for markup."""

import json
from html.parser import HTMLParser

import pytest

from shared.comparison import compare
from shared.evidence import computed, measured, published, simulated
from shared.rendering import MIME, explain, format_value

MACHINE = {
    "cpu": "A CPU",
    "cores": 2.0,
    "threads": 2,
    "versions": {"torch": "2.13.0"},
    "date": "2026-11-29T12:00:00Z",
    "gpus": [],
}
SETTING = {"checkpoint": "smollm2-135m", "dtype": "bfloat16", "input_tokens": 1024, "output_tokens": None, "concurrency": 1}
WEIGHTS = computed("weights", 16.06, "GB", formula="2 * p", inputs={"p": 8_030_261_248}, title="weights, 8B")
SPEED = measured("decode", [24.0, 26.0, 25.0], "tokens/s", environment=MACHINE, **SETTING)


@pytest.mark.parametrize(
    ("value", "unit", "spec", "text"),
    [
        (16.060522496, "GB", "", "16.06 GB"),
        (131072, "bytes", "", "131,072 bytes"),
        (24.0, "tokens/s", "", "24 tokens/s"),
        (99.996, "s", "", "100 s"),
        (1234.567, "ms", "", "1,235 ms"),
        (50123.4, "ms", "", "50,120 ms"),
        (0.0, "", "", "0"),
        (0.00012345, "s", "", "0.0001234 s"),
        (1.23456e12, "FLOP/s", "", "1.235e+12 FLOP/s"),
        (1.23456, "×", "", "1.23×"),
        (1.23456, "×", ".1f", "1.2×"),
        (20, "$", "", "$20"),
        (0.351, "$/million tokens", ".2f", "$0.35/million tokens"),
        (8030.26, "MB", ",.0f", "8,030 MB"),
    ],
)
def test_numbers_as_prose_writes_them(value, unit, spec, text):
    assert format_value(value, unit, spec) == text


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="y"):
        format_value(1.0, "s", ".0y")


def test_text_has_aligned_columns_and_the_label_last():
    bundle = computed("kv", 131072, "bytes", formula="f", inputs={}, title="KV per token of Llama-3.1-8B")._repr_mimebundle_()
    assert bundle["text/plain"] == "KV per token of Llama-3.1-8B  131,072 bytes  computed"


def test_the_document_comes_back_from_json():
    bundle = WEIGHTS._repr_mimebundle_()
    assert json.loads(json.dumps(bundle))[MIME] == {"entries": [WEIGHTS.to_dict()], "comparisons": []}


EXPLAINED = {
    "computed": (WEIGHTS, ["2 * p; p = 8,030,261,248"]),
    "measured": (
        SPEED,
        [
            "median of 3 runs, 24 – 26 tokens/s",
            "smollm2-135m, bfloat16, 1,024 tokens in, concurrency 1",
            "A CPU, 2 cores, 2 threads, torch 2.13.0, 2026-11-29T12:00:00Z",
        ],
    ),
    "simulated": (
        simulated("t", 1.0, "s", simulator="queue", calibration="decode", seed=0),
        ["simulator: queue", "calibration: decode", "seed: 0"],
    ),
    "published": (
        published("p", 165.2, "TFLOP/s", source="data sheet", date="2022-09", setting="dense", note=None, page=7),
        ["data sheet, 2022-09", "dense", "page: 7"],
    ),
}


@pytest.mark.parametrize(("entry", "lines"), EXPLAINED.values(), ids=EXPLAINED)
def test_what_a_number_rests_on(entry, lines):
    assert explain(entry.to_dict()) == lines
    for line in lines:
        assert line in entry._repr_mimebundle_()["text/html"]


def test_a_gpu_is_named_and_one_run_is_called_one():
    environment = {**MACHINE, "gpus": [{"name": "A GPU"}]}
    lines = explain(measured("m", 1.0, "s", environment=environment, **SETTING).to_dict())
    assert lines[0] == "one run"
    assert lines[2].startswith("A GPU, A CPU")


class Balanced(HTMLParser):
    """Fails on a tag that is closed in the wrong place; counts the others."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_well_formed_and_escaped():
    odd = published(
        "p", 1.0, "s", source="<b>x</b> https://example.org/a?b=1&c=2, p. 3", date="2022", setting="a < b", title="<i>"
    )
    for shown in (odd, compare(odd, odd, title="<u>&")):
        html = shown._repr_mimebundle_()["text/html"]
        parser = Balanced()
        parser.feed(html)
        assert parser.open == []
        assert not {"b", "i", "u"} & set(parser.seen)
        assert '<a href="https://example.org/a?b=1&amp;c=2">' in html
        assert html.count("published") == (2 * html.count("<summary"))  # the badge and data-label


def test_labels_stand_in_both_renderings():
    bundle = compare(WEIGHTS, WEIGHTS)._repr_mimebundle_()
    assert "16.06 GB (computed)" in bundle["text/plain"]
    assert 'data-name="weights" data-label="computed"' in bundle["text/html"]
