"""How evidence looks: plain text for a terminal, HTML for a notebook or the site. Nothing here knows how a number was made.

Both are drawn from one JSON document, the one a notebook's output carries under `MIME`, so that whoever reads the output later
(the linter, the site) can check or redraw it without running the notebook:

    {"entries": [evidence, ...], "comparisons": [{"title", "predicted", "measured", "ratio", "within", "holds"}, ...]}

An evidence is Evidence.to_dict(); predicted, measured and ratio are such dictionaries too.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

MIME = "application/vnd.minillm.evidence+json"
BADGE = "border:1px solid currentColor;border-radius:0.6em;padding:0 0.4em;font-size:85%;opacity:0.8;cursor:pointer"
# said in a sentence of their own, or nothing a reader needs: the samples stay in the JSON
SPOKEN = {"title", "formula", "inputs", "repeats", "min", "max", "samples", "environment"}
SPOKEN |= {"checkpoint", "dtype", "input_tokens", "output_tokens", "concurrency", "source", "date", "setting"}


def format_value(value: float, unit: str, spec: str = "") -> str:
    """A number as prose shows it: integers in full, others with four significant digits (× with three), thousands separated.

    The units "$" and "$/hour" put their sign first. spec: a format of Python's (".1f", ",.0f") instead of these rules; ValueError
    for one that Python does not know.
    """
    if spec:
        text = format(value, spec)
    elif isinstance(value, int):
        text = f"{value:,}"
    else:
        digits = 3 if unit == "×" else 4
        rounded = float(f"{value:.{digits}g}")
        text = f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e9 else f"{rounded:.{digits}g}"
    if unit.startswith("$"):
        return f"${text}{unit[1:]}"
    return f"{text}×" if unit == "×" else f"{text} {unit}".rstrip()


def mimebundle(document: Mapping[str, Any]) -> dict[str, Any]:
    """What Jupyter stores for an output: the document itself, and its two renderings."""
    return {"text/plain": as_text(document), "text/html": as_html(document), MIME: document}


def as_text(document: Mapping[str, Any]) -> str:
    """Aligned columns, one line a number, the label last."""
    tables = []
    if entries := document["entries"]:
        tables.append([[title(e), value(e), e["label"]] for e in entries])
    if comparisons := document["comparisons"]:
        rows = [
            [c["title"], *(f"{value(e)} ({e['label']})" for e in (c["predicted"], c["measured"])), value(c["ratio"]), verdict(c)]
            for c in comparisons
        ]
        tables.append([["", "predicted", _found(comparisons), "ratio", ""], *rows])
    return "\n\n".join(_columns(table) for table in tables)


def as_html(document: Mapping[str, Any]) -> str:
    """A table; each label is a badge that unfolds into what the number rests on."""
    tables = []
    if entries := document["entries"]:
        tables.append(_table(None, [[html.escape(title(e)), value_html(e)] for e in entries]))
    if comparisons := document["comparisons"]:
        rows = [
            [html.escape(c["title"]), value_html(c["predicted"]), value_html(c["measured"]), value(c["ratio"]), verdict(c)]
            for c in comparisons
        ]
        tables.append(_table(["", "predicted", _found(comparisons), "ratio", ""], rows))
    return "\n".join(tables)


def title(entry: Mapping[str, Any]) -> str:
    return entry["context"].get("title", entry["name"])


def value(entry: Mapping[str, Any]) -> str:
    return format_value(entry["value"], entry["unit"])


def verdict(comparison: Mapping[str, Any]) -> str:
    return f"{'within' if comparison['holds'] else 'not within'} {100 * comparison['within']:g} %"


def value_html(entry: Mapping[str, Any]) -> str:
    """The number with its badge. `<details>` and not a tooltip: it opens by mouse, by touch and from the keyboard."""
    lines = "<br>".join(_linked(html.escape(line)) for line in explain(entry))
    badge = f'<summary style="display:inline-block"><span style="{BADGE}">{entry["label"]}</span></summary>'
    details = f'<details style="display:inline-block;max-width:28em;text-align:left">{badge}{lines}</details>'
    name = f'class="evidence" data-name="{entry["name"]}" data-label="{entry["label"]}"'
    return f'<div {name} style="display:inline-block">{html.escape(value(entry))} {details}</div>'


def explain(entry: Mapping[str, Any]) -> list[str]:
    """What the number rests on, as lines of text. A fact that is None (does not apply) is left out."""
    context = entry["context"]
    lines = []
    if formula := context.get("formula"):
        inputs = ", ".join(f"{name} = {_plain(number)}" for name, number in context.get("inputs", {}).items())
        lines.append(f"{formula}; {inputs}" if inputs else formula)
    if entry["label"] == "measured":
        lines += [_spread(entry), _load(context), _machine(context["environment"])]
    if entry["label"] == "published":
        lines += [f"{context['source']}, {context['date']}", context["setting"]]
    lines += [f"{key}: {_plain(fact)}" for key, fact in context.items() if key not in SPOKEN and fact is not None]
    return [line for line in lines if line]


def _spread(entry: Mapping[str, Any]) -> str:
    context = entry["context"]
    if context["repeats"] == 1:
        return "one run"
    low, high = format_value(context["min"], ""), format_value(context["max"], entry["unit"])
    return f"median of {context['repeats']} runs, {low} – {high}"


def _load(context: Mapping[str, Any]) -> str:
    words = {"input_tokens": "{} tokens in", "output_tokens": "{} tokens out", "concurrency": "concurrency {}"}
    facts = [context[key] for key in ("checkpoint", "dtype") if context[key] is not None]
    return ", ".join(facts + [text.format(_plain(context[key])) for key, text in words.items() if context[key] is not None])


def _machine(environment: Mapping[str, Any]) -> str:
    facts = [*(gpu["name"] for gpu in environment.get("gpus") or []), environment.get("cpu")]
    for key, text in {"cores": "{:g} cores", "threads": "{:g} threads"}.items():
        if environment.get(key) is not None:
            facts.append(text.format(environment[key]))
    if torch := environment.get("versions", {}).get("torch"):
        facts.append(f"torch {torch}")
    return ", ".join(str(fact) for fact in [*facts, environment.get("date")] if fact)


def _plain(fact: Any) -> str:
    if isinstance(fact, int | float) and not isinstance(fact, bool):
        return format_value(fact, "")
    return str(fact)


def _found(comparisons: Sequence[Mapping[str, Any]]) -> str:
    return "measured" if all(c["measured"]["label"] == "measured" for c in comparisons) else "found"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _table(head: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head) if head else ""
    thead = f"<thead><tr>{cells}</tr></thead>" if head else ""
    body = "\n".join(
        f'<tr><th scope="row" style="text-align:left">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return f'<table class="evidence">{thead}<tbody>\n{body}\n</tbody></table>'


def _linked(escaped: str) -> str:
    return re.sub(r"https?://[^\s<,]+[^\s<,.;)]", r'<a href="\g<0>">\g<0></a>', escaped)
