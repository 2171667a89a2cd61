"""The machine is described as far as it can be, containers included, and nothing private leaks."""

import getpass
import json
import os
import platform
import socket
import subprocess
from pathlib import Path

import pytest

from shared import environment
from shared.environment import ROOT, capture, commit, memory_bytes, usable_cores


def test_capture_is_plain_json_with_the_facts():
    machine = capture()
    assert json.loads(json.dumps(machine)) == machine
    assert machine["python"] == platform.python_version()
    assert machine["versions"]["torch"]
    assert machine["threads"] == 1  # tests/conftest.py
    assert 0 < machine["cores"] <= os.cpu_count()
    assert machine["memory_bytes"] > 2**29


def test_capture_names_no_host_user_or_folder():
    text = json.dumps(capture())
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
    if len(getpass.getuser()) > 4:  # a short name ("root") can be part of a word
        assert getpass.getuser() not in text


def v1(folder: str, quota: str) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000"}


def cgroup(tmp_path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    (tmp_path / "self").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "fs", tmp_path / "self"


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/pod/app\n", {"pod/cpu.max": "25000 100000\n", "pod/app/cpu.max": "max 100000\n"}, 0.25),
        ("4:memory:/\n3:cpu,cpuacct:/app\n", v1("cpu,cpuacct/app", "50000"), 0.5),
        ("3:cpu,cpuacct:/\n", v1("cpu", "50000"), 0.5),
    ],
    ids=["v2", "v2 set by a parent", "v1", "v1 under its short name"],
)
def test_cores_follow_the_quota(tmp_path, membership, files, cores):
    assert usable_cores(*cgroup(tmp_path, membership, files)) == cores


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}),
        ("1:cpu:/\n2:memory:/\n", {**v1("cpu", "-1"), "memory/memory.limit_in_bytes": str(2**63 - 4096)}),
        ("", {}),
    ],
    ids=["v2", "v1", "no cgroups"],
)
def test_without_a_limit_the_machine_is_the_limit(tmp_path, membership, files):
    where = cgroup(tmp_path, membership, files)
    nowhere = (tmp_path / "absent", tmp_path / "absent")
    assert usable_cores(*where) == usable_cores(*nowhere) >= 1
    assert memory_bytes(*where) == memory_bytes(*nowhere) > 2**29


def test_memory_follows_the_limit(tmp_path):
    assert memory_bytes(*cgroup(tmp_path, "0::/app\n", {"app/memory.max": "1048576\n"})) == 2**20


def test_commit_is_none_in_a_zip_download(tmp_path):
    assert commit(tmp_path) is None


def test_commit_is_none_without_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path) is None


def test_commit_tells_changed_files(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    git("init")
    assert commit(tmp_path) is None  # nothing committed yet
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    clean = commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("two")
    assert commit(tmp_path) == clean + "+changes"


def test_gpus_are_read_from_the_drivers_tool(monkeypatch):
    monkeypatch.setattr(environment, "_run", lambda *command: "NVIDIA H200, 143771, 570.1\nNVIDIA GB10, [N/A], 580.2")
    assert environment._gpus() == [
        {"name": "NVIDIA H200", "memory_bytes": 143771 * 2**20, "driver": "570.1"},
        {"name": "NVIDIA GB10", "memory_bytes": None, "driver": "580.2"},
    ]
