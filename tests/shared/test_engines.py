"""Other engines' environments, without any of those engines: a wheel written here stands for one, and no network is used."""

import base64
import hashlib
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from minillm.model.checkpoints import cache_home
from shared import engines
from shared.engines import (
    ENGINES,
    PINS,
    Engine,
    EngineError,
    EngineMissing,
    engines_home,
    install,
    is_installed,
    run_json,
    run_script,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    return tmp_path / "home"


def script(tmp_path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


# ---- the protocol of a script


def test_payload_goes_in_and_the_last_line_comes_back(tmp_path):
    echo = script(
        tmp_path, "import json, sys\njob = json.load(sys.stdin)\nprint('loading ...')\nprint(json.dumps([job, 'ok']))\n\n"
    )
    payload = {"prompt": "Xin chào", "lens": [1, 2], "none": None}
    assert run_json(sys.executable, echo, payload) == [payload, "ok"]


def test_our_packages_stay_out_of_the_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")  # everything else is passed on
    look = script(tmp_path, "import json, os\nprint(json.dumps([os.environ.get('PYTHONPATH'), os.environ['GLIBC_TUNABLES']]))")
    assert run_json(sys.executable, look, None) == [None, "glibc.malloc.hugetlb=0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no such model')", r"script.py failed \(exit 1\): ValueError: no such model"),
        ("import sys; sys.exit(3)", r"script.py failed \(exit 3\): it said nothing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", r"script.py failed \(killed by SIGKILL\)"),
        ("print('{\"a\": 1}'); print('bye')", r"must print JSON as its last line; it was 'bye'"),
        ("", r"must print JSON as its last line; it was ''"),
    ],
)
def test_a_script_that_fails_says_why(tmp_path, text, message):
    with pytest.raises(EngineError, match=message):
        run_json(sys.executable, script(tmp_path, text), {})


def test_a_script_that_hangs_is_stopped(tmp_path):
    with pytest.raises(EngineError, match=r"did not finish within 0.5 s"):
        run_json(sys.executable, script(tmp_path, "import time; time.sleep(60)"), {}, timeout_s=0.5)


def test_an_interpreter_that_is_gone(tmp_path):
    with pytest.raises(EngineError, match=r"cannot run .*: No such file or directory"):
        run_json(tmp_path / "python", script(tmp_path, ""), {})


# ---- environments


def wheel(folder: Path, name: str = "fake_engine") -> Path:
    files = {
        f"{name}.py": "ANSWER = 42\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{name}-1.0.dist-info/RECORD"
    digests = {n: base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b"=").decode() for n, t in files.items()}
    rows = [f"{n},sha256={digests[n]},{len(t)}" for n, t in files.items()]
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, record: "\n".join([*rows, f"{record},,"]) + "\n"}.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """An engine `fake` whose pins name a wheel on disk."""
    pins = tmp_path / "pins"
    pins.mkdir()
    file = wheel(tmp_path)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (pins / "fake.txt").write_text(f"fake_engine @ {file.as_uri()} \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setattr(engines, "PINS", pins)
    monkeypatch.setitem(engines.ENGINES, "fake", Engine("fake", "A fake", 1_000_000, 2_000_000, 0.1))
    return pins / "fake.txt"


def test_install_says_its_size_first_and_run_script_uses_the_environment(tmp_path, fake, home):
    said = []
    python = install("fake", say=said.append)
    assert python.is_relative_to(home / "engines" / "fake")
    assert re.search(r"A fake .*1 MB to download, 2 MB on disk, 0.1 minutes", said[0])
    assert "fake is ready" in said[-1]
    answer = script(tmp_path, "import fake_engine, json, sys\nprint(json.dumps([fake_engine.ANSWER, sys.prefix]))")
    assert run_script("fake", answer, {}) == [42, str(home / "engines" / "fake")]
    install("fake", python="/does/not/exist", say=said.append)  # there already: nothing is made again
    assert "installed already" in said[-1]
    fake.write_text(fake.read_text() + "# changed\n")
    assert not is_installed("fake")
    with pytest.raises(EngineMissing, match=r"other pins .* `make engines NAME=fake`"):
        run_script("fake", answer, {})


def test_another_file_under_a_pinned_name_is_refused_and_nothing_counts_as_installed(tmp_path, fake, capfd):
    fake.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, fake.read_text()))
    with pytest.raises(EngineError, match=r"fake: pip failed \(exit 1; its own message is above\)"):
        install("fake", say=lambda line: None)
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not is_installed("fake")


def test_an_engine_that_is_absent_names_the_command(tmp_path):
    with pytest.raises(EngineMissing, match=r"llama.cpp is not installed; run `make engines NAME=llama.cpp`"):
        run_script("llama.cpp", script(tmp_path, ""), {})
    assert not is_installed("llama.cpp")


def test_an_unknown_engine_lists_the_known():
    with pytest.raises(EngineError, match=r"no engine 'llama'; choose one of llama.cpp, openvino"):
        is_installed("llama")


def test_what_cannot_work_is_said_before_anything_is_made(fake, home, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "fake", replace(engines.ENGINES["fake"], disk_bytes=10**18))
    with pytest.raises(EngineError, match=r"not enough disk space for fake .* MINILLM_HOME"):
        install("fake", say=lambda line: None)
    fake.with_name("fake.build.txt").write_text("")
    monkeypatch.setitem(engines.ENGINES, "fake", Engine("fake", "A fake", 1, 1, 0.1, builds=True))
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    with pytest.raises(EngineError, match=r"fake is compiled here and there is no C.. compiler"):
        install("fake", say=lambda line: None)
    assert not (home / "engines" / "fake").exists()


def test_the_command_line_lists_and_refuses(capsys):
    assert engines.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"make engines NAME={name}" in listed for name in ENGINES)
    assert engines.main(["nothing"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no engine 'nothing'")
    assert "engines:" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("variables", [{"MINILLM_HOME": "~/here"}, {"XDG_CACHE_HOME": "/somewhere/cache"}, {}])
def test_engines_lie_in_the_cache_of_the_models(variables, monkeypatch):
    for name in ("MINILLM_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert engines_home() == cache_home() / "engines"


# ---- pins


@pytest.mark.parametrize("path", [p for engine in ENGINES.values() for p in engine.pins], ids=lambda path: path.name)
def test_every_requirement_is_exact_and_hashed(path):
    text = re.sub(r"\s*#.*", "", path.read_text()).replace("\\\n", " ")
    requirements = [line for line in text.splitlines() if line.strip()]
    pattern = re.compile(r"[a-z0-9][a-z0-9._-]*==[\w.+]+( ; [^@]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert requirements
    assert [line[:80] for line in requirements if not pattern.fullmatch(line)] == []
    pinned = {line.split()[0] for line in requirements}
    wanted = {line for line in path.with_suffix(".in").read_text().splitlines() if line and not line.startswith("#")}
    assert wanted <= pinned


def test_no_pin_file_is_left_over():
    used = {path.name for engine in ENGINES.values() for path in engine.pins}
    assert {path.name for path in PINS.glob("*.txt")} == used
    assert {path.name for path in PINS.glob("*.in")} == {name.replace(".txt", ".in") for name in used}
