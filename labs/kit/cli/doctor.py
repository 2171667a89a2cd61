"""Whether this machine is fit for the course: what was found, and what to do where something lacks."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from shared.engines import ENGINES, engines_home, is_installed
from shared.environment import memory_bytes, usable_cores

LEARNING = ("pytest", "hypothesis", "numpy", "matplotlib", "jupyterlab", "transformers")
GB = 1_000_000_000
DISK_BYTES = 3 * GB  # the environment, the model, one compiled size
MEMORY_BYTES = 4 * GB


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"  # absent, and nothing needs it
    WARN = "warn"  # some of the course will not work, or work slowly
    MISSING = "missing"  # exercises cannot be checked


@dataclass(frozen=True)
class Finding:
    what: str
    level: Level
    found: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """One finding after the other. Nothing is installed, downloaded or changed."""
    yield Finding("Python", Level.OK, platform.python_version())  # an older one could not have read this file
    torch, finding = _torch()
    yield finding
    for check in (_learning, partial(_model, torch), _memory, _disk, _git, _compiler, partial(_gpu, torch), _triton):
        yield check()
    yield from _engines()


def _torch() -> tuple[ModuleType | None, Finding]:
    if not _is_there("torch"):
        return None, Finding("torch", Level.MISSING, "not installed", "`make setup`, then `. .venv/bin/activate`")
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as e:
        reason = " ".join(str(e).split())[:120]
        return None, Finding("torch", Level.MISSING, f"does not load: {reason}", "`rm -rf .venv`, then `make setup`")
    return torch, Finding("torch", Level.OK, torch.__version__)


def _learning() -> Finding:
    absent = [name for name in LEARNING if not _is_there(name)]
    if not absent:
        return Finding("packages", Level.OK, "all there")
    return Finding("packages", Level.MISSING, f"without {', '.join(absent)}", "`make setup`, then `. .venv/bin/activate`")


def _model(torch: ModuleType | None) -> Finding:
    if torch is None:
        return Finding("model", Level.WARN, "cannot be looked for without torch")
    from minillm.model.checkpoints.cache import cache_home, read_manifest
    from minillm.model.checkpoints.smollm2 import ALIAS

    folder = cache_home() / "checkpoints" / ALIAS
    if read_manifest(folder):
        return Finding("model", Level.OK, f"{ALIAS} in {_short(folder)}")
    return Finding("model", Level.WARN, f"{ALIAS} is not in the cache", "`make pull`, while there is a network")


def _memory() -> Finding:
    have, cores = memory_bytes(), usable_cores()
    found = f"{have / GB:.1f} GB, {cores:g} CPU cores"
    if have < MEMORY_BYTES:
        return Finding("memory", Level.WARN, found, f"{MEMORY_BYTES / GB:g} GB are safe; close other programs for notebooks")
    return Finding("memory", Level.OK, found)


def _disk() -> Finding:
    folder = next(parent for parent in engines_home().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / GB:.0f} GB free for the cache"
    if free < DISK_BYTES:
        return Finding("disk", Level.WARN, found, "free some, or set MINILLM_HOME to a folder on another disk")
    return Finding("disk", Level.OK, found)


def _git() -> Finding:
    if shutil.which("git"):
        return Finding("git", Level.OK, "there")
    return Finding("git", Level.WARN, "not found", "install git; `labs reset` and `labs update` need it")


def _compiler() -> Finding:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (found := shutil.which(name)):
            return Finding("C++", Level.OK, found)
    remedy = "for `minillm compile`; Debian, Ubuntu: `sudo apt install g++`, macOS: `xcode-select --install`"
    return Finding("C++", Level.WARN, "no compiler", remedy)


def _gpu(torch: ModuleType | None) -> Finding:
    if torch and torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        return Finding("GPU", Level.OK, f"{card.name}, {card.total_memory / GB:.1f} GB")
    if cards := _nvidia_cards():
        remedy = "torch cannot use it: `rm -rf .venv`, then `make setup` without TORCH_INDEX_URL"
        return Finding("GPU", Level.WARN, cards[0], remedy)
    return Finding("GPU", Level.NOTE, "none; everything runs without one")


def _triton() -> Finding:
    if _is_there("triton"):
        return Finding("Triton", Level.OK, version("triton"))
    if sys.platform != "linux":
        return Finding("Triton", Level.NOTE, "not made for this system; series C5 needs Linux (or WSL2)")
    return Finding("Triton", Level.NOTE, "not installed; series C5 needs it", "`pip install -c constraints.txt triton`")


def _engines() -> Iterator[Finding]:
    for name, engine in ENGINES.items():
        if is_installed(name):
            yield Finding(name, Level.OK, f"{engine.what} is installed")
        else:
            yield Finding(name, Level.NOTE, "not installed; recordings stand in", f"`{engine.command}`")


def _is_there(name: str) -> bool:
    """Installed, as far as can be said without importing it."""
    try:
        return find_spec(name) is not None and bool(version(name))
    except (PackageNotFoundError, ValueError):
        return False


def _nvidia_cards() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
