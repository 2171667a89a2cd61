"""What the turns of a comparison say: medians, ratios turn by turn, and the Evidence that is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from entries import Entry
from workload import Workload

from shared.evidence import Evidence, computed, measured

Turn = Mapping[str, Any]  # measure.measure()'s figures
Turns = Mapping[Entry, Sequence[Turn]]
SPEEDS = ("decode_tokens_per_s", "throughput_tokens_per_s")
TITLES = {
    "load_s": ("load", "s"),
    "decode_tokens_per_s": ("decode, one request", "tokens/s"),
    "throughput_tokens_per_s": ("output, 16 requests at once", "tokens/s"),
    "peak_memory_gb": ("peak memory", "GB"),
}


def order(entries: Sequence[Entry], round_number: int) -> list[Entry]:
    """Who runs when. Every second round runs backwards, so that a machine that slows down steadily favours nobody."""
    return list(entries) if round_number % 2 == 0 else list(reversed(entries))


def ratios(ours: Sequence[Turn], theirs: Sequence[Turn], figure: str) -> list[float]:
    """ours / theirs of one figure, for the two turns of each round: a slow minute of the machine falls on both."""
    return [mine[figure] / other[figure] for mine, other in zip(ours, theirs, strict=True)]


def rivals(turns: Turns) -> list[tuple[Entry, Entry]]:
    """Every entry of minillm with every entry of another engine."""
    ours = [entry for entry in turns if entry.engine == "minillm"]
    return [(mine, other) for mine in ours for other in turns if other.engine != "minillm"]


def agreement(turns: Turns) -> tuple[Entry, dict[Entry, int]]:
    """(reference, entry -> how many of the mixed requests start with the reference's token): whether all run the same model.

    Precisions differ and random prompts have near-ties, so a few may differ. The reference is minillm at bf16, else the first.
    """
    reference = next((e for e in turns if (e.engine, e.precision) == ("minillm", "bf16")), next(iter(turns)))
    expected = turns[reference][0]["first_tokens"]
    same = {e: sum(a == b for a, b in zip(t[0]["first_tokens"], expected, strict=True)) for e, t in turns.items()}
    return reference, same


def evidence(turns: Turns, model: str, one: Workload, many: Workload, environment: Mapping[str, Any]) -> list[Evidence]:
    """Four measured figures an entry, and the ratios of `rivals`."""
    entries = []
    for entry, samples in turns.items():
        for figure, (title, unit) in TITLES.items():
            work = {"load_s": None, "decode_tokens_per_s": one}.get(figure, many)
            context = {
                "checkpoint": model,
                "dtype": entry.precision,
                "input_tokens": work and work.num_input_tokens,
                "output_tokens": work and work.num_output_tokens,
                "concurrency": work and len(work.prompts),
                "title": f"{entry}: {title}",
                "version": samples[0]["version"],
            }
            values = [turn[figure] for turn in samples]
            entries.append(measured(f"{entry.slug}.{figure}", values, unit, environment=environment, **context))
    for mine, other in rivals(turns):
        for figure in SPEEDS:
            values = ratios(turns[mine], turns[other], figure)
            entries.append(
                computed(
                    f"{mine.slug}_over_{other.slug}.{figure}",
                    median(values),
                    "×",
                    formula="median over rounds of the ratio of the two turns of a round",
                    inputs={str(e): [turn[figure] for turn in turns[e]] for e in (mine, other)},
                    title=f"{mine} / {other}: {TITLES[figure][0]}",
                    min=min(values),
                    max=max(values),
                    repeats=len(values),
                )
            )
    return entries


def tables(turns: Turns) -> str:
    """Two Markdown tables: the figures of each entry, and minillm's ratios to every other engine."""
    reference, same = agreement(turns)
    requests = len(turns[reference][0]["first_tokens"])
    lines = [
        f"| entry | version | decode, tokens/s | 16 requests, tokens/s | load, s | peak, GB | first tokens as {reference} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for entry, samples in turns.items():
        cells = [spread([turn[figure] for turn in samples]) for figure in (*SPEEDS, "load_s", "peak_memory_gb")]
        lines.append(f"| {entry} | {samples[0]['version']} | {' | '.join(cells)} | {same[entry]} of {requests} |")
    if pairs := rivals(turns):
        lines += ["", "| ratio | decode | 16 requests |", "| --- | ---: | ---: |"]
        for mine, other in pairs:
            cells = [spread(ratios(turns[mine], turns[other], figure), "×") for figure in SPEEDS]
            lines.append(f"| {mine} / {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], unit: str = "") -> str:
    """`median (min – max)`, three significant digits."""
    middle, low, high = (_short(v) for v in (median(values), min(values), max(values)))
    return f"{middle}{unit} ({low} – {high})" if len(values) > 1 else f"{middle}{unit}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
