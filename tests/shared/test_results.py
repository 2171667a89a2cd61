"""Recorded runs: written whole, read back equal, refused when incomplete; the code and schema.json agree."""

import json
import re
import subprocess
import sys

import jsonschema
import pytest

from shared.environment import ROOT, capture
from shared.evidence import REQUIRED, EvidenceError, computed, measured, published, simulated
from shared.results import RESULTS, load, save, table

SCHEMA = json.loads((RESULTS / "schema.json").read_text())
SETTING = {"checkpoint": "smollm2-135m", "dtype": "float32", "input_tokens": 128, "output_tokens": 64, "concurrency": 1}


@pytest.fixture
def recorded(tmp_path):
    evidence = [
        measured("decode", [24.0, 26.0, 25.0], "tokens/s", environment=capture(), title="Decode, one request", **SETTING),
        computed("weights", 0.269, "GB", formula="parameters * 2 / 1e9", inputs={"parameters": 134_515_008}),
        simulated("ttft_p99", 0.31, "s", simulator="queue", calibration="decode", seed=0),
        published("peak", 165.2, "TFLOP/s", source="vendor's data sheet", date="2022-09", setting="bf16, dense"),
    ]
    path = tmp_path / "run.json"
    return path, save(path, "A run", "python run.py", evidence), evidence


def accepted_by_schema(raw) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(raw)


def accepted_by_code(path, raw) -> bool:
    path.write_text(json.dumps(raw))
    try:
        load(path)
    except EvidenceError:
        return False
    return True


def test_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_recorded_run_is_complete():
    for path in RESULTS.glob("*.json"):
        if path.name != "schema.json":
            load(path)
            jsonschema.validate(json.loads(path.read_text()), SCHEMA, jsonschema.Draft202012Validator)


def test_comes_back_equal(recorded):
    path, run, evidence = recorded
    assert load(path) == run
    assert list(run.evidence) == evidence
    assert run["decode"].value == 25.0
    with pytest.raises(KeyError, match="decode, weights"):
        run["prefill"]
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]


def test_the_machine_is_written_once(recorded):
    path, run, _ = recorded
    assert path.read_text().count(run.environment["cpu"]) == 1
    assert accepted_by_schema(json.loads(path.read_text()))


def test_code_and_schema_refuse_the_same(recorded):
    path, _, evidence = recorded
    whole = json.loads(path.read_text())
    broken = [{k: v for k, v in whole.items() if k != key} for key in whole]
    broken += [
        {**whole, "schema": 2},
        {**whole, "evidence": []},
        {**whole, "environment": {}},
        {**whole, "note": "x"},
        {**whole, "title": ""},
    ]
    broken += [{**whole, "command": None}, [], None]
    broken += [{**whole, "evidence": [entry]} for entry in (None, 1, {}, {**whole["evidence"][0], "context": None})]
    for entry, e in zip(whole["evidence"], evidence, strict=True):
        broken += [{**whole, "evidence": [{k: v for k, v in entry.items() if k != key}]} for key in entry]
        for key in set(REQUIRED[e.label]) - {"environment"}:
            context = {k: v for k, v in entry["context"].items() if k != key}
            broken.append({**whole, "evidence": [{**entry, "context": context}]})
    for raw in broken:
        assert not accepted_by_schema(raw), raw
        assert not accepted_by_code(path, raw), raw
    assert accepted_by_code(path, whole)


def test_two_machines_are_two_runs(tmp_path):
    runs = [measured(name, 1.0, "s", environment={"cpu": name}, **SETTING) for name in ("a", "b")]
    with pytest.raises(EvidenceError, match="different environments"):
        save(tmp_path / "run.json", "A run", "python run.py", runs)
    assert not list(tmp_path.iterdir())


def test_a_name_is_used_once(tmp_path):
    one = computed("same", 1, "", formula="1", inputs={})
    with pytest.raises(EvidenceError, match="used twice: same"):
        save(tmp_path / "run.json", "A run", "python run.py", [one, one])


def test_not_json_and_not_there(tmp_path):
    (tmp_path / "run.json").write_text("{")
    for name in ("run.json", "absent.json"):
        with pytest.raises(EvidenceError, match=re.escape(name)):
            load(tmp_path / name)


def test_table_shows_value_spread_and_label(recorded):
    lines = table(recorded[1]).splitlines()
    assert lines[2] == "| Decode, one request | 25 tokens/s | 24 – 26, 3 runs | measured |"
    assert lines[3] == "| weights | 0.269 GB |  | computed |"


def test_the_tool_prints_good_runs_and_fails_on_bad_ones(recorded, tmp_path):
    def tool(*files):
        command = [sys.executable, str(ROOT / "tools" / "results.py"), *map(str, files)]
        return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=60)

    good = tool(recorded[0])
    assert good.returncode == 0, good.stderr
    assert "Decode, one request" in good.stdout
    (tmp_path / "bad.json").write_text("{}")
    bad = tool(recorded[0], tmp_path / "bad.json")
    assert bad.returncode == 1
    assert "bad.json" in bad.stderr
