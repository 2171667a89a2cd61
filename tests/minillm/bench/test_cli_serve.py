"""`minillm bench serve` as typed, against minillm's own server with a tiny model."""

import json
import shutil
import sys

import pytest
from typer.testing import CliRunner

from minillm.async_engine import AsyncEngine
from minillm.bench.cli import app
from minillm.bench.client import BenchError
from minillm.errors import ConfigError
from minillm.llm import LLM
from minillm.server.app import build_app

NAMED = (
    "date backend model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed failed "
    "total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput "
    "max_output_tokens_per_s max_concurrent_requests"
)
FIELDS = {*NAMED.split(), *(f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl", "e2el"))}


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


@pytest.fixture(scope="module")
def address(tiny_folder, tmp_path_factory, serve_app):
    folder = tmp_path_factory.mktemp("tiny-chat")
    shutil.copytree(tiny_folder, folder, dirs_exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    llm = LLM(str(folder), load_format="dummy", dtype="float32", threads=1, max_num_seqs=4)
    with serve_app(build_app(AsyncEngine(llm.engine))) as url:
        yield url


def invoke(address, folder, *args):
    fixed = ["--base-url", address, "--tokenizer", str(folder), "--disable-tqdm", "--ignore-eos"]
    shape = ["--num-prompts", "12", "--random-input-len", "20", "--random-output-len", "6"]
    return CliRunner().invoke(app, ["serve", *fixed, *shape, *args])


@pytest.mark.parametrize(
    "load, loop, rate, concurrency",
    [
        (["--request-rate", "200", "--burstiness", "0.5"], "open", 200.0, None),
        (["--max-concurrency", "3", "--num-warmups", "2"], "closed", "inf", 3),
        (["--request-rate", "200", "--max-concurrency", "2"], "open, concurrency capped", 200.0, 2),
    ],
)
def test_both_loops(address, tiny_folder, tmp_path, load, loop, rate, concurrency):
    save = ["--save-result", "--save-detailed", "--result-dir", str(tmp_path / "new"), "--result-filename", "r.json"]
    done = invoke(address, tiny_folder, *load, *save, "--goodput", "ttft:60000", "tpot:60000", "--metadata", "tp=1", "note=x")
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "new" / "r.json").read_text())
    assert result.keys() >= FIELDS
    assert (result["loop"], result["request_rate"], result["max_concurrency"]) == (loop, rate, concurrency)
    assert (result["completed"], result["failed"], result["failures"]) == (12, 0, {})
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (12 * 20, 12 * 6)
    assert result["input_lens"] == [20] * 12 and result["output_lens"] == [6] * 12
    assert all(len(itls) == 5 for itls in result["itls"])
    for ttft, e2el, itls in zip(result["ttfts"], result["e2els"], result["itls"], strict=True):
        assert e2el == pytest.approx(ttft + sum(itls))
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert result["max_concurrent_requests"] <= (concurrency or 12)
    assert (result["tp"], result["note"]) == ("1", "x")
    assert result["mean_itl_ms"] == pytest.approx(result["mean_tpot_ms"])  # answers of equal length
    for line in ("Successful requests:                      12", "Time to First Token", "P99 E2EL (ms):"):
        assert line in done.stdout


def test_a_seed_repeats_the_answers(address, tiny_folder, tmp_path):
    texts = []
    for seed in ("1", "1", "2"):
        save = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", f"{len(texts)}.json"]
        assert invoke(address, tiny_folder, "--max-concurrency", "4", "--seed", seed, *save).exit_code == 0
        texts.append(json.loads((tmp_path / f"{len(texts)}.json").read_text())["generated_texts"])
    assert texts[0] == texts[1] != texts[2]


def test_a_ramp_is_recorded_and_named(address, tiny_folder, tmp_path):
    ramp = ["--ramp-up-strategy", "linear", "--ramp-up-start-rps", "100", "--ramp-up-end-rps", "400"]
    done = invoke(address, tiny_folder, *ramp, "--save-result", "--result-dir", str(tmp_path))
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("openai-ramp-up-linear-100qps-400qps-")
    result = json.loads(path.read_text())
    assert (result["ramp_up_strategy"], result["ramp_up_start_rps"], result["ramp_up_end_rps"]) == ("linear", 100.0, 400.0)
    assert (result["loop"], result["completed"]) == ("open", 12)
    error = invoke(address, tiny_folder, *ramp, "--metadata", "ramp_up_strategy=mine").exception
    assert isinstance(error, ConfigError) and "field of that name" in str(error)


@pytest.mark.parametrize("more, lengths", [([], {7, 15}), (["--sharegpt-output-len", "7"], {7}), (["--output-len", "3"], {3})])
def test_sharegpt(address, tiny_folder, tmp_path, more, lengths):
    talk = [(f"Is {i} odd?", "Yes, it is odd." if i % 2 else "Not so.") for i in range(2, 9)]
    entries = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a in talk]
    (tmp_path / "s.json").write_text(json.dumps(entries))
    source = ["--dataset-name", "sharegpt", "--dataset-path", str(tmp_path / "s.json")]
    save = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    done = invoke(address, tiny_folder, *source, "--max-concurrency", "4", *more, *save)
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] == 12 and set(result["input_lens"]) == {len("Is 2 odd?")}  # the tiny model's tokens are bytes
    assert set(result["output_lens"]) == lengths


def test_chat(address, tiny_folder, tmp_path):
    save = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    done = invoke(address, tiny_folder, "--backend", "openai-chat", "--max-concurrency", "4", *save)
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["backend"], result["completed"]) == ("openai-chat", 12)
    assert result["total_input_tokens"] == 12 * 22  # the template's two tokens are the prompt's too
    assert result["output_lens"] == [6] * 12


def test_chosen_metrics_and_percentiles(address, tiny_folder):
    done = invoke(address, tiny_folder, "--percentile-metrics", "ttft", "--metric-percentiles", "50,99.9")
    assert done.exit_code == 0, done.output
    assert "P99.9 TTFT (ms):" in done.stdout and "P50 TTFT" in done.stdout
    assert "ITL" not in done.stdout and "P99 TTFT" not in done.stdout


def test_a_model_that_is_not_served(address, tiny_folder):
    error = invoke(address, tiny_folder, "--model", "gpt-9").exception
    assert isinstance(error, BenchError) and "HTTP 404" in str(error) and "gpt-9" in str(error)


def test_all_failed_is_an_error(address, tiny_folder):
    done = invoke(address, tiny_folder, "--output-len", "5000", "--ready-check-timeout-sec", "0")
    assert isinstance(done.exception, BenchError)
    assert "failed: 12 × HTTP 400" in done.stdout


def test_plot(address, tiny_folder, tmp_path, monkeypatch):
    chart = tmp_path / "charts" / "run.svg"
    done = invoke(address, tiny_folder, "--request-rate", "300", "--plot", str(chart))
    assert done.exit_code == 0, done.output
    assert chart.read_text().count("<svg") == 1 and chart.stat().st_size > 5000
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as if it were not installed
    error = invoke("http://127.0.0.1:9", tiny_folder, "--plot", str(chart)).exception
    assert isinstance(error, ConfigError) and ".[learn]" in str(error)
