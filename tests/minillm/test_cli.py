"""The `minillm` command as a user runs it: in a process of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

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
    for command in ([], ["serve"], ["chat"], ["generate"], ["pull"]):
        assert "Usage" in minillm(*command, "--help").stdout


def test_version():
    assert re.fullmatch(r"minillm \d+\.\d+\.\d+\n", minillm("--version").stdout)


def test_generate_repeats_itself_with_a_seed(tiny_args):
    run = [*tiny_args, "--no-chat", "--max-tokens", "12", "--seed", "5"]
    given = minillm("generate", *run, "--prompt", "abc")
    assert given.returncode == 0, given.stderr
    assert given.stdout.strip()
    assert minillm("generate", *run, "--prompt", "-", stdin="abc").stdout == given.stdout
    assert minillm("generate", *run[:-1], "6", "--prompt", "abc").stdout != given.stdout


def test_generate_says_what_is_wrong(tiny_args):
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "abc"), "no chat template", "--no-chat")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "-", stdin=" \n"), "prompt is empty")
    assert_one_line_error(minillm("generate", *tiny_args, "--prompt", "x", "--temperature", "-1"), "temperature")
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


def test_serve_from_ready_to_ctrl_c(tiny_args):
    server = subprocess.Popen(
        [*MINILLM, "serve", *map(str, tiny_args), "--port", "0"], stderr=subprocess.PIPE, text=True, env=ENV
    )
    try:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        text = "".join(lines)
        assert "loaded" in text and "float32" in text and "1 thread" in text
        address = re.search(r"http://127\.0\.0\.1:\d+", text).group()
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        assert httpx.post(f"{address}/v1/completions", json={"prompt": "abc"}).json()["usage"]["completion_tokens"] > 0
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        assert "Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.wait()


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
