"""The site's table of contents, from the course's list of modules and what docs/ holds."""

from __future__ import annotations

from markers import navigation_of
from module_list import exists, full_title, module_uri, series_uri

from shared.course import Course


def navigation(course: Course) -> list:
    """In MkDocs' form: a list of {title: path} and {title: [...]}."""
    return [
        {"Home": "index.md"},
        {
            "Course": [
                {"All modules": "course.md"},
                *_alone(course, "start"),
                *_series(course),
                *_alone(course, "capstone", "checklist"),
            ]
        },
        {
            "Calculators": [
                {"All calculators": "calculators/index.md"},
                {"Memory and KV budget": "calculators/memory.md"},
                {"Roofline": "calculators/roofline.md"},
                {"Cost per million tokens": "calculators/cost.md"},
            ]
        },
        {
            "Reference": [
                {"Glossary": "reference/glossary.md"},
                {"How numbers are labelled": "reference/evidence.md"},
                {"Hardware": "reference/hardware.md"},
                {"Models": "reference/models.md"},
                {"Kernels": "reference/kernels.md"},
                {"Results": "reference/results.md"},
                {"Step events": "events.md"},
                {"API": navigation_of("api", course)},
            ]
        },
        {"About": [{"About the project": "about.md"}, {"Changelog": "changelog.md"}]},
    ]


def _alone(course: Course, *ids: str) -> list:
    modules = [course.module(id) for id in ids]
    return [{module.title: module_uri(module)} for module in modules if exists(module)]


def _series(course: Course) -> list:
    """Each series with its page and those of its modules that exist."""
    return [
        {
            f"{series.id.upper()} · {series.title}": [
                series_uri(series),
                *({full_title(m): module_uri(m)} for m in course.modules_of(series.id) if exists(m)),
            ]
        }
        for series in course.series
    ]
