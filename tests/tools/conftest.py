"""tools/ is not installed: its scripts are found here as they are when one of them is run. One sample notebook, run once."""

import json
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools"), str(HERE)]


def write_neighbour(notebook):
    """The module that the sample's card links to, because it is written in the real course."""
    empty = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    notebook.parent.mkdir(parents=True, exist_ok=True)
    (notebook.parent / "01_one_token.ipynb").write_text(json.dumps(empty))


@pytest.fixture(scope="session")
def course_root(tmp_path_factory):
    """A folder laid out as the repository, with one complete module, run."""
    from notebook_sample import CELLS, NOTEBOOK
    from notebooks import run, write

    root = tmp_path_factory.mktemp("course")
    (root / "labs/c2").mkdir(parents=True)
    (root / "labs/c2/m03_kv_cache.py").touch()
    (root / "LICENSE").touch()
    notebook = write(root / NOTEBOOK, CELLS)
    write_neighbour(notebook)
    run(notebook)
    return root


@pytest.fixture
def sample(course_root, tmp_path):
    """A copy of the folder, the notebook's path in it, and a way to change the notebook's JSON."""
    from notebook_sample import NOTEBOOK

    root = tmp_path / "copy"
    shutil.copytree(course_root, root)
    return Sample(root, root / NOTEBOOK)


class Sample:
    def __init__(self, root, path):
        self.root, self.path = root, path

    def faults(self):
        from notebooks import check

        return check(self.path, self.root)

    def cells(self):
        return json.loads(self.path.read_text())["cells"]

    def change(self, edit):
        """edit(notebook) changes the parsed JSON in place; texts are lists of lines."""
        notebook = json.loads(self.path.read_text())
        edit(notebook)
        self.path.write_text(json.dumps(notebook))

    def replace(self, old, new):
        """Replaces text once, wherever in the file; it must be there."""
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new, 1))
