"""What every implementation of a part must do, whoever wrote it: minillm's reference, an alternative, or you.

A suite is a module of functions `check_…(subject)`, one for each slot (or part) of minillm.parts; the subject is the class
or function that stands for the part. A check returns None, or raises AssertionError with what it did, what it expected and
what it got. The suites need no pytest and no checkpoint, and each takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

SUITES = {
    "attention": "labs.kit.conformance.attention",
    "kv": "labs.kit.conformance.kv_cache",
    "scheduler": "labs.kit.conformance.scheduler",
    "sampling": "labs.kit.conformance.sampler",
    "text.stream": "labs.kit.conformance.stream_decoder",
    "text.stop": "labs.kit.conformance.stop_checker",
}

Check = Callable[[Any], None]


def has_suite(part: str) -> bool:
    return _suite_of(part) in SUITES


def checks(part: str) -> list[Check]:
    """The checks that the part `slot.implementation` must pass, in the order in which they are best mended.

    Raises KeyError for a part whose slot has no suite.
    """
    module = import_module(SUITES[_suite_of(part)])
    return [value for name, value in vars(module).items() if name.startswith("check_")]


def _suite_of(part: str) -> str:
    return part if part in SUITES else part.split(".")[0]
