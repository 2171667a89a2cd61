"""What flag values may be, and that what is not supported is refused before anything runs."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from minillm.bench.cli import app
from minillm.bench.options import (
    parse_extra_body,
    parse_goodput,
    parse_metadata,
    parse_metrics,
    parse_percentiles,
    share_out,
)
from minillm.errors import ConfigError


def test_goodput():
    assert parse_goodput(["ttft:500", "tpot:50.5", "e2el:1e4"]) == {"ttft": 0.5, "tpot": 0.0505, "e2el": 10.0}
    for wrong in ("ttft", "ttft:", "ttft:fast", "itl:5", "ttft:0", "ttft:-1", "ttft:inf", "ttft:nan"):
        with pytest.raises(ConfigError, match="--goodput"):
            parse_goodput([wrong])


def test_metadata():
    assert parse_metadata(["tp=1", "note=a=b"]) == {"tp": "1", "note": "a=b"}
    for wrong in ("tp", "=1", "duration=5"):
        with pytest.raises(ConfigError, match="--metadata"):
            parse_metadata([wrong], taken=["duration"])


def test_words_after_a_flag_belong_to_it():
    goodput, metadata = ["ttft:500"], ["a=1"]
    share_out(["tpot:50", "b=2:3"], goodput, metadata)
    assert (goodput, metadata) == (["ttft:500", "tpot:50"], ["a=1", "b=2:3"])
    for stray in ("tpot:50", "x=1", "word"):
        with pytest.raises(ConfigError, match="unexpected argument"):
            share_out([stray], [], [])


def test_lists():
    assert parse_percentiles("50,95,99.9") == (50, 95, 99.9)
    assert parse_metrics("e2el,ttft", ["ttft", "tpot", "e2el"]) == ("ttft", "e2el")
    for wrong in ("", "50,", "101", "-1", "p99", "nan"):
        with pytest.raises(ConfigError, match="--metric-percentiles"):
            parse_percentiles(wrong)
    with pytest.raises(ConfigError, match="--percentile-metrics"):
        parse_metrics("ttft,speed", ["ttft"])


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text()))
def test_extra_body_is_any_object(body):
    assume(not {"stream", "stream_options", "n"} & body.keys())
    assert parse_extra_body(json.dumps(body)) == body


@pytest.mark.parametrize("text", ["{", "[1]", "5", '{"stream": false}', '{"stream_options": {}}', '{"n": 2}'])
def test_extra_body_refuses(text):
    with pytest.raises(ConfigError, match="--extra-body"):
        parse_extra_body(text)


RAMP = ["--ramp-up-strategy", "linear"]


@pytest.mark.parametrize(
    "args",
    [
        ["serve", "--ramp-up-strategy", "quadratic"],
        ["serve", "--backend", "tensorrt-llm"],
        ["serve", "--dataset-name", "sonnet"],
        ["serve", "--num-prompts", "0"],
        ["serve", "--max-concurrency", "0"],
        ["throughput", "--tensor-parallel-size", "2"],
        ["latency", "--profile"],
    ],
)
def test_typer_refuses_what_we_lack(args):
    assert CliRunner().invoke(app, args).exit_code == 2


@pytest.mark.parametrize(
    "args, fault",
    [
        (["--request-rate", "0"], "--request-rate"),
        (["--request-rate", "nan"], "--request-rate"),
        (["--burstiness", "inf"], "--burstiness"),
        (["--dataset-name", "custom"], "--dataset-path"),
        (["--dataset-path", "x.jsonl"], "--dataset-name sharegpt or custom"),
        (["--dataset-name", "sharegpt"], "--dataset-path"),
        (["--sharegpt-output-len", "5"], "--dataset-name sharegpt"),
        (["--ramp-up-strategy", "linear"], "all three"),
        (["--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2"], "all three"),
        ([*RAMP, "--ramp-up-start-rps", "0", "--ramp-up-end-rps", "2"], "above 0"),
        ([*RAMP, "--ramp-up-start-rps", "3", "--ramp-up-end-rps", "2"], "no lower"),
        ([*RAMP, "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "nan"], "finite"),
        ([*RAMP, "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2", "--request-rate", "5"], "exclude each other"),
        (["--metadata", "duration=1"], "field of that name"),
        (["--metadata", "p99_itl_ms=1"], "field of that name"),
        (["stray"], "unexpected argument"),
    ],
)
def test_values_that_cannot_work_are_one_line(args, fault):
    error = CliRunner().invoke(app, ["serve", *args]).exception
    assert isinstance(error, ConfigError) and fault in str(error) and "\n" not in str(error)
