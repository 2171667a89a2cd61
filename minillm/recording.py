"""Step events in a file, one JSON object a line, to be replayed later (minillm.replay)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from minillm.engine import Engine
from minillm.errors import ConfigError

log = logging.getLogger("minillm")


@contextmanager
def record_events(engine: Engine, path: str | Path) -> Iterator[None]:
    """Record what the engine does inside the `with` block. Raises ConfigError if the file cannot be opened."""
    try:
        file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed below, guarded
    except OSError as e:
        raise ConfigError(f"--record-events {path}: cannot be written ({e.strerror or e}); name another file") from e
    broken = False

    def guarded(action: Callable[[], object]) -> None:
        nonlocal broken
        try:
            if not broken:
                action()
        except OSError as e:  # a full disk ends the recording, not the serving
            broken = True
            log.warning("%s: the recording of events ends here: %s", path, e.strerror or e)

    def write(event: dict) -> None:
        guarded(lambda: file.write(json.dumps(event, separators=(",", ":")) + "\n"))

    engine.events.subscribe(write)
    try:
        yield
    finally:
        engine.events.unsubscribe(write)
        guarded(file.close)
