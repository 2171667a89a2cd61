"""The exercise box of a module's page: what to write, how it is checked, hints folded away."""

from __future__ import annotations

import ast
from collections.abc import Callable
from html import escape

from labs.kit.catalog import Exercise, LabModule, find_module
from labs.kit.errors import LabError
from labs.kit.hints import hints_of
from minillm.parts import PARTS
from shared.course import Module


def exercise_section(module: Module, warn: Callable[[str], None]) -> str:
    """Markdown with one box an exercise; empty, and a warning, where the module has none that can be read."""
    try:
        lab = find_module(module.id)
    except LabError as e:
        warn(f"module {module.id}: {e}")
        return ""
    if lab.problem:
        warn(f"module {module.id}: {lab.problem}")
    return "\n\n".join(_box(lab, exercise) for exercise in lab.exercises)


def _box(lab: LabModule, exercise: Exercise) -> str:
    hints = hints_of(exercise)
    reference = exercise.reference.replace(":", ".")
    part = f" In the engine it is the part `{exercise.part}`." if exercise.part else ""
    try_it = _serve(exercise.part) if exercise.part else ""
    return "\n\n".join(
        (
            '<div class="exercise" markdown="1">',
            f"### Write `{exercise.name}` {{ #write-{exercise.name.lower()} }}",
            f"The file is `labs/{exercise.module}.py`.{part}",
            f"```sh\nlabs check {lab.id}\n{try_it}".rstrip() + "\n```",
            _folded("The stub, with its contract", f"```python\n{_stub(exercise)}\n```"),
            *(_folded(f"Hint {n} of {len(hints)}", escape(hint, quote=False)) for n, hint in enumerate(hints, 1)),
            f"The engine's own version, to read when yours passes: {_reference(reference)}.",
            "</div>",
        )
    )


def _serve(part: str) -> str:
    flag = PARTS[part].flag if part in PARTS else ""
    return f"minillm serve {f'{flag} ' if flag else ''}--mine={part}  # once it passes: the server runs on it"


def _reference(name: str) -> str:
    """A link to where the API's pages show it; plain code where none does."""
    return f'<autoref identifier="{name}" optional>`{name}`</autoref>'


def _folded(title: str, markdown: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{markdown}\n\n</details>'


def _stub(exercise: Exercise) -> str:
    """Its source as the learner finds it. The decorator says nothing that the box does not."""
    text = exercise.file.read_text("utf-8")
    node = next(n for n in ast.parse(text).body if getattr(n, "name", None) == exercise.name)
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
