"""The `minillm` command as a user runs it: in a process of its own."""

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import pytest
import typer
from typer.testing import CliRunner

from minillm.cli_options import HELP, engine_options
from minillm.config import EngineConfig
from minillm.parts import PARTS

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
MINILLM = [sys.executable, "-c", "from minillm.cli import main; main()"]


def minillm(*args, stdin=""):
    return subprocess.run([*MINILLM, *map(str, args)], input=stdin, capture_output=True, text=True, env=ENV, timeout=120)


@pytest.fixture
def tiny_args(tiny_folder):
    return [tiny_folder, "--load-format", "dummy", "--dtype", "float32", "--threads", "1"]


def assert_one_line_error(result, *mentions):
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr
    for mention in mentions:
        assert mention in result.stderr


def test_help_needs_no_torch():
    code = "import sys, minillm.cli; sys.exit(any(m in sys.modules for m in ('torch', 'fastapi', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], env=ENV).returncode == 0
    for command in ([], ["serve"], ["chat"], ["generate"], ["pull"], ["bench"], ["parts"]):
        assert "Usage" in minillm(*command, "--help").stdout


def test_every_field_of_the_engines_config_is_an_option_with_help():
    fields = {field.name for field in dataclasses.fields(EngineConfig)}
    assert set(HELP) == fields
    text = minillm("serve", "--help").stdout
    for name in fields - {"model"}:
        assert f"--{name.replace('_', '-')}" in text
    assert "--no-enable-prefix-caching" in text and "--no-enable-chunked-prefill" in text


def options_of(*args):
    """The EngineConfig and the rest that a command decorated with engine_options is called with."""
    seen = {}
    app = typer.Typer()

    @app.command()
    @engine_options(
        **({"model_is_option": True, "without": ("seed",), "defaults": {"block_size": 32}} if args[:1] == ("bench",) else {})
    )
    def command(config: EngineConfig, extra: Annotated[int, typer.Option()] = 3):
        seen.update(config=config, extra=extra)

    result = CliRunner().invoke(app, list(args[1:]))
    assert result.exit_code == 0, result.output
    return seen["config"], seen["extra"]


def test_options_become_the_config():
    assert options_of("serve") == (EngineConfig(), 3)
    config, extra = options_of(
        "serve", "some/model", "--kv-cache-memory-bytes", "5000", "--no-enable-prefix-caching", "--enforce-eager",
        "--scheduling-policy", "priority", "--gpu-memory-utilization", "0.5", "--quantization", "int4", "--extra", "4",
    )  # fmt: skip
    assert extra == 4
    assert config == EngineConfig(
        model="some/model", kv_cache_memory_bytes=5000, enable_prefix_caching=False, enforce_eager=True,
        scheduling_policy="priority", gpu_memory_utilization=0.5, quantization="int4",
    )  # fmt: skip
    assert options_of("bench", "--model", "m", "--threads", "2")[0] == EngineConfig(model="m", threads=2, block_size=32)


def test_a_flag_that_does_not_exist_is_named():
    for flag in ("--tensor-parallel-size", "--swap-space", "--enable-lora"):
        result = minillm("serve", flag, "2")
        assert result.returncode == 2
        assert flag in result.stderr


def test_parts_are_listed():
    listed = minillm("parts", "--long").stdout
    for part in PARTS.values():
        assert part.name in listed and part.reference in listed


def test_compile_says_what_is_wrong(tiny_args):
    assert_one_line_error(minillm("compile", *tiny_args, "--kv", "contiguous"), "--kv contiguous")
    assert_one_line_error(minillm("compile", *tiny_args, "--batch-size", "0"), "at least 1")


def test_an_empty_api_key_is_no_key():
    assert_one_line_error(minillm("serve", "--api-key", " "), "API key is empty", "MINILLM_API_KEY")


def test_version():
    assert re.fullmatch(r"minillm \d+\.\d+\.\d+\n", minillm("--version").stdout)


def test_generate_repeats_itself_with_a_seed(tiny_args):
    run = [*tiny_args, "--no-chat", "--max-tokens", "12", "--seed", "5"]
    given = minillm("generate", *run, "--prompt", "abc")
    assert given.returncode == 0, given.stderr
    assert given.stdout.strip()
    assert minillm("generate", *run, "--prompt", "-", stdin="abc").stdout == given.stdout
    assert minillm("generate", *run[:-1], "6", "--prompt", "abc").stdout != given.stdout
    narrow = minillm("generate", *run, "--top-k", "1", "--prompt", "abc").stdout
    assert narrow == minillm("generate", *run, "--temperature", "0", "--prompt", "abc").stdout != given.stdout


def test_generate_says_what_is_wrong(tiny_args):
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "abc"), "no chat template", "--no-chat")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "-", stdin=" \n"), "prompt is empty")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "x", "--temperature", "-1"), "temperature")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "x", "--top-p", "0"), "top_p must be in (0, 1]")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "x", "--dtype", "int3"), "--dtype int3", "float32")
    assert_one_line_error(minillm("generate", *tiny_args, "--no-chat", "--prompt", "x" * 300), "300 tokens", "128")


def test_chat_keeps_the_conversation_and_leaves_on_quit():
    result = minillm(
        "chat",
        "smollm2-135m",
        "--temperature",
        "0",
        "--max-tokens",
        "12",
        stdin="What is the capital of France?\n/what\n/reset\n/quit\n",
    )
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert "unknown command /what" in result.stderr
    assert "forgotten" in result.stderr
    assert "12 out" in result.stderr or "8 out" in result.stderr


def test_chat_leaves_at_the_end_of_input(tiny_args):
    result = minillm("chat", *tiny_args, stdin="hello\n")
    assert result.returncode == 0, result.stderr
    assert "no chat template" in result.stderr  # an error of one turn does not end the conversation


def test_ctrl_c_stops_an_answer_and_not_the_conversation():
    args = ["chat", "smollm2-135m", "--seed", "1", "--max-tokens", "2000"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    talk = subprocess.Popen([*MINILLM, *args], text=True, env=ENV, **pipes)
    try:
        talk.stdin.write("Write a very long story about a lighthouse keeper and the sea.\n")
        talk.stdin.flush()
        assert talk.stdout.read(20)  # the answer has begun
        talk.send_signal(signal.SIGINT)
        _, errors = talk.communicate("/quit\n", timeout=60)
        assert talk.returncode == 0
        assert "stopped" in errors
        assert "Traceback" not in errors
    finally:
        talk.kill()
        talk.wait()


def test_pull_prints_where_the_model_lies(tiny_folder):
    result = minillm("pull", "smollm2-135m")
    assert result.returncode == 0, result.stderr
    assert (Path(result.stdout.strip()) / "config.json").is_file()
    assert_one_line_error(minillm("pull", tiny_folder / "nothing"), "nothing")


@contextmanager
def served(*args, **env):
    """`minillm serve` in a process of its own: gives the process, its address and what it said before it was ready."""
    command = [*MINILLM, "serve", *map(str, args), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENV | env)
    try:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        text = "".join(lines)
        yield server, re.search(r"http://127\.0\.0\.1:\d+", text).group(), text
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serve_from_ready_to_the_end(tiny_args, tmp_path, stop):
    record = tmp_path / "events.jsonl"
    with served(*tiny_args, "--record-events", record) as (server, address, text):
        assert "loaded" in text and "float32" in text and "1 thread" in text
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        assert httpx.post(f"{address}/v1/completions", json={"prompt": "abc"}).json()["usage"]["completion_tokens"] > 0
        server.send_signal(stop)
        assert server.wait(20) in (0, -stop)
        assert "Traceback" not in server.stderr.read()
    assert all(json.loads(line) for line in record.read_text().splitlines())
    assert record.read_text().count("\n") > 1


def test_serve_flags_reach_the_server(tiny_args):
    flags = ["--max-body-bytes", "500", "--served-model-name", "nick", "--max-num-seqs", "1", "--max-queue-size", "1"]
    with served(*tiny_args, *flags, MINILLM_API_KEY="k") as (_, address, _text):
        assert httpx.get(f"{address}/v1/models").status_code == 401
        client = httpx.Client(base_url=address, headers={"authorization": "Bearer k"})
        assert client.get("/v1/models").json()["data"][0]["id"] == "nick"
        assert client.post("/v1/completions", json={"prompt": "x" * 600}).status_code == 413
        response = client.post("/v1/completions", json={"prompt": "x", "n": 3})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


def test_serve_notices_a_port_in_use_before_it_loads_anything():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = minillm("serve", "no/such-model", "--port", port)
    assert_one_line_error(result, f"port {port} is in use", "--port")
    assert "such-model" not in result.stderr


def test_serve_says_what_is_wrong(tmp_path, tiny_args):
    assert_one_line_error(minillm("serve", *tiny_args, "--port", "0", "--host", "no.such.host.invalid"), "no.such.host.invalid")
    assert_one_line_error(minillm("serve", *tiny_args, "--port", "0", "--max-num-seqs", "0"), "--max-num-seqs")
    assert_one_line_error(minillm("serve", *tiny_args, "--port", "0", "--max-model-len", "9999"), "--max-model-len 9999", "128")
    assert_one_line_error(minillm("serve", tmp_path / "nothing", "--port", "0"), "nothing")
