"""What a lab is called: the course's title of its module."""

from __future__ import annotations

from labs.kit.catalog import LabModule
from shared.course import CourseError, load_course


def title_of(module: LabModule) -> str:
    """ "KV cache"; for a lab that the course does not list, the words of its file's name."""
    try:
        return load_course().module(module.id).title
    except CourseError:
        return module.file.stem[4:].replace("_", " ")
