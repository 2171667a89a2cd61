"""benchmarks/gpu.py without a GPU: all that it runs, rehearsed in the interpreter; processes that crash and hang; the record."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shared.results import RESULTS, load

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ("cases", "correctness", "engine", "parity", "process", "record", "sections", "speed", "worker", "build", "shapes")


@pytest.fixture(scope="module")
def gpu():
    """The script and its parts, imported as they import each other."""
    sys.path.insert(0, str(BENCHMARKS))
    yield SimpleNamespace(script=importlib.import_module("gpu"), **{n: importlib.import_module(f"on_gpu.{n}") for n in NAMES})
    sys.path.remove(str(BENCHMARKS))
    for name in [name for name in sys.modules if name == "gpu" or name.split(".")[0] == "on_gpu"]:
        del sys.modules[name]


@pytest.fixture
def rehearse(gpu, tmp_path):
    """rehearse("speed") or rehearse("correctness", part, only=[cases]): (cases begun, what was found)."""

    def run(name, part="", only=None):
        setting = gpu.worker.Setting(part, True, {"bandwidth": 1.0, "flops": 1.0})
        section = gpu.sections.section(name)
        skip = [case for case, _ in section(setting) if only and case not in only]
        status = gpu.worker.work(section, setting, tmp_path / "report", 1e6, skip)
        assert status == 0
        return gpu.process.read(tmp_path / "report")

    return run


# ---- everything that a card will run


def test_every_kernel_agrees_with_its_twin(rehearse):
    begun, found = rehearse("correctness", "llama-3.1-8b.bfloat16")
    assert not found.failed and begun == found.ended
    kernels = {name.split(".")[0] for name in begun}
    files = {path.stem for path in (BENCHMARKS.parent / "kernels").glob("*.py") if "SHIPPED" in path.read_text("utf-8")}
    other_names = {"fp8": "fp8_gemm", "fp8_quantize": "quantize_fp8"}
    assert {other_names.get(name, name) for name in files} - {"shipped", "catalog"} <= kernels, "a kernel has no case"


def test_every_speed_is_compared(rehearse):
    begun, found = rehearse("speed")
    assert not found.failed and begun == found.ended
    names = {row["name"] for row in found.rows}
    assert {"speed.flash_attention.torch", "speed.paged_decode.1.share", "speed.gemm.times_torch", "speed.w4a16.1.share"} <= names


@pytest.mark.parametrize("variant", ["bf16.triton.graphs", "bf16.torch.eager"])
def test_the_engine_is_measured(rehearse, variant):
    _, found = rehearse("engine", only=[variant])
    assert not found.failed
    rows = {row["name"]: row for row in found.rows}
    assert {"load_s", "prefill", "decode_1", "decode_2", "decode_2_top_p", "decode_2.step_share"} <= {
        name.removeprefix(f"engine.{variant}.") for name in rows
    }
    assert rows[f"engine.{variant}.decode_2"]["concurrency"] == 2


def test_graphs_give_the_engines_tokens(rehearse):
    _, found = rehearse("correctness", "engine", only=["engine.torch.graphs"])
    assert not found.failed and [row["samples"] for row in found.rows] == [[0]]


def test_variants_have_names_of_their_own(gpu):
    sections = {name: gpu.sections.section(name) for name in ("speed", "engine")}
    for section in sections.values():
        names = [name for name, _ in section(gpu.worker.Setting(rehearsal=True))]
        assert len(set(names)) == len(names)


# ---- what would be wrong is found


def test_a_wrong_kernel_fails_and_the_others_go_on(gpu, tmp_path):
    make = lambda dtype, device: (torch.randn(4, 8).to(dtype),)  # noqa: E731
    wrong = gpu.cases.Case("wrong", make, lambda x: x * 1.1, lambda x: x)
    broken = gpu.cases.Case("broken", make, lambda x: 1 / 0, lambda x: x)
    right = gpu.cases.Case("right", make, lambda x: x.clone(), lambda x: x)

    def section(setting):
        for case in (wrong, broken, right):
            yield (
                case.name,
                lambda report, case=case: gpu.correctness.check(
                    report, setting, case, case.name, gpu.shapes.TINY, torch.bfloat16
                ),
            )

    assert gpu.worker.work(section, gpu.worker.Setting("x.bfloat16", True), tmp_path / "report", 1e6) == 0
    begun, found = gpu.process.read(tmp_path / "report")
    assert begun == ["wrong", "broken", "right"]
    assert list(found.failed) == ["wrong", "broken"]
    assert "4 are allowed" in found.failed["wrong"] and found.failed["broken"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("got, expected, rounding, least", [
    (torch.tensor([1.0, torch.nan]), torch.ones(2), 4.0, float("inf")),
    (torch.tensor([1.0, -torch.inf]), torch.ones(2), 4.0, float("inf")),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, -torch.inf]), 4.0, float("inf")),
    (torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5]), None, 0.25),
    ((torch.ones(2), torch.zeros(2)), (torch.ones(2), torch.ones(2)), 4.0, 10.0),
])  # fmt: skip
def test_errors_are_seen(gpu, got, expected, rounding, least):
    assert gpu.cases.error(got, expected, rounding) >= least


def test_right_values_have_no_error(gpu):
    x = torch.tensor([1.0, -torch.inf, 3.0])
    assert gpu.cases.error(x, x.clone(), 4.0) == 0
    assert gpu.cases.error((x.long().clamp_min(0),), (x.long().clamp_min(0),), None) == 0


# ---- processes

CHILD = """
import json, os, sys, time
report, skip, script = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
with open(report, "a", buffering=1) as file:
    for case in script.split():
        name, _, fate = case.partition(":")
        if name in skip:
            continue
        print(json.dumps({"begin": name}), file=file)
        print(json.dumps({"row": {"name": name}}), file=file)
        if fate == "crash":
            print("a fault in the kernel", file=sys.stderr)
            os._exit(7)
        if fate == "hang":
            time.sleep(60)
        print(json.dumps({"end": name}), file=file)
"""


@pytest.fixture
def run_script(gpu):
    def run(script, seconds=30.0, parts=("",)):
        def command(part, report, left, skip):
            return [sys.executable, "-c", CHILD, str(report), json.dumps(list(skip)), script]

        return gpu.process.run_section(command, parts, seconds)

    return run


def test_after_a_crash_the_rest_runs_in_a_new_process(run_script):
    found = run_script("a b:crash c d:crash e")
    assert found.ended == ["a", "c", "e"] and [row["name"] for row in found.rows] == list("abcde")
    cause = "the process ended with status 7: a fault in the kernel"
    assert found.failed == {"b": cause, "d": cause} and not found.cut


def test_what_hangs_is_ended_and_what_it_found_is_kept(run_script):
    found = run_script("a b:hang c", seconds=2.0)
    assert found.ended == ["a"] and found.failed == {"b": "no time left: it was ended"} and found.cut == ["what came after b"]


def test_endless_crashes_end(gpu, run_script):
    found = run_script("a:crash b:crash c:crash d:crash e:crash f")
    assert len(found.failed) == gpu.process.MOST_STARTS and found.cut == ["what came after d"]


def test_a_process_that_does_not_start_is_one_failure(gpu):
    command = lambda *_: [sys.executable, "-c", "raise SystemExit('no driver')"]  # noqa: E731
    found = gpu.process.run_section(command, ["p"], 30.0)
    assert found.failed == {"p": "the process ended with status 1: no driver"} and not found.ended


def test_parts_run_side_by_side(run_script):
    assert run_script("a", parts=("p", "q")).ended == ["a", "a"]


def test_no_case_starts_after_the_time(gpu, tmp_path):
    section = lambda setting: iter([("a", lambda report: None), ("b", lambda report: None)])  # noqa: E731
    assert gpu.worker.work(section, gpu.worker.Setting(rehearsal=True), tmp_path / "report", -1.0) == 0
    assert gpu.process.read(tmp_path / "report")[1].cut == ["a", "b"]


# ---- the record


def test_the_record_is_a_valid_run_with_its_failures(gpu, tmp_path):
    card = {"name": "NVIDIA GeForce RTX 0000", "memory_bytes": 1, "compute_capability": "0.0"}
    machine = gpu.record.environment(card)
    report = gpu.worker.Report((tmp_path / "lines").open("w"))
    report.measured("speed.x", [3.0, 1.0, 2.0], "GB/s", "x", dtype="bfloat16", passes=3)
    report.computed("speed.x.share", 50.0, "%", "x: share", formula="a / b", inputs={"a": 1, "b": 2})
    report.measured("speed.nan", [float("nan")], "GB/s", "no number")
    report.line(failed="y", cause="RuntimeError: no")
    report.line(cut=["z"])
    _, found = gpu.process.read(tmp_path / "lines")
    path = tmp_path / "gpu.json"
    gpu.record.write(path, "python benchmarks/gpu.py", {"speed": found}, machine)
    run = load(path)
    assert run["speed.x"].value == 2.0 and run["speed.x"].label == "measured" and run["speed.x.share"].label == "computed"
    facts = run["speed.failed"].context
    assert run["speed.failed"].value == 2 and set(facts["failed"]) == {"y", "speed.nan"} and facts["cut"] == ["z"]
    assert run.environment["gpus"] and run.environment["card"] == card
    assert run.title == "Kernels and minillm on NVIDIA GeForce RTX 0000"


def test_the_file_is_named_after_card_and_day(gpu):
    path = gpu.record.default_path("NVIDIA H100 80GB HBM3", "2026-01-02T03:04:05Z")
    assert path == RESULTS / "gpu-h100-80gb-hbm3-2026-01-02.json"


def test_samples_are_thinned_but_keep_their_ends_and_middle(gpu):
    thin = gpu.speed.thinned([float(i) for i in range(1001)][::-1])
    assert len(thin) == gpu.speed.KEPT and (thin[0], thin[10], thin[-1]) == (0.0, 500.0, 1000.0)


# ---- the command


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_the_file_is_written_after_each_section(gpu, monkeypatch, tmp_path, capsys):
    """A whole run on a card that is not there: what its sections find is given."""
    path, written = tmp_path / "out.json", []
    facts = {"card": {"name": "a card", "memory_bytes": 1}, "ceilings": {"bandwidth": 2.0, "flops": 3.0}}

    def run_section(command, parts, seconds):
        written.append([e.name for e in load(path).evidence] if path.exists() else [])
        line = command("", tmp_path / "report", 9.0, ["done"])
        name = line[line.index("--worker") + 1]
        ceilings = None if name == "ceilings" else facts["ceilings"]
        assert json.loads(line[line.index("--ceilings") + 1]) == ceilings and "--dry-run" not in line
        row = {
            "label": "computed",
            "name": f"{name}.x",
            "value": 50.0,
            "unit": "%",
            "title": "x: share",
            "formula": "a",
            "inputs": {},
        }
        failed = {"y": "RuntimeError: no"} if name == "speed" else {}
        return gpu.process.Found([row], failed, [], ["x"], facts if name == "ceilings" else {})

    monkeypatch.setattr(gpu.script, "run_section", run_section)
    monkeypatch.setattr(gpu.script, "has_gpu", lambda: True)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(path)])
    assert gpu.script.main() == 1, "a section had a failure"
    first = ["ceilings.x", "ceilings.failed"]
    assert written[:2] == [[], first] and [len(names) for names in written] == [0, 2, 4, 6]
    run = load(path)
    assert run.environment["gpus"] == [{"name": "a card", "memory_bytes": 1, "driver": None}] and len(run.evidence) == 8
    shown = capsys.readouterr().out
    assert "x: share: 50 %" in shown and "failed: y: RuntimeError: no" in shown


def test_a_file_that_cannot_be_written_is_one_line(gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu.script, "run_section", lambda *_: gpu.process.Found())
    monkeypatch.setattr(gpu.script, "has_gpu", lambda: True)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "nowhere" / "out.json")])
    assert gpu.script.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the results could not be written: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_it_says_so_in_a_line():
    done = run_command()
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "error: this needs an NVIDIA GPU and a torch built for CUDA; --dry-run rehearses it without one\n"


def test_a_dry_run_shows_and_saves_no_figure(tmp_path):
    before = sorted(RESULTS.iterdir())
    done = run_command("--dry-run", "--only", "speed", "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(RESULTS.iterdir()) == before and not list(tmp_path.iterdir())
    *sections, empty, last = done.stdout.splitlines()
    assert [line.split(" cases")[0].rstrip("0123456789 ") for line in sections] == ["ceilings:", "speed:"] and empty == ""
    assert last == "dry run on a CPU: nothing was measured, nothing was saved"


def test_the_boxes_fit_in_six_minutes(gpu):
    assert sum(plan.seconds for plan in gpu.sections.PLANS) < 350
    quick = gpu.script.plans(gpu.script.parse(["--quick"]))
    assert [plan.name for plan in quick] == ["ceilings", "correctness"] and quick[1].seconds == 60
