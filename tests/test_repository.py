"""The repository's own rules: which room may import which, what no file may mention, and that its papers match its code."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import minillm

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCAL_ONLY = {".git", ".venv", ".labs", "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"}
BUILT = {"build", "dist", "site"}  # at the root; tests/site is something else

# What each room may import of the others. kernels/ is imported as minillm.kernels.
ROOMS = {
    "shared": {"shared"},
    "kernels": {"shared", "minillm.kernels"},
    "minillm": {"shared", "minillm"},
    "labs": {"shared", "minillm", "labs"},
}
ASKED_FOR = {"minillm/mine/labs.py": {"labs"}}  # imported only when `--mine` asks for it
ELSEWHERE = ROOT / "shared" / "engine_scripts"  # run in another engine's environment, with its packages
OURS = {"shared", "kernels", "minillm", "labs", "series", "tests", "tools", "benchmarks"}
MAX_LINES = 400
MAX_LINES_OF_CHECKS = 500  # a module's checks are one file, whatever its exercises


def project_files() -> list[Path]:
    """Every file of the project: git's list, or a walk where there is no git (a ZIP download)."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        return [path for name in listed if name and (path := ROOT / name).is_file()]
    return walked_files()


def walked_files() -> list[Path]:
    def wanted(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        local = parts[0] in BUILT or LOCAL_ONLY.intersection(parts)
        return path.is_file() and not local and not any(part.endswith(".egg-info") for part in parts)

    return [path for path in ROOT.rglob("*") if wanted(path)]


FILES = project_files()


def modules_of(room: str) -> list[Path]:
    return [path for path in FILES if path.suffix == ".py" and path.is_relative_to(ROOT / room)]


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in the file, relative imports made absolute."""
    package = path.relative_to(ROOT).parent.parts
    if package[:1] == ("kernels",):
        package = ("minillm", *package)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def packages_named(requirements: list[str]) -> set[str]:
    """As they are imported, where that differs from their name by a hyphen only."""
    return {re.split(r"[<>=~!\[ ;]", line)[0].lower().replace("-", "_") for line in requirements}


def within(name: str, allowed: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in allowed)


@pytest.mark.parametrize("room", ROOMS)
def test_dependencies_point_one_way(room):
    assert modules_of(room)
    for path in modules_of(room):
        allowed = ROOMS[room] | ASKED_FOR.get(path.relative_to(ROOT).as_posix(), set())
        for name in imports(path):
            if name.split(".")[0] in OURS:
                assert within(name, allowed), f"{path.relative_to(ROOT)} imports {name}"


def test_runtime_imports_are_runtime_dependencies():
    """transformers and friends are the tests' oracle; what serves a model must run without them."""
    declared = packages_named(PROJECT["project"]["dependencies"])
    extras = {name: packages_named(PROJECT["project"]["optional-dependencies"][name]) for name in ("learn", "gpu")}
    more = {"labs": extras["learn"], "kernels": extras["gpu"]}  # checks are run by who has these; kernels are loaded when chosen
    for room in ROOMS:
        for path in modules_of(room):
            if path.is_relative_to(ELSEWHERE):
                continue
            outside = {name.split(".")[0] for name in imports(path)} - OURS - sys.stdlib_module_names
            allowed = declared | more.get(room, set())
            assert outside <= allowed, f"{path.relative_to(ROOT)} imports {sorted(outside - allowed)}"


# Spelled in pieces, or this file would be the first to break its own rule.
REGISTRY = ["pypi" + ".org", "python" + "hosted", "download.py" + "torch", "registry.np" + "mjs", "ana" + "conda.org"]
MACHINE_PATH = re.compile(r"(?<![\w.~])/" + r"(?:work|root|home|opt|Users|mnt|workspace)/\w")


def text_files() -> list[tuple[Path, str]]:
    texts = []
    for path in FILES:
        try:
            texts.append((path, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # an image
    return texts


def test_no_file_names_a_package_registry_or_a_path_of_one_machine():
    for path, text in text_files():
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            assert not any(host in line.lower() for host in REGISTRY), f"{where} names a package registry's host"
            assert not MACHINE_PATH.search(line), f"{where} holds a path of one machine: {line.strip()}"


def test_python_files_are_short():
    lengths = {str(path.relative_to(ROOT)): len(text.splitlines()) for path, text in text_files() if path.suffix == ".py"}
    assert {name: lines for name, lines in lengths.items() if lines > most_lines(name)} == {}


def most_lines(name):
    return MAX_LINES_OF_CHECKS if re.fullmatch(r"labs/\w+/test_m\d\d_\w+\.py", name) else MAX_LINES


def test_no_conftest_at_the_root_and_no_package_in_tests():
    names = {str(path.relative_to(ROOT)) for path in FILES}
    assert "conftest.py" not in names
    assert not [name for name in names if name.startswith("tests/") and name.endswith("__init__.py")]


def test_packages_listed_are_the_folders_there():
    """The list is written by hand because of kernels/; a folder left out would be missing from the installed project."""
    modules = [path for room in ROOMS for path in modules_of(room) if not path.is_relative_to(ELSEWHERE)]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in modules}
    packages = {f"minillm.{folder}" if within(folder, {"kernels"}) else folder for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages
    assert [folder for folder in folders if not (ROOT / folder.replace(".", "/") / "__init__.py").is_file()] == []


def test_changelog_starts_with_this_version():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == minillm.__version__


def test_every_dependency_is_pinned():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    wanted = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    wanted += [dependency for extra in PROJECT["project"]["optional-dependencies"].values() for dependency in extra]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=~!\[ ;]", dependency)[0]).lower() for dependency in wanted}
    assert names - pinned == {PROJECT["project"]["name"]}


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md", ".ci/run"])
def test_make_targets_named_in_papers_exist(paper):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / paper).read_text()
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^\s*make ([a-z-]+)", text, re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md", "THIRD_PARTY.md"])
def test_links_between_papers_lead_somewhere(paper):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / paper).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_walk_without_git_finds_what_git_finds():
    """Run from a ZIP download, these tests must look at the same files."""
    assert {path for path in FILES if path.suffix in (".py", ".md", ".toml")} <= set(walked_files())
