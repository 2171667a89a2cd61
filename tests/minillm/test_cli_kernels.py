"""`minillm kernels`, with a compiler that answers what it is told."""

import json
from dataclasses import replace

import pytest
from minillm.kernels.catalog import shipped
from minillm.kernels.instruments import table
from typer.testing import CliRunner

from minillm.cli import app
from minillm.errors import ConfigError

COMMAND = CliRunner()


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Compiles everything to one row, whose fields a test may change; the table is a file of the test's own."""
    answer = {"registers": 32, "widest_load": 128, "wide_share": 1.0, "tensor_core_instructions": 8, "blocks": 4, "num_warps": 4}

    def rows(wanted, known=None, progress=None):
        return [table.Row(variant.name, table.target(gpu).arch, table.digest(variant), **answer) for variant, gpu in wanted]

    def recorded():
        return table_of_file(tmp_path / "compiled.json")

    table_of_file, write = table.recorded, table.write
    monkeypatch.setattr(table, "rows", rows)
    monkeypatch.setattr(table, "recorded", recorded)
    monkeypatch.setattr(table, "write", lambda found: write(found, tmp_path / "compiled.json"))
    return answer


def run(*arguments):
    return COMMAND.invoke(app, ["kernels", *arguments])


def test_the_table_of_all_kernels(compiler):
    lines = run().output.splitlines()
    assert len(lines) == 1 + len(table.pairs(shipped(), table.PROMISED)) + 2
    assert lines[-1].startswith("computed: ") and lines[-1].endswith("nothing was run")


def test_some_kernels_for_some_gpus(compiler):
    name = shipped()[0].name
    got = json.loads(run(name, "--gpu", "rtx-4090", "--gpu", "gfx942", "--json").output)
    assert {(row["name"].startswith(name), row["arch"]) for row in got} == {(True, "sm_89"), (True, "gfx942")}


def test_writing_the_table_and_refusing_a_worse_one(compiler):
    count = len(table.pairs(shipped()))
    assert f"{count} rows, {count} of them new or changed" in run("--write").output
    assert f"{count} rows, 0 of them" in run("--write").output
    compiler["registers"] = 64
    refused = run("--write")
    assert refused.exit_code == 1
    assert "registers 32 -> 64" in str(refused.exception) and "--accept" in str(refused.exception)
    assert f"{count} rows, 0 of them" not in run("--write", "--accept").output
    assert run("--write").exit_code == 0


def test_a_fault_is_not_written_down(compiler):
    compiler["tensor_core_instructions"] = 0
    refused = run("--write")
    assert refused.exit_code == 1
    assert "uses no tensor cores" in str(refused.exception)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing"], "no kernel's name begins with 'nothing'"),
        (["--accept"], "--accept belongs to --write"),
        (["--write", "--gpu", "sm_80"], "--write takes all kernels"),
        (["--show", "sass"], "one variant for one GPU"),
        (["--gpu", "rtx-1"], "there is no GPU 'rtx-1'"),
    ],
)
def test_mistakes(compiler, arguments, message):
    failed = run(*arguments)
    assert failed.exit_code == 1
    assert isinstance(failed.exception, ConfigError)
    assert message in str(failed.exception)


def test_show_prints_one_thing_of_one_variant(monkeypatch):
    from minillm.kernels.instruments import inspect as module

    class Found:
        sass = "LDG.E.128"

        def __str__(self):
            return "the summary"

    asked = []
    monkeypatch.setattr(module, "inspect", lambda variant, *gpu: asked.append((variant.name, *gpu)) or Found())
    name = replace(shipped()[-1]).name
    assert run(name, "--show", "sass", "--gpu", "h200").output == "LDG.E.128\n"
    assert run(name, "--show", "summary").output == "the summary\n"
    assert asked == [(name, "h200"), (name,)]
