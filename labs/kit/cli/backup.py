"""Copies of a learner's files, kept in .labs/backup/<time>/ before anything touches them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from pathlib import Path

from labs.kit.errors import LabError
from labs.kit.progress import labs_home


def back_up(files: Iterable[Path], root: Path) -> Path | None:
    """Copies files that lie under root, with their folders; the folder they are in now, None if there were none.

    Raises LabError where they cannot be copied: whoever asked must not go on then.
    """
    files = list(files)
    if not files:
        return None
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    try:
        folder = _new_folder(labs_home() / "backup", stamp)
        for file in files:
            copy = folder / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
    except OSError as e:
        raise LabError(f"no backup could be made ({e.strerror}: {e.filename}), so nothing was changed") from e
    return folder


def _new_folder(parent: Path, stamp: str) -> Path:
    for number in count(1):
        folder = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("unreachable: count does not end")
