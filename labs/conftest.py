"""Switches the labs' own report on (labs/kit/plugin.py), or says what is missing here. Needs nothing but pytest."""

from importlib.util import find_spec

import pytest

NEEDED = ("labs", "minillm", "torch", "numpy", "hypothesis")
missing = [name for name in NEEDED if find_spec(name) is None]


def pytest_addoption(pluginmanager):
    if not missing:
        pluginmanager.import_plugin("labs.kit.plugin")


def pytest_configure():
    if missing:
        names = ", ".join(missing)
        raise pytest.UsageError(f"this Python has no {names}: run `make setup`, then `. .venv/bin/activate`, and try again")
