"""What a learner has written so far, read from the file's syntax tree."""

from __future__ import annotations

import ast

from labs.kit.catalog import Exercise

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unwritten(exercise: Exercise) -> list[str]:
    """Functions of an exercise (its methods, if it is a class) that still are as the stub has them, in the file's order."""
    return [function.name for function in _functions(exercise) if _is_stub(function)]


def is_untouched(exercise: Exercise) -> bool:
    """Whether nothing of it has been written yet."""
    functions = _functions(exercise)
    return bool(functions) and all(map(_is_stub, functions))


def _functions(exercise: Exercise) -> list[_Function]:
    tree = ast.parse(exercise.file.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if getattr(n, "name", None) == exercise.name)
    return [node] if isinstance(node, _Function) else [n for n in node.body if isinstance(n, _Function)]


def _is_stub(function: _Function) -> bool:
    """Whether all it does, docstring aside, is to raise NotImplementedError."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Raise):
        return False
    raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
