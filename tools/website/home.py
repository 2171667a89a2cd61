"""What the home page and the list of all modules show: stack, first prediction, paths, levels, filters."""

from __future__ import annotations

from html import escape

from module_list import duration, exists, href, module_list, progress_bar, series_uri, short_list
from stack import stack

from shared import hardware, models
from shared.budget import kv_bytes, kv_token_budget, max_requests, weight_bytes
from shared.course import LEVELS, Course

ALL = "course.md"
DOES = {
    "user": "You call an API, and want to know what you pay and wait for.",
    "operator": "You keep an endpoint up: does it fit, and does it hold under load?",
    "optimizer": "You want more from each GPU, within a limit on latency.",
    "engine builder": "You write what the others configure.",
}


def first_prediction(page: str, course: Course) -> str:
    """A card's memory as a bar, from the tables and the arithmetic that the notebooks use."""
    model, card = models.load("llama-3.1-8b"), hardware.load("rtx-4090")
    weights, total, per_token = weight_bytes(model), card.memory_bytes, kv_bytes(model, 1)
    tokens = kv_token_budget(total, weights, per_token, gpu_memory_utilization=0.92)
    used = 100 * weights / total
    cache = 100 * tokens * per_token / total
    return (
        '<figure class="first-prediction"><figcaption>How many users fit on one card?</figcaption>'
        f'<div class="memory-bar" aria-hidden="true"><i class="bar-weights" style="width:{used:.1f}%"></i>'
        f'<i class="bar-cache" style="width:{cache:.1f}%"></i></div><dl>'
        f'<div><dt><i class="bar-weights"></i>weights of Llama-3.1-8B in bf16</dt><dd>{weights / 1e9:.2f} GB</dd></div>'
        f'<div><dt><i class="bar-cache"></i>left for KV cache, {per_token:,} bytes a token</dt>'
        f"<dd>{tokens:,} tokens</dd></div>"
        f"<div><dt>conversations of 8,000 tokens</dt><dd>{max_requests(tokens, 8000)}</dd></div></dl>"
        '<p><span class="label label-computed">computed</span> for an RTX 4090 of which the engine may take 92 %, '
        f'activations not yet counted. <a href="{href(page, "calculators/memory.md")}">Your model and card</a></p></figure>'
    )


def paths(page: str, course: Course) -> str:
    cards = []
    for role in course.roles:
        modules = course.path(role.id)
        cards.append(
            f'<article class="path"><h3 id="path-{role.id}">{escape(role.title)}</h3><p>{escape(role.description)}</p>'
            f'<p class="path-facts">{len(modules)} modules, {duration(modules)}. '
            f'<a href="{href(page, ALL)}#role={role.id}">Show them'
            f'<span class="visually-hidden"> for: {escape(role.title)}</span></a></p>'
            f"<details><summary>The list, in order</summary>{short_list(modules, page)}</details></article>"
        )
    return f'<div class="paths">{"".join(cards)}</div>'


def levels(page: str, course: Course) -> str:
    steps = []
    for level in LEVELS:
        modules = [module for module in course.modules if module.level == level]
        steps.append(
            f'<li><a href="{href(page, ALL)}#level={level.replace(" ", "-")}"><b>{level.capitalize()}</b></a>'
            f"<p>{DOES[level]}</p><small>{len(modules)} modules</small></li>"
        )
    return f'<ol class="levels">{"".join(steps)}</ol>'


def filters(page: str, course: Course) -> str:
    """A form that filters.js shows and obeys; without JavaScript the page is the full list."""
    groups = (
        ("role", "Path", {role.id: role.title for role in course.roles}),
        ("level", "Level", {level.replace(" ", "-"): level.capitalize() for level in LEVELS}),
        ("series", "Series", {series.id: series.id.upper() for series in course.series}),
    )
    fields = "".join(_choices(name, title, choices) for name, title, choices in groups)
    return (
        f'<form class="filters" hidden>{fields}<p class="filters-result"><output aria-live="polite"></output> '
        '<button type="button">Show all</button></p></form>'
    )


def _choices(name: str, title: str, choices: dict[str, str]) -> str:
    options = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{"" if value else " checked"}>'
        f"<span>{escape(text)}</span></label>"
        for value, text in {"": "All", **choices}.items()
    )
    return f"<fieldset><legend>{title}</legend><div>{options}</div></fieldset>"


def all_modules(page: str, course: Course) -> str:
    parts = []
    alone = course.modules_of(None)
    begin = [module for module in alone if module.id == "start"]
    end = [module for module in alone if module.id != "start"]
    parts.append(f"## Begin here {{ #start }}\n\n{module_list(begin, page)}")
    for series in course.series:
        modules = course.modules_of(series.id)
        parts.append(
            f"## {series.id.upper()} · {series.title} {{ #{series.id} }}\n\n"
            f'<p class="series-line">{escape(series.question)} <a href="{href(page, series_uri(series))}">About this series</a>'
            f"{progress_bar(modules)}</p>\n\n{module_list(modules, page)}"
        )
    parts.append(f"## All of it together {{ #together }}\n\n{module_list(end, page)}")
    return "\n\n".join(parts)


def state(page: str, course: Course) -> str:
    """One line: how much of the course is written."""
    written = sum(exists(module) for module in course.modules)
    total = len(course.modules)
    said = f"{written} of {total} modules are written{'' if written == total else '; the others are planned'}."
    return f'<p class="course-state">{said} {progress_bar(course.modules)}</p>'


MARKERS = {
    "stack": stack,
    "first prediction": first_prediction,
    "paths": paths,
    "levels": levels,
    "filters": filters,
    "all modules": all_modules,
    "state": state,
}
