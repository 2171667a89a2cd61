"""Predicted beside measured: one unit, an honest ratio, the weaker label; one name is one number."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.comparison import Comparison, collect, compare, document, ratio, show
from shared.evidence import EvidenceError, computed, measured, published, simulated
from shared.rendering import MIME

SETTING = {"checkpoint": None, "dtype": "float32", "input_tokens": 128, "output_tokens": 64, "concurrency": 1}


def predicted(value=20.0, unit="ms", name="tpot_predicted"):
    return computed(name, value, unit, formula="bytes / bandwidth", inputs={"bytes": 1})


def found(*samples, unit="ms", name="tpot"):
    return measured(name, samples or (22.0, 21.0, 25.0), unit, environment={"cpu": "a CPU"}, **SETTING)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0.01, 2))
def test_holds_means_within_the_stated_share(p, m, within):
    comparison = compare(predicted(p), found(m), within)
    assert comparison.ratio.value == m / p
    assert comparison.holds == (abs(m / p - 1) <= within)


def test_the_ratio_is_evidence_with_the_measured_label():
    entry = compare(predicted(), found()).ratio
    assert (entry.name, entry.unit, entry.label) == ("tpot.ratio", "×", "measured")
    assert str(entry) == "1.1× (measured)"
    assert (entry.context["min"], entry.context["max"], entry.context["repeats"]) == (21 / 20, 25 / 20, 3)
    assert entry.context["inputs"] == {"tpot": 22.0, "tpot_predicted": 20.0}


@pytest.mark.parametrize("swap", [False, True])
def test_a_ratio_carries_the_weaker_label(swap):
    c, m = predicted(), found()
    p = published("p", 1.0, "ms", source="s", date="2022", setting="x")
    s = simulated("s", 1.0, "ms", simulator="queue", calibration="c", seed=None)
    for weak, strong in ((m, c), (p, m), (s, p), (s, c), (s, m), (p, c)):
        pair = (strong, weak) if swap else (weak, strong)
        assert ratio("r", *pair).label == weak.label
    assert ratio("r", c, c).label == "computed"


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.lists(st.floats(0.1, 10), min_size=1, max_size=5))
def test_the_spread_of_a_ratio_covers_every_pair_of_runs(tops, bottoms):
    entry = ratio("r", found(*tops, name="a"), found(*bottoms, name="b"))
    quotients = [top / bottom for top in tops for bottom in bottoms]
    assert (entry.context["min"], entry.context["max"]) == (min(quotients), max(quotients))
    assert entry.context["repeats"] == min(len(tops), len(bottoms))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compare(predicted(unit="s"), found()), "cannot compare 's' and 'ms'"),
        (lambda: compare(predicted(0.0), found()), "tpot_predicted is zero"),
        (lambda: compare(predicted(), found(), within=0), "it is a fraction"),
        (lambda: compare(predicted(), found(), within=float("nan")), "it is a fraction"),
        (lambda: ratio("r", predicted(unit="s"), found()), "no pure number"),
        (lambda: ratio("r", found(), predicted(0.0)), "is zero"),
        (lambda: show(), "nothing given"),
        (lambda: show(predicted(), 16.06), "'16.06' is neither"),
        (lambda: show(predicted(1.0), predicted(2.0)), "names two numbers, 1 ms .computed. and 2 ms"),
        (lambda: show(predicted(1.0), compare(predicted(2.0), found())), "names two numbers"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(EvidenceError, match=message):
        make()


def test_text_of_a_table(capsys):
    show(predicted(), compare(predicted(), found()), compare(predicted(), found(40.0, name="slow"), 0.5, title="slow, 2 users"))
    assert capsys.readouterr().out == (
        "tpot_predicted  20 ms  computed\n\n"
        "               predicted         measured          ratio\n"
        "tpot           20 ms (computed)  22 ms (measured)  1.1×   within 20 %\n"
        "slow, 2 users  20 ms (computed)  40 ms (measured)  2×     not within 50 %\n"
    )


def test_what_was_not_measured_is_not_headed_measured():
    other = published("p", 21.0, "ms", source="s", date="2022", setting="x")
    assert "measured" not in str(compare(predicted(), other))


def test_in_a_notebook_it_is_displayed_not_printed(monkeypatch, capsys):
    shown = []
    display = SimpleNamespace(display=lambda bundle, raw: shown.append(bundle) if raw else None)
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: object(), display=display))
    show(predicted())
    assert capsys.readouterr().out == ""
    assert [bundle[MIME]["entries"][0]["name"] for bundle in shown] == ["tpot_predicted"]


def test_a_document_names_all_its_evidence_in_order():
    shown = json.loads(json.dumps(document([found(name="first"), compare(predicted(), found())])))
    entries = collect(shown)
    assert list(entries) == ["first", "tpot_predicted", "tpot", "tpot.ratio"]
    assert entries["tpot"] == found()
    with pytest.raises(EvidenceError, match="first names two numbers"):
        collect(document([found(9.0, name="first")]), entries)


def test_a_comparison_shows_itself():
    comparison = Comparison(predicted(), found(), title="TPOT")
    assert comparison._repr_mimebundle_()[MIME]["comparisons"][0]["holds"] is True
    assert str(comparison).splitlines()[1].startswith("TPOT ")
