"""git, as far as `labs reset` and `labs update` need it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from labs.kit.errors import LabError

# Set by git itself where it runs a hook or an alias; they would point every command below at another repository.
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


class GitFailed(LabError):
    """git said no; the message is its own."""


@dataclass(frozen=True)
class Repository:
    """The clone that `root` is the top folder of. Paths go in and come out relative to it, with /."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Repository:
        """Raises LabError where there is no git, or `root` is no clone of its own (a ZIP download)."""
        if shutil.which("git") is None:
            raise LabError("this needs git, and there is none; install git, or take the file from the project's page")
        repository, zipped = cls(root), f"{root} is no git clone (a ZIP download?), so there are no originals here"
        way_out = "clone the project and copy your files in labs/ over"
        try:
            top = repository.out("rev-parse", "--show-toplevel")
        except GitFailed as e:
            if "not a git repository" in str(e):
                raise LabError(f"{zipped}; {way_out}") from e
            raise
        if Path(top).resolve() != root.resolve():
            raise LabError(f"{zipped}; {way_out}")
        return repository

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        # A question asked where nobody sees it would hang; messages are read below, so not in the user's language.
        environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "LC_ALL": "C"}
        command = ["git", "-c", "core.quotePath=false", "-C", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL, check=False)

    def bytes(self, *arguments: str) -> bytes:
        """What git prints. Raises GitFailed, with git's reason in one line."""
        done = self.run(*arguments)
        if done.returncode:
            raise GitFailed(f"git {arguments[0]}: {_reason(done)}")
        return done.stdout

    def out(self, *arguments: str) -> str:
        return self.bytes(*arguments).decode("utf-8", "replace").strip()

    def names(self, *arguments: str) -> list[str]:
        """Paths printed with -z."""
        return [name for name in self.bytes(*arguments).decode("utf-8", "surrogateescape").split("\0") if name]


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return telling[0].split(": ", 1)[-1] if telling else f"exit {done.returncode}"
