"""One section in a process of its own: it runs case after case and writes what it finds, line by line, for the parent to read.

A kernel that faults takes the process's CUDA context with it, and one that hangs can only be killed. So every case is announced
before it runs: the parent knows which one it was, records that, and starts a new process for the others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

LOST = 3  # exit status: this process can use the GPU no more


@dataclass
class Setting:
    """Where a section runs. ceilings: what the section of that name found, None where it did not run. rehearsal: on a CPU, in
    tiny shapes and in Triton's interpreter, without a clock: to see that everything runs."""

    part: str = ""
    rehearsal: bool = False
    ceilings: dict[str, Any] | None = None
    device: torch.device = field(init=False)

    def __post_init__(self):
        self.device = torch.device("cpu" if self.rehearsal else "cuda")

    @property
    def sm(self) -> int:
        """Compute capability, 90 for 9.0; of a rehearsal, one that has everything."""
        if self.rehearsal:
            return 1000
        major, minor = torch.cuda.get_device_capability()
        return 10 * major + minor

    def synchronize(self) -> None:
        if not self.rehearsal:
            torch.cuda.synchronize()


class Report:
    """Lines of JSON: {"begin": case}, {"row": …}, {"failed": case, "cause": …}, {"end": case}, {"cut": cases left}."""

    def __init__(self, file: TextIO):
        self._file = file

    def line(self, **content: Any) -> None:
        self._file.write(json.dumps(content) + "\n")
        self._file.flush()

    def measured(self, name: str, samples: Iterable[float], unit: str, title: str, **context: Any) -> None:
        self.line(row={"label": "measured", "name": name, "samples": list(samples), "unit": unit, "title": title, **context})

    def computed(self, name: str, value: float, unit: str, title: str, *, formula: str, inputs: dict[str, Any]) -> None:
        self.line(row={
            "label": "computed", "name": name, "value": value, "unit": unit, "title": title, "formula": formula, "inputs": inputs,
        })  # fmt: skip


Work = Callable[[Report], None]
Section = Callable[[Setting], Iterator[tuple[str, Work]]]


def work(section: Section, setting: Setting, path: Path, seconds: float, skip: Iterable[str] = ()) -> int:
    """Run a section's cases that are not in `skip`, starting none after `seconds`. Returns the process's exit status."""
    deadline, skip = time.monotonic() + seconds, set(skip)
    with path.open("a", encoding="utf-8") as file:
        report = Report(file)
        waiting = [(name, run) for name, run in section(setting) if name not in skip]
        for i, (name, run) in enumerate(waiting):
            if time.monotonic() > deadline:
                report.line(cut=[name for name, _ in waiting[i:]])
                break
            report.line(begin=name)
            with failures(report, name):
                run(report)
                setting.synchronize()
            report.line(end=name)
            if not usable(setting):
                return LOST
            if not setting.rehearsal:
                torch.cuda.empty_cache()  # other processes use the card too
    return 0


@contextmanager
def failures(report: Report, name: str):
    try:
        yield
    except Exception as e:  # noqa: BLE001 - whatever one case raises must not take the others along; it is recorded
        report.line(failed=name, cause=one_line(e))


def one_line(e: BaseException) -> str:
    text = next((line.strip() for line in str(e).splitlines() if line.strip()), "")
    return f"{type(e).__name__}: {text}"[:300]


def usable(setting: Setting) -> bool:
    """Whether the GPU still answers: after a fault, every call of the process fails."""
    try:
        setting.synchronize()
    except RuntimeError:
        return False
    return True
