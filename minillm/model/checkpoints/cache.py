"""Where prepared checkpoints live, and how a folder gets there whole or not at all.

A cached folder is built in a temporary folder beside it and renamed into place, under a lock. The lock dies with its
process, so whoever holds it knows that any temporary folder still lying there was left by a run that was interrupted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minillm.errors import CheckpointError

logger = logging.getLogger(__name__)

MANIFEST = "minillm.json"
FORMAT = 1  # raise it when a conversion changes: cached folders of another format are rebuilt


def cache_home() -> Path:
    """MINILLM_HOME, or `minillm` in the user's cache folder (XDG_CACHE_HOME, ~/Library/Caches on macOS, ~/.cache)."""
    if home := os.environ.get("MINILLM_HOME"):
        return Path(home).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser().absolute() / "minillm"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "minillm"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's minillm.json if it was built by this format and every file it lists has its listed size, else None."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        whole = manifest["format"] == FORMAT and all(
            (folder / name).stat().st_size == size for name, size in manifest["file_bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def cached_folder(target: Path, build: Callable[[Path], dict[str, Any]], *, need_bytes: Callable[[], int]) -> Path:
    """Return `target`, first letting `build(empty folder)` fill it if it is not there whole.

    build returns what minillm.json should say about the source. need_bytes, called only if there is something to build:
    the disk space to ask for up front. A second process that wants the same folder waits for the first.
    Raises CheckpointError if the disk is full or not writable.
    """
    if read_manifest(target):
        return target
    with _readable_disk_errors(target, need_bytes):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f".{target.name}.lock")):
            if read_manifest(target):  # another process built it while this one waited
                return target
            for stale in target.parent.glob(f".{target.name}.tmp-*"):
                shutil.rmtree(stale, ignore_errors=True)
            _require_space(target, need_bytes())
            temp = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
            try:
                about = build(temp)
                sizes = {p.name: p.stat().st_size for p in sorted(temp.iterdir()) if p.is_file()}
                manifest = {"format": FORMAT, **about, "file_bytes": sizes}
                (temp / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
                temp.chmod(0o755)  # mkdtemp's 0700 would hide a shared cache from its other users
                _swap_in(temp, target)
            finally:
                shutil.rmtree(temp, ignore_errors=True)
    return target


def _require_space(target: Path, need_bytes: int) -> None:
    """Raise OSError(ENOSPC) now rather than after minutes of work."""
    if shutil.disk_usage(target.parent).free < need_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _swap_in(temp: Path, target: Path) -> None:
    if target.exists():  # of an older format or damaged; a rename cannot replace a folder that holds files
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
        os.replace(target, old / target.name)
        os.replace(temp, target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(temp, target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as file:
        announced = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not announced:
                    logger.warning("waiting for another process that is preparing %s", path.name[1:-5])
                    announced = True
                time.sleep(0.2)
        yield


@contextmanager
def _readable_disk_errors(target: Path, need_bytes: Callable[[], int]) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            message = (
                f"not enough disk space: {target.name} needs about {need_bytes() / 1e6:.0f} MB in {target.parent}; "
                "free some, or set MINILLM_HOME to a folder on another disk"
            )
        else:
            message = f"cannot prepare {target.name} in {target.parent}: {e.strerror or e}; set MINILLM_HOME to a writable folder"
        raise CheckpointError(message) from e
