"""The `labs` command: where a learner is, what comes next, checks, hints, and the way back."""

from labs.kit.cli.app import main

__all__ = ["main"]
