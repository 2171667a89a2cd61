"""Every notebook of the course is as series/README.md says. That its outputs still come out is compared by `pytest --nbval`."""

from pathlib import Path

import pytest
from notebooks import check

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path for path in (ROOT / "series").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_notebook_is_complete(path):
    assert check(path) == []
