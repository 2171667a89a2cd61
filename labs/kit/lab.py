"""The object that checks get as `lab`."""

from __future__ import annotations

from typing import Any

from labs.kit.catalog import LabModule, find_modules
from labs.kit.subject import Subject, load_reference


class Lab:
    """`lab.ContiguousKV` is what is being checked; any other exercise's name gives its reference, so that no exercise
    depends on another."""

    def __init__(self, name: str, subject: Subject, module: LabModule):
        self._name, self._subject, self._module = name, subject, module

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            loaded = self._subject.load()
            setattr(self, name, loaded)  # one object for the whole of a check
            return loaded
        root = self._module.file.parent.parent
        for module in (self._module, *find_modules(root)):
            for exercise in module.exercises:
                if exercise.name == name:
                    return load_reference(exercise)
        raise AttributeError(f"there is no exercise {name!r}")

    def __repr__(self) -> str:
        return f"lab of {self._name}"
