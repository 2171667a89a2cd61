"""A prediction beside what was found, and how to show both in a notebook or a terminal:

    show(weights, kv_per_token)                     # a table of numbers, each with its label
    show(compare(predicted_tpot, measured_tpot))    # a table: predicted, measured, ratio, within 20 % or not

A comparison and an Evidence also show themselves as a cell's last expression.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shared.evidence import REQUIRED, Evidence, EvidenceError
from shared.rendering import as_text, mimebundle

# The label of a number made from two others: the first of these that one of them carries.
WEAKEST_FIRST = ("simulated", "published", "measured", "computed")


@dataclass(frozen=True)
class Comparison:
    """Two numbers of one unit. within: the largest relative deviation that still counts as agreement (0.2: 20 %).

    Raises EvidenceError for two units, a prediction of zero, or a `within` that is no positive number.
    """

    predicted: Evidence
    measured: Evidence
    within: float = 0.2
    title: str | None = None

    def __post_init__(self):
        if self.predicted.unit != self.measured.unit:
            units = f"{self.predicted.unit!r} and {self.measured.unit!r}"
            raise EvidenceError(f"{self.measured.name}: cannot compare {units}; convert one of the two")
        if not (isinstance(self.within, int | float) and math.isfinite(self.within) and self.within > 0):
            raise EvidenceError(f"{self.measured.name}: within={self.within!r}; it is a fraction, 0.2 for 20 %")
        ratio(f"{self.measured.name}.ratio", self.measured, self.predicted)

    @property
    def ratio(self) -> Evidence:
        """measured / predicted, as evidence that prose can name: `[1.1×](evidence:NAME.ratio)`, NAME the measured entry's."""
        return ratio(f"{self.measured.name}.ratio", self.measured, self.predicted)

    @property
    def holds(self) -> bool:
        return bool(abs(self.ratio.value - 1) <= self.within)

    def to_dict(self) -> dict[str, Any]:
        title = self.title or self.measured.context.get("title", self.measured.name)
        pair = {"predicted": self.predicted.to_dict(), "measured": self.measured.to_dict(), "ratio": self.ratio.to_dict()}
        return {"title": title, **pair, "within": self.within, "holds": self.holds}

    def __str__(self):
        return as_text(document([self]))

    def _repr_mimebundle_(self, include=None, exclude=None):
        return mimebundle(document([self]))


def compare(predicted: Evidence, measured: Evidence, within: float = 0.2, title: str | None = None) -> Comparison:
    """Sets a prediction beside what was found. title: the row's name; None takes the measured entry's."""
    return Comparison(predicted, measured, within, title)


def ratio(name: str, numerator: Evidence, denominator: Evidence, title: str | None = None) -> Evidence:
    """numerator / denominator, in ×, with the weaker of the two labels and that entry's context.

    Raises EvidenceError where the denominator is zero or the units differ.
    """
    if numerator.unit != denominator.unit:
        raise EvidenceError(f"{name}: a ratio of {numerator.unit!r} to {denominator.unit!r} is no pure number; convert one")
    if denominator.value == 0:
        raise EvidenceError(f"{name}: {denominator.name} is zero, there is no ratio to it")
    basis = min((numerator, denominator), key=lambda e: WEAKEST_FIRST.index(e.label))
    context = {key: basis.context[key] for key in REQUIRED[basis.label]}
    context |= {"formula": f"{numerator.name} / {denominator.name}", "inputs": _inputs(numerator, denominator)}
    if basis.label == "measured":
        context |= _spread(numerator, denominator)
    if title:
        context["title"] = title
    return Evidence(name, numerator.value / denominator.value, "×", basis.label, context)


def show(*items: Evidence | Comparison) -> None:
    """Displays numbers and comparisons where it is called: as tables in a notebook, as text elsewhere.

    Raises EvidenceError for anything else, and for one name that stands for two numbers.
    """
    shown = document(items)
    ipython = sys.modules.get("IPython")  # asked, not imported: it is loaded where there is a notebook to display in
    if ipython and ipython.get_ipython():
        ipython.display.display(mimebundle(shown), raw=True)
    else:
        print(as_text(shown))


def document(items: Iterable[Evidence | Comparison]) -> dict[str, Any]:
    """The JSON form of what is shown together; shared/rendering.py describes it."""
    items = list(items)
    wrong = [item for item in items if not isinstance(item, Evidence | Comparison)]
    if wrong or not items:
        what = f"{str(wrong[0])[:60]!r} is neither" if wrong else "nothing given"
        raise EvidenceError(f"show takes evidence and comparisons: {what}; label a number with computed(...) or measured(...)")
    entries = [item.to_dict() for item in items if isinstance(item, Evidence)]
    comparisons = [item.to_dict() for item in items if isinstance(item, Comparison)]
    shown = {"entries": entries, "comparisons": comparisons}
    collect(shown)
    return shown


def collect(shown: dict[str, Any], into: dict[str, Evidence] | None = None) -> dict[str, Evidence]:
    """All evidence of a document by name, in order, added to `into`. The same entry may be shown twice.

    Raises EvidenceError for one name that stands for two different numbers, and for entries that are no evidence.
    """
    found = {} if into is None else into
    pairs = [comparison[key] for comparison in shown["comparisons"] for key in ("predicted", "measured", "ratio")]
    for raw in [*shown["entries"], *pairs]:
        entry = Evidence.from_dict(raw)
        if found.setdefault(entry.name, entry) != entry:
            raise EvidenceError(f"{entry.name} names two numbers, {found[entry.name]} and {entry}; give each its own name")
    return found


def _inputs(*entries: Evidence) -> dict[str, float]:
    return {entry.name: entry.value for entry in entries}


def _spread(numerator: Evidence, denominator: Evidence) -> dict[str, Any]:
    """Bounds of the quotient, from the bounds of both: wider than a spread of paired samples would be."""
    ends = [[e.context.get(end, e.value) for end in ("min", "max")] for e in (numerator, denominator)]
    quotients = [top / bottom for top in ends[0] for bottom in ends[1] if bottom] or [numerator.value / denominator.value]
    repeats = min(e.context["repeats"] for e in (numerator, denominator) if e.label == "measured")
    return {"repeats": repeats, "min": min(quotients), "max": max(quotients)}
