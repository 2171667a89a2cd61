"""The machinery behind the exercises. Imports neither torch nor pytest: a learner's file needs only `exercise`."""

from labs.kit.exercise import checks, exercise

__all__ = ["checks", "exercise"]
