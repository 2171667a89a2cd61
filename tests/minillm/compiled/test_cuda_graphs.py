"""What is around CUDA graphs, on a CPU: the capture is replaced by a call that writes to the same output each time."""

import logging

import pytest

from minillm import loading
from minillm.compiled.cuda_graphs import batch_sizes, capture_buckets, captured
from minillm.compiled.dispatch import CompiledDecoder
from minillm.config import EngineConfig
from minillm.request import SamplingParams

PROMPTS = [[5, 9, 200], [7], list(range(60)), [1, 2] * 9, [44] * 16, [3, 1, 4, 1, 5], [250, 251]]
MAX_MODEL_LEN = 128


def on_a_cpu(run):
    output = run().clone()
    return lambda: output.copy_(run()), output


def no_memory(run):
    raise RuntimeError("CUDA out of memory.\nA long story follows.")


def answers(llm):
    # different lengths, so that every batch size occurs
    params = [SamplingParams(temperature=0, max_tokens=4 + 3 * i, ignore_eos=True) for i in range(len(PROMPTS))]
    return [g.outputs[0].token_ids for g in llm.generate(PROMPTS, params)]


@pytest.fixture
def parts(tiny_llm):
    """An engine, its decoder and its cache."""
    llm = tiny_llm(max_num_seqs=4)
    return llm, llm.engine.runner.model, llm.engine.scheduler.kv.layers


def test_graphs_are_fed_and_read_right(parts, tiny_llm):
    llm, decoder, layers = parts
    buckets = capture_buckets(decoder, layers, [2, 4], MAX_MODEL_LEN, on_a_cpu)
    llm.engine.runner.model = CompiledDecoder(decoder, buckets)
    assert answers(llm) == answers(tiny_llm(max_num_seqs=4))


def test_the_default_sizes_are_captured_and_logged(parts, caplog):
    _, decoder, layers = parts
    with caplog.at_level(logging.INFO, "minillm"):
        model = captured(EngineConfig(max_num_seqs=6), decoder, layers, MAX_MODEL_LEN, on_a_cpu)
    assert list(model.buckets) == [1, 4, 6]
    assert "captured decode steps as CUDA graphs for batch sizes 1, 4, 6 in" in caplog.text


@pytest.mark.parametrize("most, sizes", [
    (1, [1]), (6, [1, 4, 6]), (32, [1, 4, 8, 16, 32]), (33, [1, 4, 8, 16, 32, 33]), (128, [1, 4, 8, 16, 32, 64, 128]),
    (200, [1, 4, 8, 16, 32, 64, 128, 200]),
])  # fmt: skip
def test_a_graph_holds_every_batch_whole(most, sizes):
    assert batch_sizes(most) == sizes


@pytest.mark.parametrize("options", [{"enforce_eager": True}, {"kv": "contiguous"}], ids=str)
def test_not_where_they_are_not_wanted(parts, options):
    _, decoder, layers = parts
    assert captured(EngineConfig(**options), decoder, layers, MAX_MODEL_LEN, no_memory) is decoder


def test_a_failed_capture_is_one_warning_and_eager(parts, caplog):
    _, decoder, layers = parts
    assert captured(EngineConfig(), decoder, layers, MAX_MODEL_LEN, no_memory) is decoder
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert warning == (
        "running eager: capturing decode steps as CUDA graphs failed (CUDA out of memory.); --enforce-eager skips the attempt"
    )


def test_an_engine_on_a_gpu_asks_for_them_and_one_on_a_cpu_does_not(parts, monkeypatch):
    llm, decoder, _ = parts
    asked = []
    monkeypatch.setattr(loading, "captured", lambda *args: asked.append(args) or "graphs")
    config, kv = EngineConfig(), llm.engine.scheduler.kv
    monkeypatch.setattr(loading, "find", lambda *args: "compiled")
    assert loading.with_graphs(config, decoder, kv, MAX_MODEL_LEN) == "compiled" and not asked
    monkeypatch.setattr(type(decoder), "device", type("Device", (), {"type": "cuda"})())
    assert loading.with_graphs(config, decoder, kv, MAX_MODEL_LEN) == "graphs"
    assert asked == [(config, decoder, kv.layers, MAX_MODEL_LEN)]
