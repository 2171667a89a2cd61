"""Where a number comes from. Every speed, size or price that a reader is shown is an `Evidence`, and carries one of four labels.

    computed   arithmetic from stated inputs
    measured   run by this repository, on a stated machine
    simulated  a model of a system that is not at hand
    published  somebody else's, with its source, date and setting

A label without its context is refused: a number that nobody could reproduce is not evidence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from inspect import signature
from statistics import median
from typing import Any

from shared.rendering import format_value, mimebundle

# What each label must carry. A key may be None where it does not apply (a load time has no output length), but not be left out.
REQUIRED: dict[str, tuple[str, ...]] = {
    "computed": ("formula", "inputs"),
    "measured": (
        "environment",
        "checkpoint",
        "dtype",
        "input_tokens",
        "output_tokens",
        "concurrency",
        "repeats",
        "min",
        "max",
    ),
    "simulated": ("simulator", "calibration", "seed"),
    "published": ("source", "date", "setting"),
}
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class EvidenceError(ValueError):
    """Evidence that lacks what its label demands, or that cannot be read."""


@dataclass(frozen=True)
class Evidence:
    """One number with its unit, its label, and what is needed to obtain it again.

    name: how prose refers to it (`evidence:weights_8b`): lower case, digits, `_`, `.` and `-`.
    unit: as shown after the number: "GB", "tokens/s", "" for a pure ratio.
    context: plain JSON values; REQUIRED[label] says which must be there, more may be.
    Raises EvidenceError for a label, name, value or context that will not do.
    """

    name: str
    value: float
    unit: str
    label: str
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise EvidenceError(f"evidence name {self.name!r}: use lower-case letters, digits, '_', '.' and '-'")
        if self.label not in REQUIRED:
            raise EvidenceError(f"{self.name}: label {self.label!r} is not one of {', '.join(REQUIRED)}")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise EvidenceError(f"{self.name}: {self.value!r} is not a finite number")
        if not isinstance(self.unit, str):
            raise EvidenceError(f"{self.name}: unit {self.unit!r} is not text ('' for a pure ratio)")
        if not isinstance(self.context, Mapping):
            raise EvidenceError(f"{self.name}: the context is {self.context!r}, not a table of facts")
        missing = [key for key in REQUIRED[self.label] if key not in self.context]
        if missing:
            raise EvidenceError(f"{self.name}: {self.label} evidence must say {', '.join(missing)} (None: does not apply)")
        try:
            # through JSON: a copy nobody else holds, equal to what a file would give back
            context = json.loads(json.dumps(dict(self.context), allow_nan=False))
        except (TypeError, ValueError) as e:
            raise EvidenceError(f"{self.name}: the context must be plain JSON values: {e}") from e
        object.__setattr__(self, "context", context)

    def __str__(self):
        return f"{format_value(self.value, self.unit)} ({self.label})"

    def __repr__(self):
        return f"<{self.name}: {self}>"

    def __format__(self, spec: str) -> str:
        """`f"{e}"` is str(e); `f"{e:.1f}"` writes the number with that format instead of four significant digits."""
        return f"{format_value(self.value, self.unit, spec)} ({self.label})"

    def _repr_mimebundle_(self, include=None, exclude=None):
        """What Jupyter shows and stores: see shared/rendering.py."""
        return mimebundle({"entries": [self.to_dict()], "comparisons": []})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Evidence:
        """The inverse of to_dict. Raises EvidenceError for a missing or an unknown field."""
        fields = {"name", "value", "unit", "label", "context"}
        if not isinstance(raw, Mapping) or set(raw) != fields:
            raise EvidenceError(f"evidence has the fields {', '.join(sorted(fields))}; this is {str(raw)[:80]!r}")
        return cls(**raw)


def computed(name: str, value: float, unit: str, *, formula: str | Callable, inputs: Mapping[str, Any], **more) -> Evidence:
    """Arithmetic. formula: the function that did it, or the formula as text; inputs: every number that went in."""
    if callable(formula):
        formula = f"{formula.__module__}:{formula.__qualname__}"
    return Evidence(name, value, unit, "computed", {"formula": formula, "inputs": dict(inputs), **more})


def calculated(
    name: str, unit: str, function: Callable, *args: Any, scale: float = 1, title: str | None = None, **options: Any
) -> Evidence:
    """What a calculator gives: computed evidence that names the function and everything that went in.

    The value is function(*args, **options) * scale; scale changes the unit (1e-9: bytes to GB) and nothing else. An argument
    with an `id` (a model, a card) is kept as that id. title: how tables call the number; None: by its name.
    A function with an argument called name, unit, function, scale or title takes it by position.
    """
    given = signature(function).bind(*args, **options).arguments
    inputs = {key: getattr(value, "id", value) for key, value in given.items()}
    more = {} if title is None else {"title": title}
    return computed(name, function(*args, **options) * scale, unit, formula=function, inputs=inputs, **more)


def measured(
    name: str, samples: float | Iterable[float], unit: str, *, environment: Mapping[str, Any] | None = None, **context: Any
) -> Evidence:
    """A run on this machine. samples: one number per repeat; the value is their median, min and max are the spread.

    environment: shared.environment.capture() of the run; None captures it now.
    context: checkpoint, dtype, input_tokens, output_tokens and concurrency, each None where it does not apply; more is welcome.
    """
    if environment is None:
        from shared.environment import capture

        environment = capture()
    samples = [s if isinstance(s, int) else float(s) for s in (samples if isinstance(samples, Iterable) else [samples])]
    if not samples:
        raise EvidenceError(f"{name}: measured evidence needs at least one sample")
    spread = {"repeats": len(samples), "min": min(samples), "max": max(samples), "samples": samples}
    return Evidence(name, median(samples), unit, "measured", {"environment": environment, **context, **spread})


def simulated(name: str, value: float, unit: str, *, simulator: str, calibration: str, seed: int | None, **more) -> Evidence:
    """A model of a system. calibration: what its constants were fitted to; seed: None when nothing in it is random."""
    return Evidence(name, value, unit, "simulated", {"simulator": simulator, "calibration": calibration, "seed": seed, **more})


def published(name: str, value: float, unit: str, *, source: str, date: str, setting: str, **more) -> Evidence:
    """Somebody else's number. source: title and address; date: YYYY[-MM[-DD]]; setting: the machine and the load."""
    return Evidence(name, value, unit, "published", {"source": source, "date": date, "setting": setting, **more})
