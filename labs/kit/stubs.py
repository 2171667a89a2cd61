"""Records the ids of the stubs: `python -m labs.kit.stubs` after a stub was added or changed; `--check` only compares."""

from __future__ import annotations

import json
import sys

from labs.kit.blobs import STUBS, blob_id, recorded
from labs.kit.catalog import find_modules
from labs.kit.errors import LabError
from labs.kit.source import is_untouched


def main(arguments: list[str]) -> int:
    """0 if all is recorded, or now is. A solved file keeps the id it has: what is on disk is no stub then."""
    before, now = recorded(), {}
    for module in find_modules():
        untouched = bool(module.exercises) and all(map(is_untouched, module.exercises))
        if untouched:
            now[module.path] = blob_id(module.file)
        elif module.path in before:
            now[module.path] = before[module.path]
        else:
            print(f"labs/{module.path}.py is no stub: each body must only raise NotImplementedError", file=sys.stderr)
            return 1
    if now == before:
        return 0
    changed = ", ".join(sorted(path for path in {*before, *now} if before.get(path) != now.get(path)))
    if "--check" in arguments:
        print(f"labs/kit/stubs.json does not know {changed} as they are: run `python -m labs.kit.stubs`", file=sys.stderr)
        return 1
    STUBS.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"recorded: {changed}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as e:
        sys.exit(f"error: {e}")
