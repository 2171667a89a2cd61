"""What another engine answered, live where it is installed, else as recorded under results/ with its version and date.

    data, label = live_or_recorded("vllm", SCRIPTS / "vllm_scheduler.py", payload, "vllm_scheduler")

A recording is made by benchmarks/record_engines.py. It answers one payload only: asked for another, the engine must be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.engines import EngineError, EngineMissing, is_installed, run_script
from shared.results import RESULTS, load

SCRIPTS = Path(__file__).resolve().parent / "engine_scripts"


@dataclass(frozen=True)
class Recording:
    """engine, version: whose answer; date: YYYY-MM-DD of the run; payload, data: what the script was given, what it printed."""

    engine: str
    version: str
    date: str
    payload: Any
    data: Any

    @property
    def label(self) -> str:
        return f"recorded: {self.engine} {self.version}, {self.date}"


def recorded(name: str, folder: Path = RESULTS) -> Recording:
    """The recording results/<name>.json. Raises EngineError if there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        raise EngineError(f"there is no recording {name!r} in {folder.name}/; make it with `python benchmarks/record_engines.py`")
    run = load(path)
    held = [e.context["recording"] for e in run.evidence if "recording" in e.context]
    if len(held) != 1:
        raise EngineError(f"{path.name} is no recording of an engine: {len(held)} of its entries hold one, not 1")
    fields = {field: held[0][field] for field in ("engine", "version", "payload", "data")}
    return Recording(**fields, date=run.environment["date"][:10])


def live_or_recorded(
    engine: str, script: Path, payload: Any, recording: str, *, timeout_s: float | None = 300
) -> tuple[Any, str]:
    """What `script` answers to `payload`, and whose answer it is, for the reader: "live: vllm 0.33.0" or "recorded: ...".

    Raises EngineMissing where the engine is not installed and the recording answers another payload; EngineError as run_script.
    """
    if is_installed(engine):
        data = run_script(engine, script, payload, timeout_s=timeout_s)
        return data, f"live: {engine} {data['version']}"
    kept = recorded(recording)
    if kept.payload != payload:
        raise EngineMissing(
            f"{engine} is not installed, and results/{recording}.json answers another payload; run `make engines NAME={engine}`"
        )
    return kept.data, kept.label
