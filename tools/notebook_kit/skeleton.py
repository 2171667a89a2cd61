"""A module's notebook before anything is in it: the sections in order, each with what belongs there."""

from __future__ import annotations

from pathlib import Path

from notebook_kit.anatomy import SECTIONS
from notebook_kit.card import module_of, opening
from notebook_kit.cells import NotebookError
from shared.course import load_course

GUIDE = {
    "Predict": "The mechanism just far enough to compute, then the arithmetic on real shapes. Numbers come from `shared/`.",
    "Build": "The smallest code that shows the mechanism, in cells of 3 to 20 lines; then the same thing called from minillm.",
    "Measure": "On the real model or the real server. A figure: the predicted line and the measured points in the same axes.",
    "Explain the gap": "Predicted against measured; where they differ by a fifth, why, and a cell that closes the gap.",
    "In real engines": "Where vLLM, SGLang or llama.cpp do it, with citations; what they do that ours does not.",
    "What it costs": "What gets better, what gets worse, and for which workload to choose which.",
    "Exercise": "What to write in `labs/{lab}.py`, and what breaks if it is wrong.\n\n```sh\nlabs check {id}\n```",
    "Check yourself": "\n".join(f"{n}. A question? <details><summary>Answer</summary>An answer.</details>" for n in (1, 2, 3)),
    "What this does not show": "The limits of the experiment.\n\n### Sources\n\n- Title, place, date",
}
CODE = {
    "Predict": [
        ("from shared.comparison import compare, show\nfrom shared.evidence import computed, measured", {}),
        ('predicted = computed("predicted_x", 1.0, "s", formula="x", inputs={"x": 1.0})\nshow(predicted)', {}),
    ],
    "Measure": [("# the figure", {"alt": "What the figure shows, in a sentence.", "tags": ["nbval-ignore-output"]})],
    "Explain the gap": [("# show(compare(predicted, measured_x))", {"tags": ["nbval-ignore-output"]})],
}


def skeleton(path: Path) -> list[tuple]:
    """Cells for `write`. Raises NotebookError for a path that is not one of series/modules.toml's."""
    module = module_of(path, load_course())
    if module is None:
        raise NotebookError(f"{path} is no module of the course: series/modules.toml lists where each lies")
    cells: list[tuple] = [("md", f"{opening(module.id)}\n\nThe number most engineers get wrong.")]
    for title in SECTIONS:
        cells.append(("md", f"## {title}\n\n{GUIDE[title].format(lab=module.lab, id=module.id)}"))
        cells += [("code", source, metadata) for source, metadata in CODE.get(title, [])]
    return cells
