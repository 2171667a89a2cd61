"""A label without its context is refused; what is kept comes back from JSON as it went in."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import models
from shared.budget import weight_bytes
from shared.evidence import REQUIRED, Evidence, EvidenceError, calculated, computed, measured, published, simulated

SETTING = {"checkpoint": "smollm2-135m", "dtype": "float32", "input_tokens": 128, "output_tokens": 64, "concurrency": 1}
MACHINE = {"cpu": "a CPU", "cores": 2.0}


def examples() -> list[Evidence]:
    return [
        computed("weights_8b", 16.060522496, "GB", formula="parameters * 2 / 1e9", inputs={"parameters": 8_030_261_248}),
        measured("decode", [24.0, 26.0, 25.0], "tokens/s", environment=MACHINE, **SETTING),
        simulated("ttft_p99", 0.31, "s", simulator="queue", calibration="decode, one request", seed=0),
        published("peak", 165.2, "TFLOP/s", source="vendor's data sheet", date="2022-09", setting="bf16, dense"),
    ]


@pytest.mark.parametrize("evidence", examples(), ids=lambda e: e.label)
def test_comes_back_from_json_equal(evidence):
    assert Evidence.from_dict(json.loads(json.dumps(evidence.to_dict()))) == evidence


@pytest.mark.parametrize("evidence", examples(), ids=lambda e: e.label)
def test_every_required_fact_is_required(evidence):
    assert {e.label for e in examples()} == set(REQUIRED)
    for key in REQUIRED[evidence.label]:
        raw = evidence.to_dict()
        del raw["context"][key]
        with pytest.raises(EvidenceError, match=key):
            Evidence.from_dict(raw)


def test_measured_says_what_is_missing():
    with pytest.raises(EvidenceError, match="must say checkpoint, input_tokens, output_tokens, concurrency"):
        measured("decode", 24.0, "tokens/s", environment=MACHINE, dtype="float32")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_measured_takes_the_median_and_keeps_the_spread(samples):
    evidence = measured("m", samples, "s", environment=MACHINE, **SETTING)
    assert evidence.value == np.median(samples)
    assert (evidence.context["min"], evidence.context["max"]) == (min(samples), max(samples))
    assert evidence.context["repeats"] == len(samples)
    assert evidence.context["samples"] == samples


def test_measured_takes_a_numpy_array_and_a_single_number():
    assert measured("m", np.array([1, 2, 4], dtype=np.float32), "s", environment=MACHINE, **SETTING).value == 2.0
    assert measured("m", 7, "requests", environment=MACHINE, **SETTING).context["samples"] == [7]
    with pytest.raises(EvidenceError, match="at least one sample"):
        measured("m", [], "s", environment=MACHINE, **SETTING)


def test_measured_captures_the_machine_when_none_is_given():
    assert measured("m", 1.0, "s", **SETTING).context["environment"]["cores"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Weights 8B"}, "name"),
        ({"label": "guessed"}, "computed, measured, simulated, published"),
        ({"value": float("nan")}, "finite"),
        ({"value": True}, "finite"),
        ({"value": "16"}, "finite"),
        ({"unit": None}, "unit"),
        ({"context": None}, "context"),
        ({"context": {"formula": "x", "inputs": {"x": object()}}}, "JSON"),
        ({"context": {"formula": "x", "inputs": {"x": float("inf")}}}, "JSON"),
        ({"extra": 1}, "fields"),
    ],
)
def test_refuses_what_is_no_evidence(change, message):
    with pytest.raises(EvidenceError, match=message):
        Evidence.from_dict({**examples()[0].to_dict(), **change})


def test_its_context_cannot_be_changed_through_the_callers_dictionary():
    inputs = {"parameters": 1}
    evidence = computed("c", 1, "", formula="parameters", inputs=inputs)
    inputs["parameters"] = 2
    assert evidence.context["inputs"] == {"parameters": 1}


def test_a_formula_may_be_the_function_itself():
    assert computed("c", 1, "", formula=published, inputs={}).context["formula"] == "shared.evidence:published"


def test_what_a_calculator_gives_names_it_and_what_went_in():
    weights = calculated("weights", "GB", weight_bytes, models.load("llama-3.1-8b"), dtype="bf16", scale=1e-9, title="weights")
    assert weights.value == pytest.approx(16.060522496)
    inputs = {"model": "llama-3.1-8b", "dtype": "bf16"}
    assert weights.context == {"formula": "shared.budget:weight_bytes", "inputs": inputs, "title": "weights"}


def test_a_calculator_without_a_title_or_scale_and_one_called_wrongly():
    def area(width, height=2):
        return width * height

    assert calculated("area", "m2", area, 3).context["inputs"] == {"width": 3}
    assert calculated("area", "m2", area, 3).value == 6
    assert "title" not in calculated("area", "m2", area, 3).context
    with pytest.raises(TypeError, match="depth"):
        calculated("area", "m2", area, 3, depth=1)


def test_reads_as_a_number_with_its_label():
    weights = examples()[0]
    assert str(weights) == f"{weights}" == "16.06 GB (computed)"
    assert f"{weights:.1f}" == "16.1 GB (computed)"
    assert repr(weights) == "<weights_8b: 16.06 GB (computed)>"
