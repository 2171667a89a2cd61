"""Signatures that are too long for a line are broken as ruff breaks them."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/website"))

from mkdocstrings_handlers.python._internal import rendering
from signatures import broken, install

SIGNATURES = [
    "def xxxxxx(x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor: pass",
    "def xxxxxx(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> tuple[Tensor, Tensor]: pass",
    'def xxxxxx(self, name: str = "a, (b", *parts: str, key: Callable[[int, str], dict[str, int]] = {"a": (1, 2)}): pass',
    "def xxxxxxxxxx(first, /, second, *, third: Literal['it is, here', \"]\"] = 'x', **others: Any) -> Iterator[int]: pass",
]


def by_ruff(code):
    command = [sys.executable, "-m", "ruff", "format", "--config", "line-length=88", "--stdin-filename", "file.py", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.mark.parametrize("code", SIGNATURES)
def test_as_ruff_does(code):
    got = broken(code, 88)
    assert got != code
    quotes = str.maketrans("'", '"')  # ruff's quotes; ours stay as they are
    assert by_ruff(got).translate(quotes) == by_ruff(code).translate(quotes)
    assert got.removesuffix(" pass").translate(quotes) == by_ruff(code).removesuffix("\n    pass\n").translate(quotes)


@pytest.mark.parametrize("code", ["def xxx() -> int: pass", "GROUPS: dict[str, tuple[int, ...]] = {}", ""])
def test_what_has_no_parameters_stays(code):
    assert broken(code, 10) == code


def test_the_api_pages_use_it(monkeypatch):
    monkeypatch.setattr(rendering, "_get_formatter", rendering._get_formatter)
    install()
    assert rendering._format_signature("minillm.kernels.rms_norm", SIGNATURES[1][10:-6], 88) == (
        "minillm.kernels.rms_norm(\n"
        "    x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None\n"
        ") -> tuple[Tensor, Tensor]"
    )
