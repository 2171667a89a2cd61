"""Which stub files are as they came: git's id of each pristine one stands in stubs.json."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from labs.kit.catalog import LABS, LabModule
from labs.kit.errors import LabError

STUBS = LABS / "kit" / "stubs.json"


def blob_id(file: Path) -> str:
    """git's id of a file's content (gitformat-pack: SHA-1 over a header and the bytes), with its line ends as committed."""
    content = file.read_bytes().replace(b"\r\n", b"\n")
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def recorded(stubs: Path = STUBS) -> dict[str, str]:
    """Module path ("c2/m03_kv_cache") -> id of its pristine stub; empty without the list. Raises LabError for a damaged one."""
    try:
        ids = json.loads(stubs.read_text(encoding="utf-8")) if stubs.is_file() else {}
    except ValueError:  # JSON and UTF-8 errors
        ids = None
    if not isinstance(ids, dict):
        raise LabError("labs/kit/stubs.json cannot be read; `git restore labs/kit/stubs.json` brings it back")
    return ids


def is_pristine(module: LabModule, stubs: Path = STUBS) -> bool:
    return recorded(stubs).get(module.path) == blob_id(module.file)
