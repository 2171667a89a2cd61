"""A small clone of a learner: three lab modules of the real course, and the `labs` command run on them in this process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from labs.kit.blobs import blob_id
from labs.kit.catalog import find_module
from labs.kit.cli import main
from labs.kit.progress import Progress

STUB = '''"""{title}."""

from labs.kit import exercise


@exercise(reference="shared.environment:{reference}")
def {name}(x: int) -> int:
    """The first line of the contract."""
    raise NotImplementedError


def helper() -> str:
    """Not an exercise."""
    return "helper"
'''
MODULES = {
    "start/m00_the_map": ("ridge_point", "usable_cores"),
    "c2/m03_kv_cache": ("kv_bytes", "memory_bytes"),
    "c2/m08_paged_kv": ("match_prefix", "capture"),
}
HINTS = '[{stem}.{name}]\nhints = ["Look at [brackets].", "Look closer.", "Nearly the answer."]\n'


@dataclass
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def labs(monkeypatch, capsys):
    """labs("check", "2.3") -> Answer, as the command would answer."""

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["labs", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Answer(caught.value.code or 0, captured.out, captured.err)

    return run


IDENTITY = {"GIT_AUTHOR_NAME": "L", "GIT_AUTHOR_EMAIL": "l@example.org", "GIT_COMMITTER_NAME": "L"}
IDENTITY |= {"GIT_COMMITTER_EMAIL": "l@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


class Folder:
    """A copy of the project, and what is done to it in these tests. Paths are relative to it."""

    def __init__(self, root: Path):
        self.root = root

    def read(self, name: str) -> str:
        return (self.root / name).read_text("utf-8")

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def replace(self, name: str, old: str, new: str) -> str:
        text = self.read(name)
        assert old in text
        self.write(name, text.replace(old, new))
        return self.read(name)

    def solve(self, path: str = "c2/m03_kv_cache", answer: str = "return 42") -> str:
        """Write an answer into a stub; the file's text."""
        return self.replace(f"labs/{path}.py", "raise NotImplementedError", answer)

    def add_lab(self, path: str, name: str, reference: str) -> None:
        self.write(f"labs/{path}.py", STUB.format(title=path, name=name, reference=reference))
        self.write(f"labs/{path.replace('/m', '/test_m')}.py", "")
        hints = self.root / "labs" / path.split("/")[0] / "hints.toml"
        old = hints.read_text("utf-8") if hints.exists() else ""
        hints.write_text(old + HINTS.format(stem=path.split("/")[1], name=name), "utf-8")

    def record_stubs(self) -> None:
        ids = {f"{file.parent.name}/{file.stem}": blob_id(file) for file in (self.root / "labs").glob("*/m*.py")}
        self.write("labs/kit/stubs.json", json.dumps(ids, indent=1, sort_keys=True))

    def note(self, id: str, passed: bool, failed: tuple[str, ...] = ()) -> None:
        """What a run of the checks would have recorded."""
        progress = Progress.load()
        for exercise in find_module(id).exercises:
            progress.record(exercise, passed, list(failed))
        progress.save()

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | IDENTITY)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str = "change") -> str:
        """Commit everything; the commit's id."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


def project(root: Path) -> Folder:
    folder = Folder(root)
    for path, (name, reference) in MODULES.items():
        folder.add_lab(path, name, reference)
    folder.write(".gitignore", ".labs/\n")
    folder.record_stubs()
    return folder


def enter(folder: Folder, monkeypatch) -> None:
    """`labs` works on this copy from here on."""
    monkeypatch.setenv("LABS_ROOT", str(folder.root / "labs"))
    monkeypatch.setenv("LABS_HOME", str(folder.root / ".labs"))
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(folder.root)


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Folder:
    """A learner's copy with three labs, none begun; no git repository yet."""
    folder = project(tmp_path / "clone")
    enter(folder, monkeypatch)
    return folder


@pytest.fixture
def upstream(tmp_path, monkeypatch) -> Folder:
    """The project's own repository, with one commit. `labs` gets an identity and no settings of this machine's user."""
    for key, value in IDENTITY.items():
        monkeypatch.setenv(key, value)
    folder = project(tmp_path / "upstream")
    folder.write("README.md", "one\ntwo\nthree\n")
    folder.write("series/notebook.ipynb", "{}\n")
    folder.git("init", "-q", "-b", "main")
    folder.commit("first")
    return folder


@pytest.fixture
def learner(tmp_path, monkeypatch, upstream) -> Folder:
    """A learner's git clone of `upstream`, which it calls origin."""
    folder = Folder(tmp_path / "learner")
    upstream.git("clone", "-q", str(upstream.root), str(folder.root))
    enter(folder, monkeypatch)
    return folder
