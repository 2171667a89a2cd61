"""What `labs doctor` finds on machines of all kinds."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from labs.kit.cli import doctor
from labs.kit.cli.doctor import Level


@pytest.fixture
def found(monkeypatch, tmp_path):
    """found() -> {what: Finding}, on a machine with an empty cache."""
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path))
    return lambda: {finding.what: finding for finding in doctor.examine()}


def pretend(monkeypatch, **answers):
    for name, answer in answers.items():
        monkeypatch.setattr(doctor, name, answer)


def without(*names):
    there = doctor._is_there
    return lambda name: name not in names and there(name)


def test_this_machine_can_run_the_exercises(labs, monkeypatch):
    answer = labs("doctor")
    assert answer.code == 0, answer.err
    assert "ok      Python" in answer.out and "ok      torch" in answer.out and "missing" not in answer.out


def test_an_empty_cache_is_a_warning_with_its_command(found):
    findings = found()
    assert findings["model"].level is Level.WARN and "make pull" in findings["model"].remedy
    assert findings["llama.cpp"].level is Level.NOTE and findings["llama.cpp"].remedy == "`make engines NAME=llama.cpp`"


def test_what_the_exercises_need_is_missing_and_the_exit_status_says_so(found, labs, monkeypatch):
    pretend(monkeypatch, _is_there=without("torch", "pytest", "matplotlib"))
    findings = found()
    assert findings["torch"].level is Level.MISSING and "make setup" in findings["torch"].remedy
    assert findings["packages"].found == "without pytest, matplotlib"
    assert findings["model"].found == "cannot be looked for without torch"
    answer = labs("doctor")
    assert answer.code == 1 and "missing torch" in answer.out and answer.err.count("\n") == 1


def test_a_torch_that_does_not_load(found, monkeypatch):
    def broken(name):
        raise OSError("libfoo.so:\n cannot open")

    pretend(monkeypatch, import_module=broken)
    torch = found()["torch"]
    assert (torch.level, torch.found) == (Level.MISSING, "does not load: libfoo.so: cannot open")


def test_small_machines_are_warned(found, monkeypatch):
    pretend(monkeypatch, memory_bytes=lambda: 2_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    findings = found()
    assert {what for what, finding in findings.items() if finding.level is Level.WARN} == {
        "model",
        "memory",
        "disk",
        "git",
        "C++",
    }
    assert all(finding.remedy for finding in findings.values() if finding.level in (Level.WARN, Level.MISSING))


@pytest.mark.parametrize(
    "cuda, cards, level, text",
    [(True, [], Level.OK, "Card, 24.0 GB"), (False, ["Card"], Level.WARN, "Card"), (False, [], Level.NOTE, "none;")],
)
def test_gpus(monkeypatch, cuda, cards, level, text):
    pretend(monkeypatch, _nvidia_cards=lambda: cards)
    properties = SimpleNamespace(name="Card", total_memory=24_000_000_000)
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: cuda, get_device_properties=lambda _: properties), __version__="1"
    )
    finding = doctor._gpu(torch)
    assert finding.level is level and finding.found.startswith(text)


def test_a_driver_that_does_not_answer_is_no_card(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: "nvidia-smi")

    def hang(*_, **__):
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(subprocess, "run", hang)
    assert doctor._nvidia_cards() == []
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, stdout="A\n B \n"))
    assert doctor._nvidia_cards() == ["A", "B"]


@pytest.mark.parametrize("platform, text", [("linux", "not installed"), ("darwin", "not made for this system")])
def test_triton_is_for_linux(monkeypatch, platform, text):
    pretend(monkeypatch, _is_there=without("triton"))
    monkeypatch.setattr("sys.platform", platform)
    assert doctor._triton().found.startswith(text) and doctor._triton().level is Level.NOTE
