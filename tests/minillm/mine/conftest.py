"""A labs folder to learn in, apart from the repository's own."""

import logging
import sys
import textwrap

import pytest

from labs.kit.catalog import find_modules
from labs.kit.progress import Progress
from minillm.parts import PARTS

NUMBERS = {"kv.contiguous": 3, "scheduler.token_budget": 4, "sampling.pipeline": 5, "attention.torch": 6, "text.stream": 7}
NUMBERS |= {"text.stop": 8, "attention.sdpa": 9}  # of the modules in the labs folder of these tests
COUNTING = """
    calls = []

    def start(self, request, keep_free=0):
        self.calls.append("start")
        return super().start(request, keep_free)

    def allocate(self, request, num_new_tokens):
        self.calls.append("allocate")
        return super().allocate(request, num_new_tokens)
"""


class Labs:
    """A labs folder whose answers are the references, but for what a test writes into them."""

    numbers = NUMBERS

    def __init__(self, folder):
        self.folder = folder
        (folder / "c2").mkdir(parents=True)

    def write(self, part, body=COUNTING, passing=True, before=""):
        module, name = PARTS[part].reference.split(":")
        head = f"""
            from labs.kit import exercise
            from {module} import {name} as Reference
            {before}
            @exercise(reference="{module}:{name}", part="{part}")
            class {name}(Reference):
        """
        file = self.folder / "c2" / f"m{NUMBERS[part]:02}_{part.replace('.', '_')}.py"
        file.write_text(textwrap.dedent(head).strip() + "\n" + body)
        if passing:
            exercise = next(e for m in find_modules() if m.file == file for e in m.exercises)
            progress = Progress.load()
            progress.record(exercise, True, [])
            progress.save()
        return file


@pytest.fixture
def labs(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_ROOT", str(tmp_path / "labs"))
    monkeypatch.setenv("LABS_HOME", str(tmp_path / "home"))
    before = set(sys.modules)
    yield Labs(tmp_path / "labs")
    for name in set(sys.modules) - before:  # the answers were imported under names of the repository's own labs
        if name.startswith("labs.c2"):
            del sys.modules[name]


@pytest.fixture
def said(caplog):
    """What the log says, a line each."""
    caplog.set_level(logging.INFO, "minillm.mine")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "minillm.mine"]
