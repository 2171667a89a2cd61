"""The reference behind an exercise, cut out of the engine's source without importing it."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass

from labs.kit.catalog import ROOT, Exercise
from labs.kit.errors import LabError
from labs.kit.progress import reference_file


@dataclass(frozen=True)
class Solution:
    where: str  # "minillm/kv/contiguous.py:17"
    source: str


def solution_of(exercise: Exercise) -> Solution:
    """The reference's function or class as it stands in its file, decorators included. Raises LabError."""
    file, name = reference_file(exercise), exercise.reference.split(":")[1]
    text = file.read_text("utf-8")
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            source = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
            return Solution(f"{os.path.relpath(file, ROOT)}:{first}", source)
    raise LabError(f"{exercise.key}: {os.path.relpath(file, ROOT)} defines no {name}; please report it")
