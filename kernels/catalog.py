"""All variants that the launchers really use, from the kernels' own files.

A kernel's file is one that has a `SHIPPED`. They are imported when somebody asks, so that `import minillm.kernels` stays cheap.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from minillm.kernels.shipped import Shipped

from minillm import kernels


@cache
def shipped() -> tuple[Shipped, ...]:
    """Every Shipped, by file and in the file's order. Raises ValueError if two have the same name."""
    modules = [importlib.import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)]
    variants = [variant for module in modules for variant in getattr(module, "SHIPPED", ())]
    names = [variant.name for variant in variants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two variants are called {', '.join(twice)}; SHIPPED names are unique in the repository")
    return tuple(variants)


def variant(name: str) -> Shipped:
    """The Shipped of this name. Raises KeyError with all names."""
    for each in shipped():
        if each.name == name:
            return each
    raise KeyError(f"no variant is called {name!r}; there are {', '.join(each.name for each in shipped())}")
