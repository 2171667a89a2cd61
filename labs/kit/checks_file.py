"""Which checks a file holds and to which exercises they belong, read without importing it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from labs.kit.errors import LabError


@dataclass(frozen=True)
class CheckFunction:
    """One `def test_…` of a checks file. exercise: the name in its @checks(…), or in the file's pytestmark; None: unmarked."""

    name: str
    exercise: str | None
    line: int


def read_checks(file: Path) -> list[CheckFunction]:
    """All of them, in the file's order. Methods of classes count as unmarked: a check is a plain function.

    Raises LabError for a file that is not valid Python."""
    if not file.is_file():
        return []
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError as e:
        raise LabError(f"{file.parent.name}/{file.name}, line {e.lineno}: {e.msg}; `git restore` brings it back") from e
    whole_file = next((name for node in tree.body if (name := _file_mark(node))), None)
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
            found += [CheckFunction(f"{node.name}.{method.name}", None, method.lineno) for method in methods]
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            own = next((name for decorator in node.decorator_list if (name := _mark(decorator))), None)
            found.append(CheckFunction(node.name, own or whole_file, node.lineno))
    return found


def _file_mark(node: ast.stmt) -> str | None:
    is_mark = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "pytestmark"
    return _mark(node.value) if is_mark else None


def _mark(node: ast.expr) -> str | None:
    """ "Name" of `checks("Name")` or `pytest.mark.checks("Name")`."""
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return node.args[0].value if called == "checks" else None
