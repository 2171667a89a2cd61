"""Writing and running: a second run changes only what was measured; nbval finds what no longer comes out."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from notebook_kit.cells import NotebookError
from notebook_kit.execute import BUDGET_S, SLOW_START_BUDGET_S
from notebook_sample import CELLS, NOTEBOOK, UNCOMPARED
from notebooks import check, main, run, write

ROOT = Path(__file__).resolve().parents[2]


def small(folder, *cells):
    return write(folder / "small.ipynb", [*cells])


def source(cell):
    return "".join(cell["source"])


def test_the_same_cells_make_the_same_file(tmp_path):
    first = write(tmp_path / "a" / NOTEBOOK, CELLS)
    second = write(tmp_path / "b" / NOTEBOOK, CELLS)
    assert first.read_bytes() == second.read_bytes()
    notebook = nbformat.read(first, as_version=4)
    nbformat.validate(notebook)
    assert len({cell["id"] for cell in notebook.cells}) == len(CELLS)


def test_ids_say_what_cells_say_and_survive_a_run(tmp_path):
    path = small(tmp_path, ("md", "\n    # Hà Nội\n\n    text\n    "), ("code", "x = 1"), ("code", "x = 1"), ("code", "#"))
    assert [cell["id"] for cell in json.loads(path.read_text())["cells"]] == ["ha-noi", "x-1", "x-1-2", "code"]
    assert source(json.loads(path.read_text())["cells"][0]) == "# Hà Nội\n\ntext"
    notebook = json.loads(path.read_text())
    notebook["cells"][1]["id"] = "chosen"
    del notebook["cells"][2]["id"]
    path.write_text(json.dumps(notebook))
    run(path)
    assert [cell["id"] for cell in json.loads(path.read_text())["cells"]] == ["ha-noi", "chosen", "x-1", "code"]


@pytest.mark.parametrize("cell", [("text", "x"), ("code", "x", {"collapsed": True}), "code", ("md", 3), ("md",)])
def test_a_cell_of_another_form_is_refused(tmp_path, cell):
    with pytest.raises(NotebookError, match="cell 1: "):
        small(tmp_path, cell)


def test_a_run_fills_in_the_numbers(sample):
    texts = [source(cell) for cell in sample.cells()]
    assert any("take [16.06 GB](evidence:weights), [16 GB](evidence:weights:.0f) in" in text for text in texts)
    assert not any("[?]" in text for text in texts)


def test_a_second_run_changes_only_what_was_measured(sample):
    before = sample.cells()
    run(sample.path)
    after = sample.cells()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed  # the times
    for cell in changed:
        assert cell["metadata"] == UNCOMPARED or "(evidence:nap)" in source(cell)
    assert sample.faults() == []


def test_a_run_refreshes_the_card(sample):
    """A module named under "read before" may have been written since, and is a link from then on."""
    sample.replace("| CPU |", "| GPU |")
    assert any("card: needs is 'GPU'" in fault for fault in sample.faults())
    run(sample.path)
    assert sample.faults() == []


def test_nothing_measured_nothing_changed(tmp_path):
    path = small(tmp_path, ("code", "print(sum(range(5)))"), ("md", "text"))
    assert run(path).changed
    before = path.read_bytes()
    assert not run(path).changed
    assert path.read_bytes() == before


def test_the_normal_form_drops_what_differs_between_machines(tmp_path):
    path = small(tmp_path, ("code", "print('a'); print('b')\n1 + 1"))
    notebook = json.loads(path.read_text())
    notebook["metadata"] = {"widgets": {"state": {}}, "kernelspec": {"name": "mine"}, "language_info": {"version": "3.11.9"}}
    notebook["cells"][0]["metadata"] = {"execution": {"iopub.execute_input": "2026"}, "tags": ["b", "a"], "collapsed": True}
    notebook["cells"][0]["execution_count"] = 41
    path.write_text(json.dumps(notebook))
    run(path)
    ran = json.loads(path.read_text())
    assert set(ran["metadata"]) == {"kernelspec", "language_info", "minillm"}
    assert ran["metadata"]["kernelspec"]["name"] == "python3"
    assert ran["metadata"]["language_info"] == {"name": "python"}
    cell = ran["cells"][0]
    assert cell["metadata"] == {"tags": ["a", "b"]}
    assert cell["execution_count"] == 1
    assert [output["output_type"] for output in cell["outputs"]] == ["stream", "execute_result"]
    assert cell["outputs"][0]["text"] == ["a\n", "b\n"]


def test_a_figure_of_shared_plots_brings_its_alt_text(tmp_path):
    draw = "from shared.plots import figure\n\nfigure(alt='Two lines cross at 3.')"
    path = small(tmp_path, ("code", draw), ("code", "print('seen')"))
    run(path)
    assert not run(path).changed
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["metadata"]["alt"] == "Two lines cross at 3."
    assert [fault for fault in check(path) if "a re-run cannot compare" in fault]  # the 3 of the alt text is no printed number


@pytest.mark.parametrize("end, seen", [("plot\nprint(3)", False), ("print(3)\nplot", True)])
def test_a_figure_that_nobody_sees_is_told(tmp_path, end, seen):
    """A print behind it, and the plot is no longer what the cell ends with."""
    path = small(tmp_path, ("code", f"from shared.plots import figure\n\nplot = figure(alt='Two lines cross at 3.')\n{end}"))
    run(path)
    assert any("does not show it" in fault for fault in check(path)) != seen


def test_a_run_is_offline_and_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    path = small(tmp_path, ("code", "import os\nprint(os.environ['HF_HUB_OFFLINE'], os.path.basename(os.getcwd()))"))
    run(path)
    assert json.loads(path.read_text())["cells"][0]["outputs"][0]["text"] == [f"1 {tmp_path.name}\n"]


def test_a_failing_cell_is_shown_and_the_file_kept(tmp_path, capsys):
    path = small(tmp_path, ("code", "print('fine')"), ("code", "answer = 41\nraise ValueError('not 42')"))
    before = path.read_bytes()
    fine = write(tmp_path / "fine.ipynb", [("code", "1")])
    assert main(["run", str(path), str(fine)]) == 1
    out, error = capsys.readouterr()
    assert "2 notebooks in" in out
    assert "; 1 failed" in out
    assert "cell answer-41 failed: ValueError: not 42" in error
    assert "answer = 41" in error
    assert path.read_bytes() == before


def test_a_cell_that_hangs_is_stopped(tmp_path):
    path = small(tmp_path, ("code", "import time\ntime.sleep(60)"))
    with pytest.raises(NotebookError, match="CellTimeoutError"):
        run(path, cell_timeout=1)


def test_a_server_may_take_longer_to_start(tmp_path):
    outcome = run(small(tmp_path, ("code", "1")))
    assert outcome.budget == BUDGET_S
    assert 0 < outcome.cpu_seconds
    assert run(small(tmp_path, ("code", "1", {"tags": ["slow-start"]}))).budget == SLOW_START_BUDGET_S


def test_over_budget_is_said_and_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("notebook_kit.execute.BUDGET_S", 0.0)
    assert main(["run", str(small(tmp_path, ("code", "1")))]) == 1
    assert "over its budget of 0 s" in capsys.readouterr().err


def test_new_makes_a_skeleton_that_runs_and_lacks_only_what_an_author_adds(tmp_path, capsys):
    path = tmp_path / NOTEBOOK
    assert main(["new", str(path)]) == 0
    assert main(["new", str(path)]) == 1
    assert "exists" in capsys.readouterr().err
    empty = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (path.parent / "01_one_token.ipynb").write_text(json.dumps(empty))  # the card links there
    run(path)
    (tmp_path / "labs/c2").mkdir(parents=True)
    (tmp_path / "labs/c2/m03_kv_cache.py").touch()
    assert check(path, tmp_path) == [
        "Explain the gap: no cell shows compare(predicted, measured)",
        "In real engines: cites no code; write [`symbol`](cite:package/path#symbol)",
        "shows no figure; Measure draws the predicted line and the measured points",
    ]
    assert main(["new", str(tmp_path / "other.ipynb")]) == 1


def test_the_command_reports_every_fault(sample, capsys):
    sample.replace("A *cache* keeps", "In 20 ms a *cache* keeps")
    assert main(["check", str(sample.path)]) == 1
    assert f"{sample.path}: " in (errors := capsys.readouterr().err)
    assert "'20 ms' carries no label" in errors
    with pytest.raises(SystemExit):
        main(["check"])


def nbval(folder):
    shutil.copy(ROOT / "series/conftest.py", folder)
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


def as_from_another_machine(notebook):
    """Another rendering of the figure, other last digits: neither is a fault."""
    data = [output["data"] for cell in notebook["cells"] for output in cell.get("outputs", []) if "data" in output]
    figure = next(bundle for bundle in data if "image/svg+xml" in bundle)
    figure["image/svg+xml"] = ["<svg/>"]
    weights = data[0]["application/vnd.minillm.evidence+json"]["entries"][0]
    weights["value"] += 1e-12


def test_nbval_passes_what_comes_out_again_and_finds_what_does_not(sample):
    """One clean notebook with measured cells, evidence and a figure; beside it a copy with two stale outputs."""
    stale = sample.path.read_text()
    for now, then in (("2 * p; p = 8.03", "3 * p; p = 8.03"), ("points: 2", "points: 3")):
        assert now in stale
        stale = stale.replace(now, then, 1)
    sample.path.with_name("stale.ipynb").write_text(stale)
    sample.change(as_from_another_machine)
    outcome = nbval(sample.path.parent)
    failed = [line.split(" - ")[0] for line in outcome.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ["FAILED stale.ipynb::Cell 1", "FAILED stale.ipynb::Cell 3"], outcome.stdout
    assert "8 passed" in outcome.stdout
