"""What stands between the engine and a part of the caller's: a wrong answer is named at once, where it comes from.

A reference part is tested and runs as it is. A learner's has passed its checks too, but checks are examples: in service it
may still raise, or answer what nothing further on can use, and the engine would fail later, elsewhere and in words of its
own. A guard looks at what its slot's protocol promises, and at nothing that takes longer than the part itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minillm.mine.faults import Origin, OwnPartError, call


class Guard:
    """One object of the caller's, from the call that makes it; whatever it raises is an OwnPartError.

    What a guard does not define itself is the object's own attribute or method.
    """

    def __init__(self, origin: Origin, factory: Callable, *args: Any, **kwargs: Any):
        self._origin = origin
        self._subject = self._call(factory, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._subject, name)
        except AttributeError as e:
            if e.obj is self._subject and e.name == name:  # it has none: the engine may ask whether there is one
                raise
            self._call(_raise, e)
        except Exception as e:  # noqa: BLE001 - of a property
            self._call(_raise, e)
        return functools.partial(self._call, value) if callable(value) else value

    def _call(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        return call(self._origin, function, *args, **kwargs)

    def _fault(self, what: str) -> OwnPartError:
        """To raise. what: the rest of a sentence that begins with the part."""
        return OwnPartError(self._origin, what)


def _raise(error: Exception) -> None:
    raise error
