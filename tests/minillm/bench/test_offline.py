"""`bench throughput` and `bench latency` on the tiny model."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from minillm.bench.cli import app
from minillm.bench.offline import latency, random_prompts, throughput
from minillm.errors import ConfigError


@pytest.fixture
def tiny_args(tiny_folder):
    return ["--model", str(tiny_folder), "--load-format", "dummy", "--dtype", "float32", "--threads", "1"]


def test_throughput_counts_what_it_ran(tiny_llm):
    calls = []
    fields = dict(range_ratio=0.5, num_warmups=1, num_repeats=3, seed=4)
    result = throughput(tiny_llm(max_num_seqs=3), 7, 12, 6, **fields, on_done=lambda: calls.append(1))
    assert len(calls) == 4 and len(result["elapsed_times"]) == 3
    assert result["elapsed_time"] == sorted(result["elapsed_times"])[1]
    assert result["num_requests"] == 7
    assert 7 * 3 <= result["total_output_tokens"] <= 7 * 9
    assert result["requests_per_second"] == pytest.approx(7 / result["elapsed_time"])
    assert result["tokens_per_second"] == pytest.approx(result["total_num_tokens"] / result["elapsed_time"])
    low, high = result["output_tokens_per_second_spread"]
    assert low <= result["output_tokens_per_second"] <= high


def test_no_two_runs_share_a_prompt(tiny_llm, monkeypatch):
    """A repeated prompt would be found in the prefix cache, and its prefill would cost nothing."""
    llm, seen = tiny_llm(), []
    generate = llm.generate
    monkeypatch.setattr(llm, "generate", lambda prompts, params: seen.extend(map(tuple, prompts)) or generate(prompts, params))
    latency(llm, 2, 20, 3, num_warmups=1, num_repeats=2)
    assert len(seen) == len(set(seen)) == 6


def test_latency_percentiles(tiny_llm):
    result = latency(tiny_llm(), 3, 5, 4, num_warmups=0, num_repeats=5)
    assert len(result["latencies"]) == 5
    assert result["avg_latency"] == pytest.approx(np.mean(result["latencies"]))
    assert result["percentiles"]["50"] == sorted(result["latencies"])[2]
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]


def test_random_prompts_hold_no_special_token(tiny_llm):
    llm = tiny_llm()
    (prompt,) = random_prompts(llm, [5000], np.random.default_rng(0))
    assert not set(prompt) & llm.tokenizer.special_ids
    assert 0 <= min(prompt) and max(prompt) < llm.engine.model_config.vocab_size


@pytest.mark.parametrize(
    "command, fields",
    [
        (
            ["throughput", "--num-prompts", "4", "--num-repeats", "2"],
            {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"},
        ),
        (
            ["latency", "--batch-size", "2", "--num-iters", "2", "--num-iters-warmup", "1"],
            {"avg_latency", "latencies", "percentiles"},
        ),
    ],
)
def test_commands(tiny_args, tmp_path, command, fields):
    path = tmp_path / "out" / "r.json"
    done = CliRunner().invoke(app, [*command, *tiny_args, "--input-len", "8", "--output-len", "4", "--output-json", str(path)])
    assert done.exit_code == 0, done.output
    assert json.loads(path.read_text()).keys() >= fields
    assert {"throughput": "output tokens/s", "latency": "Avg latency"}[command[0]] in done.stdout


def test_prompts_that_cannot_fit_are_one_line(tiny_args):
    error = CliRunner().invoke(app, ["latency", *tiny_args, "--input-len", "100", "--output-len", "100"]).exception
    assert "context holds 128" in str(error)


def test_an_output_file_that_cannot_be_written(tiny_args, tmp_path):
    (tmp_path / "file").write_text("")
    run = ["latency", *tiny_args, "--num-iters", "1", "--num-iters-warmup", "0", "--batch-size", "1", "--output-len", "1"]
    error = CliRunner().invoke(app, [*run, "--output-json", str(tmp_path / "file" / "r.json")]).exception
    assert isinstance(error, ConfigError) and "--output-json" in str(error)
