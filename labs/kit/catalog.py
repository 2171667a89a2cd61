"""Which exercises there are, read from the stub files without importing them.

A file that does not parse, or a machine without torch, is thus something that can be told, not a crash.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from labs.kit.errors import LabError

LABS = Path(__file__).resolve().parents[1]
ROOT = LABS.parent
_FILE = re.compile(r"m(\d\d)_\w+\.py")
_CHECKS = re.compile(r"/test_(?=[^/]*$)")  # in the file's name only: a folder may be called test_something
_SERIES = re.compile(r"c(\d+)")
_MARKED = re.compile(r"^@exercise\((.*?)\)\s*^(?:async\s+def|def|class)\s+(\w+)", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"""(?:\b(\w+)\s*=\s*)?["']([^"']*)["']""")


@dataclass(frozen=True)
class Exercise:
    """One function or class to write."""

    module: str  # "c2/m03_kv_cache"
    name: str  # "ContiguousKV"
    reference: str  # "minillm.kv.contiguous:ContiguousKV"
    part: str | None  # "kv.contiguous"
    file: Path  # the learner's
    line: int

    @property
    def key(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def checks_file(self) -> Path:
        return self.file.with_name(f"test_{self.file.name}")

    @property
    def hints_file(self) -> Path:
        return self.file.with_name("hints.toml")


@dataclass(frozen=True)
class LabModule:
    """The exercises of one module of the course: one file."""

    id: str  # "2.3"
    path: str  # "c2/m03_kv_cache"
    file: Path
    checks: Path
    hints_file: Path
    exercises: tuple[Exercise, ...]
    problem: str | None  # why the file cannot be read, one line


def labs_root(root: Path | None = None) -> Path:
    """The folder that holds c1/, c2/ …: `root` if given, else the environment's LABS_ROOT, else the repository's."""
    return Path(root or os.environ.get("LABS_ROOT") or LABS).resolve()


def find_modules(root: Path | None = None) -> list[LabModule]:
    """Every lab file there is, in the order of the course."""
    files = [path for path in labs_root(root).glob("*/m*.py") if _FILE.fullmatch(path.name)]
    return [read_module(path) for path in sorted(files, key=course_order)]


def find_module(id_or_path: str, root: Path | None = None) -> LabModule:
    """By "2.3", "start", "c2/m03_kv_cache" or the path of its file. Raises LabError that names the nearest ones."""
    modules = find_modules(root)
    asked = id_or_path.strip().rstrip("/")
    as_path = _CHECKS.sub("/", asked.removesuffix(".py").removeprefix("./"))
    for module in modules:
        if asked == module.id or as_path in (module.path, f"{labs_root(root).name}/{module.path}", str(module.file)[:-3]):
            return module
    names = [name for module in modules for name in (module.id, module.path)]
    near = difflib.get_close_matches(asked, names, n=3, cutoff=0.5) or [module.id for module in modules]
    raise LabError(f"there is no lab {id_or_path!r}; did you mean {', '.join(near)}? `labs status` lists all")


def read_module(file: Path) -> LabModule:
    """The exercises of one stub file; with `problem` set, and none, where it is not valid Python."""
    file = Path(file).resolve()
    path = f"{file.parent.name}/{file.stem}"
    exercises, problem = (), None
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        exercises = tuple(_exercises(tree, path, file))
    except SyntaxError as e:
        problem = f"{file.parent.parent.name}/{path}.py, line {e.lineno}: {e.msg}"
    except UnicodeDecodeError:
        problem = f"{file.parent.parent.name}/{path}.py is not UTF-8 text"
    return LabModule(_id(file), path, file, file.with_name(f"test_{file.name}"), file.with_name("hints.toml"), exercises, problem)


def exercises_by_text(file: Path) -> list[Exercise]:
    """Those of a file that does not parse, as far as the text of their decorators tells: name, reference, part and line."""
    text, found = file.read_text(encoding="utf-8", errors="replace"), []
    for match in _MARKED.finditer(text):
        values = {key or "reference": value for key, value in _TEXT.findall(match[1])}
        line = text.count("\n", 0, match.start(2)) + 1
        path = f"{file.parent.name}/{file.stem}"
        found.append(Exercise(path, match[2], values.get("reference", ""), values.get("part"), file, line))
    return found


def is_lab_file(file: Path) -> bool:
    return _FILE.fullmatch(file.name) is not None


def _id(file: Path) -> str:
    series, number = _SERIES.fullmatch(file.parent.name), _FILE.fullmatch(file.name)
    return f"{series[1]}.{int(number[1])}" if series else file.parent.name


def course_order(file: Path) -> tuple[int, str, str]:
    """A key to sort lab files by."""
    series = _SERIES.fullmatch(file.parent.name)
    around = {"start": 0, "capstone": 1000, "checklist": 1001}
    return (int(series[1]) if series else around.get(file.parent.name, 999), file.parent.name, file.name)


def _exercises(tree: ast.Module, path: str, file: Path) -> list[Exercise]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            binding = next((b for d in node.decorator_list if (b := _binding(d))), None)
            if binding:
                found.append(Exercise(path, node.name, *binding, file, node.lineno))
    return found


def _binding(decorator: ast.expr) -> tuple[str, str | None] | None:
    """(reference, part) of `@exercise("…", part="…")`, None for another decorator."""
    if not isinstance(decorator, ast.Call):
        return None
    name = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else getattr(decorator.func, "id", None)
    if name != "exercise":
        return None
    values = dict(zip(("reference", "part"), decorator.args, strict=False))
    values |= {keyword.arg: keyword.value for keyword in decorator.keywords}
    texts = {key: getattr(value, "value", None) for key, value in values.items()}
    if not isinstance(texts.get("reference"), str):
        return None
    return texts["reference"], texts.get("part")
