"""`--mine` and `minillm parts` as a learner types them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from minillm.cli import app
from minillm.cli_mine import complete_mine
from minillm.parts import PARTS

ROOT = Path(__file__).parents[3]
MINILLM = [sys.executable, "-c", "from minillm.cli import main; main()"]
LOUD = """
    def start(self, request, keep_free=0):
        import sys

        print("MINE STARTS", file=sys.stderr)
        return super().start(request, keep_free)
"""
STUB = """
    def start(self, request, keep_free=0):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    "words, expected",
    [
        (["serve", "--mine"], ["serve", "--mine=all"]),
        (["serve", "--mine", "--kv", "paged"], ["serve", "--mine=all", "--kv", "paged"]),
        (["serve", "--mine", "smollm2-135m"], ["serve", "--mine=all", "smollm2-135m"]),
        (["serve", "--mine", "some/model.gguf"], ["serve", "--mine=all", "some/model.gguf"]),
        (["serve", "--mine", "kv.contiguous,text.stop", "m"], ["serve", "--mine", "kv.contiguous,text.stop", "m"]),
        (["serve", "--mine", "kv.mistyped"], ["serve", "--mine", "kv.mistyped"]),
        (["serve", "--mine=kv.contiguous", "m"], ["serve", "--mine=kv.contiguous", "m"]),
        (["serve", "--mine", "all", "m"], ["serve", "--mine", "all", "m"]),
        (["serve", "--mine", "kv.contiguous,nosuch"], ["serve", "--mine", "kv.contiguous,nosuch"]),
        (["serve", "m"], ["serve", "m"]),
    ],
)
def test_the_value_of_mine_may_be_left_out(words, expected):
    assert complete_mine(words) == expected


@pytest.mark.parametrize("word", ["nosuch", "kv", "kvs.contiguous", "rms_norm"])
def test_a_word_that_is_neither_part_nor_model(word):
    refused = minillm("generate", "smollm2-135m", "--mine", word, "-p", "x")
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    assert refused.stderr.startswith(f"error: --mine {word}: there is no part {word!r} (`minillm parts` lists them)")


def test_a_folder_of_any_name_may_be_the_model(tmp_path, monkeypatch):
    (tmp_path / "mymodel").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete_mine(["serve", "--mine", "mymodel"]) == ["serve", "--mine=all", "mymodel"]


def minillm(*args):
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run([*MINILLM, *map(str, args)], capture_output=True, text=True, env=env, timeout=120)


def test_generate_with_mine(labs, tiny_folder, said):
    labs.write("kv.contiguous", LOUD)
    run = ["generate", "--no-chat", "--max-tokens", "5", "--temperature", "0", "-p", "abc", "--load-format", "dummy",
           "--dtype", "float32", "--threads", "1", "--kv", "contiguous"]  # fmt: skip
    plain = CliRunner().invoke(app, [*run, str(tiny_folder)])
    assert plain.exit_code == 0 and said() == [] and plain.stderr == ""
    mine = CliRunner().invoke(app, complete_mine([*run, "--mine", str(tiny_folder)]))
    assert mine.exit_code == 0 and mine.stdout == plain.stdout and mine.stdout.strip()
    assert said() == ["yours: kv.contiguous, ContiguousKV in labs/c2/m03_kv_contiguous.py"]
    assert mine.stderr == "MINE STARTS\n"


def test_generate_refuses_a_part_that_cannot_be(labs, tiny_folder):
    refused = minillm("generate", tiny_folder, "-p", "abc", "--mine", "kv.paged")
    assert refused.returncode == 1
    assert refused.stderr == "error: --mine kv.paged: no lab asks for this part; those that one does: none yet\n"


def test_serve_with_mine(labs, tiny_folder):
    labs.write("kv.contiguous")
    command = [*MINILLM, "serve", str(tiny_folder), "--load-format", "dummy", "--threads", "1", "--kv", "contiguous",
               "--port", "0", "--mine"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}) as server:
        try:
            said = []
            for line in server.stderr:
                said.append(line)
                if "Ctrl-C" in line:
                    break
            url = re.search(r"http://127\.0\.0\.1:\d+", "".join(said)).group()
            assert httpx.get(f"{url}/health").json()["own_parts"] == ["kv.contiguous"]
        finally:
            server.kill()
    assert "yours: kv.contiguous, ContiguousKV in labs/c2/m03_kv_contiguous.py\n" in said


def test_parts_says_whose_each_is(labs):
    labs.write("kv.contiguous")
    labs.write("sampling.pipeline", passing=False)
    labs.write("text.stop", STUB, passing=False)
    labs.write("attention.sdpa").open("a").write("\n# changed\n")
    labs.write("text.stream", "    def broken(:\n", passing=False)
    head, *lines = minillm("parts").stdout.splitlines()
    assert head.split() == ["part", "whose", "lab", "what", "it", "does"]
    assert max(map(len, [head, *lines])) <= 80
    shown = {line.split()[0]: re.split("  +", line)[1:3] for line in lines if line.split() and line[0] != " "}
    assert [name for name in shown if name in PARTS] == list(PARTS)
    assert shown["kv.contiguous"] == ["yours", "2.3"]
    assert shown["sampling.pipeline"] == ["yours, not passing", "2.5"]
    assert shown["text.stop"] == ["reference", "2.8"]
    assert shown["kv.paged"] == ["reference", "no lab yet"]
    assert shown["attention.sdpa"] == ["yours, changed", "2.9"] and shown["text.stream"] == ["yours, broken", "2.7"]
    assert lines[-2:] == [
        "your SdpaAttention changed since it passed: labs check 2.9",
        "labs/c2/m07_text_stream.py is not valid Python: labs check 2.7",
    ]
    text = " ".join(" ".join(lines).split())
    assert all(part.summary.split()[0] in text for part in PARTS.values())


def test_parts_long_and_json(labs):
    labs.write("kv.contiguous")
    _, *lines = minillm("parts", "--long").stdout.splitlines()
    for line, part in zip(lines, PARTS.values(), strict=True):
        assert line.startswith(part.name) and part.summary in line and line.endswith(part.reference)
    rows = {row["name"]: row for row in json.loads(minillm("parts", "--json").stdout)}
    assert list(rows) == list(PARTS)
    assert rows["kv.contiguous"] == {
        "name": "kv.contiguous", "whose": "yours", "lab": "2.3", "exercise": "ContiguousKV",
        "file": "labs/c2/m03_kv_contiguous.py", "summary": PARTS["kv.contiguous"].summary,
        "reference": PARTS["kv.contiguous"].reference, "todo": None,
    }  # fmt: skip


def test_every_command_that_runs_a_model_takes_it():
    for command in (["serve"], ["generate"], ["chat"], ["bench", "throughput"], ["bench", "latency"]):
        assert "--mine" in CliRunner().invoke(app, [*command, "--help"]).output, command
