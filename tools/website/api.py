"""The API reference: one page a package, written into docs/api; mkdocstrings fills them from the docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from shared.course import Course

ROOT = Path(__file__).resolve().parents[2]
# Packages in the order of the navigation, by import name: folder. One page each, its modules one below the other.
TOPS = {"minillm": "minillm", "minillm.kernels": "kernels", "shared": "shared"}
LEFT_OUT = {"shared.engine_scripts"}  # run inside other engines' environments, by path; nobody imports them
SIGNATURE = re.compile(r'<div (?=class="doc-signature)')


def packages(root: Path = ROOT) -> dict[str, list[str]]:
    """{package: its modules}, both as imported, the package itself first. Folders without Python files are left out."""
    found: dict[str, list[str]] = {}
    for top, folder in TOPS.items():
        for init in sorted((root / folder).rglob("__init__.py")):
            below = init.parent.relative_to(root / folder).parts
            package = ".".join([top, *below])
            if any(part.startswith("_") for part in below) or package in LEFT_OUT:
                continue
            modules = sorted(f"{package}.{file.stem}" for file in init.parent.glob("*.py") if not file.stem.startswith("_"))
            if modules or _docstring(init):
                found[package] = [package, *modules] if _docstring(init) else modules
    return found


def page_of(package: str) -> str:
    """No dot in the name: translations are to be called NAME.vi.md, and then minillm.kv.md would be a page in Komi (kv)."""
    return f"api/{package.replace('.', '-')}.md"


def navigation(course: Course) -> list:
    return ["api/index.md", *({package: page_of(package)} for package in packages())]


def write(course: Course, docs: Path, warn) -> None:
    """Called before each build: see markers.py."""
    found = packages()
    files = {page_of(package): _page(package, modules) for package, modules in found.items()}
    files["api/index.md"] = _index(found)
    (docs / "api").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        target = docs / name
        if not target.is_file() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")
    for path in (docs / "api").glob("*.md"):
        if path.relative_to(docs).as_posix() not in files:
            path.unlink()


def on_html(body: str, page_uri: str, course: Course, warn) -> str:
    """Signatures stay out of the search, as source does (docstrings/): a parameter's name is no answer to what was asked."""
    if not page_uri.startswith("api/"):
        return body
    body = body.replace('<a href="" id=', "<a id=")  # anchors, not links without a name
    return SIGNATURE.sub("<div data-search-exclude ", body)


def _page(package: str, modules: list[str]) -> str:
    directives = "\n\n".join(_directive(module) for module in modules)
    return f"---\ntitle: {package}\nsearch: {{boost: 0.003}}\n---\n\n# `{package}` {{ #package }}\n\n{directives}\n"


def _directive(module: str) -> str:
    """mkdocstrings reads files where they lie, which for the kernels is not where they are imported from: links by import name
    then need anchors of their own."""
    top = _top(module)
    found_at = TOPS[top] + module.removeprefix(top)
    if found_at == module:
        return f"::: {module}"
    body = ast.parse(_file(module).read_text("utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")]
    anchors = "\n".join(f"[](){{#{name}}}" for name in (module, *(f"{module}.{name}" for name in names)))
    return f"{anchors}\n\n::: {found_at}"


def _index(found: dict[str, list[str]]) -> str:
    rows = []
    for package, modules in found.items():
        rows.append(f"## [`{package}`]({Path(page_of(package)).name}) {{ #package-{package.replace('.', '-')} }}\n")
        rows += [f"- [`{module}`][{module}]: {_first_sentence(_docstring(_file(module)))}" for module in modules]
        rows.append("")
    return (
        "---\ntitle: API\nsearch: {exclude: true}\nhide: [toc]\n---\n\n# API\n\n"
        "What the engine and the course's own library offer, from their docstrings. The engine's parts are small files meant to\n"
        "be read: each entry unfolds into its source.\n\n" + "\n".join(rows)
    )


def _top(module: str) -> str:
    return max((top for top in TOPS if module == top or module.startswith(top + ".")), key=len)


def _file(module: str) -> Path:
    top = _top(module)
    path = ROOT / TOPS[top] / Path(*module.removeprefix(top).strip(".").split("."))
    file = path.with_suffix(".py")  # asked first: minillm/server has page.py and a folder page/
    return file if file.is_file() else path / "__init__.py"


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(":;.") + "."
