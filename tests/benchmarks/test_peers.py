"""benchmarks/peers.py without other engines: what it asks for, how it counts, what it says of those that are absent or fail."""

import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shared.engines import EngineError, run_json
from shared.results import load

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The scripts' modules, imported as they import each other: from their own folders."""
    names = ("workload", "entries", "report", "peers", "measure", "gguf_models")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(BENCHMARKS / "runners"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


def turn(decode: float, throughput: float, first_tokens=(1, 2), version="engine 1.0") -> dict:
    speeds = {"decode_tokens_per_s": decode, "throughput_tokens_per_s": throughput}
    return {**speeds, "load_s": 1.0, "peak_memory_gb": 0.5, "version": version, "first_tokens": list(first_tokens)}


# ---- one engine's turn


class FakeEngine:
    """Takes 1 s a prompt token in 100, 0.5 s a decode step, on a clock of its own."""

    def __init__(self, monkeypatch, time):
        self.now, self.calls, self.short = 0.0, [], 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def load(self, job):
        self.now += 7.0
        return self.generate, f"fake {job['precision']}"

    def generate(self, prompts, output_lens):
        self.calls.append((prompts, output_lens))
        self.now += sum(map(len, prompts)) / 100 + 0.5 * (max(output_lens) - 1)
        return [[p[0]] * (n - self.short) for p, n in zip(prompts, output_lens, strict=True)]


@pytest.fixture
def job(bench):
    one, many = bench.workload.single(100, 21), bench.workload.mixed(4, 10, 40)
    return {"precision": "int8", "single": vars(one), "mixed": vars(many)}


def test_decode_speed_is_without_prefill_and_warm_up_uses_other_prompts(bench, job, monkeypatch):
    engine = FakeEngine(monkeypatch, bench.measure.time)
    figures = bench.measure.measure(engine.load, job)
    assert figures["load_s"] == 7.0
    assert figures["decode_tokens_per_s"] == pytest.approx(20 / (20 * 0.5))
    assert figures["throughput_tokens_per_s"] == pytest.approx(100 / (100 / 100 + 39 * 0.5))  # 10, 20, 30 and 40 in and out
    assert figures["version"] == "fake int8"
    assert figures["first_tokens"] == [p[0] for p in job["mixed"]["prompts"]]
    measured = [job["single"]["prompts"][0], *job["mixed"]["prompts"]]
    warm_up = [prompt for prompts, _ in engine.calls[:2] for prompt in prompts]
    assert not any(prompt[:2] == other[:2] for prompt in warm_up for other in measured)
    assert 0.01 < figures["peak_memory_gb"] < 100


def test_a_machine_too_busy_to_measure_on_is_said_to_be(bench, job, monkeypatch):
    engine = FakeEngine(monkeypatch, bench.measure.time)

    def interrupted(prompts, output_lens):
        engine.now += 100 if output_lens == [1] else 0
        return engine.generate(prompts, output_lens)

    with pytest.raises(SystemExit, match="too busy to measure on"):
        bench.measure.measure(lambda job: (interrupted, "fake"), job)


def test_answers_of_another_length_are_refused(bench, job, monkeypatch):
    engine = FakeEngine(monkeypatch, bench.measure.time)
    engine.short = 1
    with pytest.raises(SystemExit, match=r"asked for answers of \[2\] tokens, got \[1\]"):
        bench.measure.measure(engine.load, job)


def test_peak_memory_is_that_of_the_turn_and_not_of_who_started_it(bench, tmp_path):
    """ru_maxrss, say, is handed on through fork and exec."""
    ballast = np.ones(50_000_000)  # 400 MB in this process
    script = tmp_path / "peak.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS / 'runners')!r})\nimport measure; print(measure.peak_memory_bytes())"
    )
    assert run_json(sys.executable, script, None) < 100e6 < ballast.nbytes <= bench.measure.peak_memory_bytes()


def test_work_is_the_same_every_time(bench):
    work = bench.workload.mixed()
    assert (work, bench.workload.single()) == (bench.workload.mixed(), bench.workload.single())
    assert (len(work.prompts), work.num_input_tokens, work.num_output_tokens) == (16, 2304, 2304)
    assert sorted(map(len, work.prompts)) == sorted(work.output_lens)
    assert (min(work.output_lens), max(work.output_lens)) == (32, 256)


# ---- entries


@pytest.mark.parametrize(
    "text", ["minillm:int8", "minillm:bf16:eager", "llama.cpp:q4_1:unified", "openvino:int8", "vllm-cpu:bf16"]
)
def test_entries_are_read_and_written_alike(bench, text):
    assert str(bench.entries.Entry.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ollama:q4_0", "no engine 'ollama'; choose one of minillm, transformers"),
        ("llama.cpp", "llama.cpp: choose one of llama.cpp:q4_1"),
        ("minillm:q8_0", "choose one of minillm:bf16"),
        ("minillm:int8:fast", "'fast' is no way to run minillm; there is minillm:…:eager, llama.cpp"),
        ("transformers:bf16:eager", "'eager' is no way to run transformers"),
    ],
)
def test_an_entry_that_does_not_exist_lists_what_does(bench, text, message):
    with pytest.raises(EngineError, match=message):
        bench.entries.Entry.parse(text)


def test_every_default_entry_has_its_runner(bench):
    for text in bench.entries.DEFAULT:
        engine = bench.entries.Entry.parse(text).engine
        assert (BENCHMARKS / "runners" / f"run_{engine.replace('.', '_').replace('-', '_')}.py").is_file()


def test_what_minillm_is_told(bench):
    parse, prepare = bench.entries.Entry.parse, bench.entries.prepare
    told = prepare(parse("minillm:int8:eager"), "a-model", 2)
    assert told == {"model": "a-model", "threads": 2, "dtype": "bfloat16", "quantization": "int8", "enforce_eager": True}
    told = prepare(parse("minillm:fp32"), "a-model", 1)
    assert told == {"model": "a-model", "threads": 1, "dtype": "float32", "quantization": None, "enforce_eager": False}


# ---- the report


def test_every_second_round_runs_backwards(bench):
    assert [bench.report.order("abc", n) for n in range(3)] == [list("abc"), list("cba"), list("abc")]


def test_ratios_compare_turns_of_the_same_round(bench):
    """On a machine that halves its speed between rounds, ours is twice theirs each time: spread 0, whatever the medians say."""
    parse = bench.entries.Entry.parse
    turns = {
        parse("minillm:bf16"): [turn(40, 100), turn(20, 50), turn(80, 200)],
        parse("llama.cpp:bf16"): [turn(20, 25), turn(10, 25), turn(40, 25)],
    }
    assert bench.report.ratios(*turns.values(), "decode_tokens_per_s") == [2, 2, 2]
    table = bench.report.tables(turns)
    assert "| minillm:bf16 / llama.cpp:bf16 | 2× (2 – 2) | 4× (2 – 8) |" in table
    assert "| minillm:bf16 | engine 1.0 | 40 (20 – 80) | 100 (50 – 200) |" in table


def test_peers_that_start_differently_are_seen(bench):
    parse = bench.entries.Entry.parse
    turns = {parse("llama.cpp:q8_0"): [turn(1, 1, (1, 3))], parse("minillm:bf16"): [turn(1, 1, (1, 2))]}
    reference, same = bench.report.agreement(turns)
    assert str(reference) == "minillm:bf16"
    assert {str(e): n for e, n in same.items()} == {"llama.cpp:q8_0": 1, "minillm:bf16": 2}


def options(bench, *entries, **more) -> SimpleNamespace:
    return SimpleNamespace(model="a-model", entries=list(entries), threads=2, small=True, **{"repeats": 2, "save": None, **more})


def test_a_run_names_the_absent_drops_the_failing_and_is_recorded(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path))
    speed = itertools.count(1)
    happened = []

    def take_turn(entry, job):
        happened.append(str(entry))
        if entry.precision == "int8":
            raise EngineError("run_minillm.py failed (exit 1): not built yet")
        assert len(job["mixed"]["prompts"]) == 4
        return turn(next(speed), 10.0)

    monkeypatch.setattr(bench.peers, "prepare", lambda entry, model, threads: {})
    monkeypatch.setattr(bench.peers, "take_turn", take_turn)
    saved = tmp_path / "peers.json"
    args = options(bench, "transformers:bf16", "llama.cpp:q8_0", "minillm:bf16", "minillm:int8", save=saved)
    assert bench.peers.compare(args) == 1  # something failed
    assert happened == ["transformers:bf16", "minillm:bf16", "minillm:int8", "minillm:bf16", "transformers:bf16"]
    out, err = capsys.readouterr()
    assert "absent: llama.cpp:q8_0 (install with `make engines NAME=llama.cpp`)" in out
    assert "dropped: minillm:int8: run_minillm.py failed (exit 1): not built yet" in err
    run = load(saved)
    assert run.environment["absent"] == ["llama.cpp:q8_0"]
    assert run.environment["failed"] == {"minillm:int8": "run_minillm.py failed (exit 1): not built yet"}
    assert run["minillm-bf16.decode_tokens_per_s"].context["samples"] == [2, 3]
    ratio = run["minillm-bf16_over_transformers-bf16.decode_tokens_per_s"]
    assert (ratio.value, ratio.context["min"], ratio.context["max"]) == (pytest.approx((2 / 1 + 3 / 4) / 2), 3 / 4, 2.0)
    assert not [e.name for e in run.evidence if "int8" in e.name or "llama" in e.name]


def test_nothing_to_run_is_an_error(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="none of the engines asked for is here"):
        bench.peers.compare(options(bench, "llama.cpp:q8_0"))


# ---- model files


def test_requantizing_keeps_the_metadata_and_the_weights(bench, tmp_path):
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

    matrix = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    writer = GGUFWriter(tmp_path / "in.gguf", "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_file_type(3)
    writer.add_token_list(["a", "Ġb", "ế"])
    stored = quantize(matrix, GGMLQuantizationType.Q4_1)
    writer.add_tensor("token_embd.weight", stored, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = dequantize(stored, GGMLQuantizationType.Q4_1)
    for precision, tolerance in (("q8_0", 0.02), ("bf16", 0.01), ("fp16", 0.002)):
        matrix_type, file_type = bench.gguf_models.PRECISIONS[precision]
        bench.gguf_models.requantize(tmp_path / "in.gguf", tmp_path / "out.gguf", matrix_type, file_type)
        reader = GGUFReader(tmp_path / "out.gguf")
        assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "Ġb", "ế"]
        assert reader.fields["llama.block_count"].contents() == 1
        assert reader.fields["general.file_type"].contents() == int(file_type)
        weights, norm = reader.tensors
        assert (weights.tensor_type, norm.tensor_type) == (matrix_type, GGMLQuantizationType.F32)
        np.testing.assert_allclose(dequantize(weights.data, weights.tensor_type), expected, atol=tolerance)
        np.testing.assert_array_equal(norm.data, np.ones(64, dtype=np.float32))
