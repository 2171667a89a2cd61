"""Numbers with their labels, citations with their version: what links like `evidence:weights_8b` and `cite:vllm/…` become.

A number keeps its text and gains a small button, C, M, S or P; the button shows a card with what the number rests on. The card is
HTML's own popover, so that a click opens it without any script; docs/assets/js/evidence.js adds hover and focus, and puts it
beside its button. Cards stand once a page, at its end, and are left out of the search.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from shared import hardware, models
from shared.budget import kv_bytes_per_token
from shared.citations import Citation, CitationError
from shared.comparison import collect
from shared.course import Course
from shared.evidence import Evidence, EvidenceError, computed, published
from shared.rendering import MIME, SPOKEN, explain, title, value, verdict
from shared.results import RESULTS, load

ROOT = Path(__file__).resolve().parents[2]
Warn = Callable[[str], None]
Entry = Mapping[str, Any]

LINK = re.compile(r'<a href="(?P<scheme>evidence|cite):(?P<target>[^"]*)"[^>]*>(?P<text>.*?)</a>', re.DOTALL)
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "transformers": "Transformers"}


def evidence_of(notebook: Path) -> dict[str, Entry]:
    """Every entry that a notebook's outputs show, by name, as Evidence.to_dict() gives it. Raises EvidenceError for a bad one."""
    found: dict[str, Evidence] = {}
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if document := output.get("data", {}).get(MIME):
                try:
                    collect(document, found)
                except (EvidenceError, KeyError, TypeError) as e:
                    raise EvidenceError(f"{notebook.name}, cell {cell.get('id')}: {e}") from e
    return {name: entry.to_dict() for name, entry in found.items()}


def on_html(body: str, page_uri: str, course: Course, warn: Warn) -> str:
    """Called for every page: see markers.py. Pages that show no notebook have citations at most."""
    module = next((m for m in course.modules if m.notebook.removesuffix(".ipynb") + ".md" == page_uri), None)
    if "evidence:" not in body and "cite:" not in body and "evidence-badge" not in body:
        return body
    try:
        entries = evidence_of(ROOT / module.notebook) if module else {}
    except EvidenceError as e:
        warn(str(e))
        entries = {}
    return with_badges(body, entries, lambda message: warn(f"{page_uri}: {message}"))


def with_badges(body: str, entries: Mapping[str, Entry], warn: Warn) -> str:
    """The HTML of a page with its evidence and citation links made plain, and the cards of all its badges appended.

    entries: what the page's notebook shows, see evidence_of. warn is told of a name that nothing shows and of a citation of
    nothing; the reader then sees the text without its badge.
    """

    def link(match: re.Match) -> str:
        target, text = html.unescape(match["target"]), match["text"]
        if match["scheme"] == "cite":
            return citation(target, text, warn)
        name = target.partition(":")[0]
        if name not in entries:
            warn(f"evidence:{name} names nothing that an output of this page shows")
            return text
        return badge(entries[name], text)

    body = LINK.sub(link, body)
    return body + cards(entry for entry in entries.values() if f'popovertarget="{card_id(entry)}"' in body)


def badge(entry: Entry, shown: str | None = None, *, scope: str = "") -> str:
    """A number and its button. shown: HTML of the number as its sentence writes it; None: as evidence writes it, with the label
    in full, as in a table. scope: sets apart entries of one name on one page."""
    label, in_full = entry["label"], shown is None
    shown = html.escape(value(entry)) if shown is None else shown
    plain = html.escape(html.unescape(re.sub(r"<[^>]*>", "", shown)))
    mark = label if in_full else label[0].upper()
    name = label if in_full else f"{mark}, {label}"  # what is read aloud begins with what is seen
    return (
        f'<span class="evidence-number" data-label="{label}">{shown}'
        f'<button type="button" class="evidence-badge{" is-word" if in_full else ""}" popovertarget="{card_id(entry, scope)}" '
        f'aria-label="{name}: what {plain} rests on">{mark}</button></span>'
    )


def card_id(entry: Entry, scope: str = "") -> str:
    return f"evidence-{scope}{entry['name']}"


def cards(entries: Iterable[Entry], scope: str = "") -> str:
    """The popovers of a page's badges; empty if there are none."""
    drawn = "".join(_card(entry, scope) for entry in entries)
    return f'\n<div class="evidence-cards" data-search-exclude>{drawn}</div>' if drawn else ""


def _card(entry: Entry, scope: str) -> str:
    # a whole recording is for the file that holds it
    context = {k: v for k, v in entry["context"].items() if k in SPOKEN or not isinstance(v, Mapping | list)}
    lines = "".join(f"<li>{_linked(html.escape(line))}</li>" for line in explain({**entry, "context": context}))
    return (
        f'<div popover id="{card_id(entry, scope)}" class="evidence-card" data-label="{entry["label"]}" role="note">'
        f'<p><strong class="evidence-label">{entry["label"]}</strong> {html.escape(title(entry))}: '
        f"<b>{html.escape(value(entry))}</b></p><ul>{lines}</ul></div>"
    )


def evidence_table(document: Mapping[str, Any]) -> str:
    """An evidence output (its MIME document) as the site draws it; its cards are appended by with_badges."""
    tables = []
    if entries := document["entries"]:
        tables.append(_table((), [[html.escape(title(e)), badge(e)] for e in entries]))
    if comparisons := document["comparisons"]:
        rows = [
            [html.escape(c["title"]), badge(c["predicted"]), badge(c["measured"]), value(c["ratio"]), verdict(c)]
            for c in comparisons
        ]
        all_measured = all(c["measured"]["label"] == "measured" for c in comparisons)
        tables.append(_table(("", "predicted", "measured" if all_measured else "found", "ratio", ""), rows))
    return "\n".join(tables)


def citation(target: str, text: str, warn: Warn) -> str:
    """`package/path#symbol` of another engine's code as a link to that version's page, else as text that names the version."""
    location, _, symbol = target.partition("#")
    package, _, path = location.partition("/")
    cited = Citation(package, path, symbol or None)
    try:
        url, version = cited.url, f"{NAMES.get(package, package)} {cited.version}"
    except CitationError as e:
        warn(f"cite:{target}: {e}")
        return text
    whole = html.escape(f"{path}::{symbol}, {version}" if symbol else f"{path}, {version}")
    shown = f'{text} <span class="cite-version">{html.escape(version)}</span>'
    if url is None:
        return f'<span class="cite" title="{whole}">{shown}</span>'
    return f'<a class="cite" href="{html.escape(url)}" title="{whole}">{shown}</a>'


def label_examples(page_uri: str, course: Course) -> str:
    """One number of each kind that this course has, with its badge, in Markdown."""
    model, gpu = models.load("llama-3.1-8b"), hardware.load("h100-sxm")
    shape = {"num_layers": model.num_layers, "num_kv_heads": model.num_kv_heads, "head_dim": model.head_dim}
    bandwidth = gpu.fact("bandwidth")
    kilobytes = kv_bytes_per_token(**shape) / 1e3
    entries = {
        "One token of Llama-3.1-8B takes {} of KV cache": computed(
            "kv_per_token", kilobytes, "kB", formula=kv_bytes_per_token, inputs=shape, title="KV cache of one token"
        ),
        "The engine decodes SmolLM2-135M, one request at a time, at {}": load(RESULTS / "peers.json")[
            "minillm-bf16.decode_tokens_per_s"
        ],
        "An H100's memory is read at {}": published(
            "h100_bandwidth",
            bandwidth.value / 1e12,
            "TB/s",
            source=bandwidth.source.title,
            date=bandwidth.source.date,
            setting="datasheet value",
            title="memory bandwidth, H100 SXM",
        ),
    }
    lines = [f"- {text.format(badge(e.to_dict(), html.escape(value(e.to_dict()))))}." for text, e in entries.items()]
    return "\n".join(lines) + "\n\n" + cards(e.to_dict() for e in entries.values()).strip()


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f'<th scope="col">{cell}</th>' if cell else "<td></td>" for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>" for first, *rest in rows
    )
    return f'<table class="evidence-table">{f"<thead><tr>{cells}</tr></thead>" if cells else ""}<tbody>\n{body}\n</tbody></table>'


def _linked(text: str) -> str:
    return re.sub(r"https?://[^\s<>\"]+[^\s<>\".,;)]", lambda m: f'<a href="{m[0]}">{m[0]}</a>', text)


MARKERS = {"label examples": label_examples}
OUTPUTS = {MIME: evidence_table}
