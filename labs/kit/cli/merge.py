"""Two changed versions of an exercise file made one, in which the learner's word stands wherever both speak."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

from labs.kit.cli.git import GitFailed, Repository


def combine(repository: Repository, mine: bytes, base: bytes, theirs: bytes) -> tuple[bytes, bool]:
    """What both came to, and whether something of theirs had to be left out.

    Their changes are taken where mine did not touch the lines. If what results is no longer Python, though mine is, it is mine.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("mine", "base", "theirs")]
        for file, content in zip(files, (mine, base, theirs), strict=True):
            file.write_bytes(content)
        clean = repository.run("merge-file", "-p", *map(str, files))
        if clean.returncode == 0:
            merged, left_out = clean.stdout, False
        else:
            merged, left_out = repository.bytes("merge-file", "-p", "--ours", *map(str, files)), True
    if _is_python(mine) and not _is_python(merged):
        return mine, True
    return merged, left_out


def resolve(repository: Repository, name: str) -> None:
    """Settle one unmerged exercise file in the learner's favour, and tell git. Raises GitFailed."""
    stages = {}
    for entry in repository.names("ls-files", "-u", "-z", "--", name):
        _, blob, stage = entry.split("\t")[0].split()
        stages[int(stage)] = repository.bytes("cat-file", "blob", blob)
    base, mine, theirs = (stages.get(stage) for stage in (1, 2, 3))
    file = repository.root / name
    if mine is None:  # the learner has deleted it
        repository.bytes("rm", "-q", "--cached", "--", name)
        file.unlink(missing_ok=True)
        return
    if base is not None and theirs is not None:
        mine, _ = combine(repository, mine, base, theirs)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(mine)
    repository.bytes("add", "--", name)


def content_at(repository: Repository, revision: str, name: str) -> bytes | None:
    """A file as a commit has it, None if it has none."""
    try:
        return repository.bytes("cat-file", "blob", f"{revision}:{name}")
    except GitFailed:
        return None


def _is_python(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
