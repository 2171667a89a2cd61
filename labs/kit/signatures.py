"""Whether a stub asks for what its reference gives: names, parameters, defaults and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def differences(stub: Any, reference: Any) -> list[str]:
    """One line for each thing that differs between two functions, or two classes and their public methods."""
    if inspect.isclass(stub) != inspect.isclass(reference):
        return [f"one is a class, the other a function: {stub!r}, {reference!r}"]
    if not inspect.isclass(stub):
        return _compare(stub.__name__, stub, reference)
    a, b = _methods(stub), _methods(reference)
    lines = [f"{name} is only in the {'stub' if name in a else 'reference'}" for name in sorted(a.keys() ^ b.keys())]
    for name in a.keys() & b.keys():
        if type(a[name]) is not type(b[name]):
            lines.append(f"{name} is a {type(a[name]).__name__} in the stub, a {type(b[name]).__name__} in the reference")
        else:
            lines += _compare(name, _function(a[name]), _function(b[name]))
    return lines


def _methods(cls: type) -> dict[str, Any]:
    """Its own public ones, and those between double underscores, properties and class methods included."""

    def is_public(name: str) -> bool:
        return not name.startswith("_") or name.startswith("__")

    kinds = (property, classmethod, staticmethod)
    members = vars(cls).items()
    return {name: value for name, value in members if is_public(name) and (inspect.isfunction(value) or isinstance(value, kinds))}


def _function(member: Any) -> Callable:
    return member.fget if isinstance(member, property) else getattr(member, "__func__", member)


def _compare(name: str, stub: Callable, reference: Callable) -> list[str]:
    a, b = _described(stub), _described(reference)
    return [] if a == b else [f"{name}{a} in the stub, {name}{b} in the reference"]


def _described(function: Callable) -> str:
    """The signature as text: an annotation may be a string in one file and a type in the other."""
    return str(inspect.signature(function)).replace("'", "").replace('"', "")
