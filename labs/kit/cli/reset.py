"""The original of an exercise file, brought back from git."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from labs.kit.blobs import blob_id, recorded
from labs.kit.catalog import LabModule, labs_root
from labs.kit.cli.backup import back_up
from labs.kit.cli.git import GitFailed, Repository
from labs.kit.errors import LabError


def pristine_ids(labs: Path) -> dict[str, str]:
    """Blob id of each exercise file as it was written, by the module's path. Raises LabError for a list that was damaged."""
    return recorded(labs / "kit" / "stubs.json")


def original_of(lab: LabModule) -> bytes | None:
    """What the file was before anybody wrote in it; None if that is what it is. Raises LabError without git or history."""
    repository, labs = Repository.at(labs_root().parent), labs_root()
    blob, name = pristine_ids(labs).get(lab.path), f"{labs.name}/{lab.path}.py"
    if blob is None:
        raise LabError(f"{name} has no original on record, so it cannot be reset; `git log -- {name}` shows its history")
    if blob_id(lab.file) == blob:
        return None
    try:
        return repository.bytes("cat-file", "blob", blob)
    except GitFailed as e:
        raise LabError(
            f"the original of {name} is not in this clone's history (a shallow clone?); "
            "`git fetch --unshallow` or `labs update` may bring it"
        ) from e


def put_back(lab: LabModule, original: bytes) -> Path:
    """Replace the file by its original; the folder that keeps the learner's. All or nothing. Raises LabError."""
    kept = back_up([lab.file], labs_root().parent)
    with tempfile.NamedTemporaryFile(dir=lab.file.parent, prefix=".", delete=False) as temporary:
        temporary.write(original)
    os.chmod(temporary.name, lab.file.stat().st_mode)
    os.replace(temporary.name, lab.file)
    return kept
