"""One picture of a run: who waited when, and how latencies are spread. Needs matplotlib, which comes with the learn extra."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from minillm.bench.load import Record
from minillm.errors import ConfigError


def require_matplotlib() -> type:
    """matplotlib's Figure, looked up at run time because it is an extra and no dependency. Raises ConfigError without it."""
    try:
        return import_module("matplotlib.figure").Figure
    except ImportError as e:
        raise ConfigError("--plot needs matplotlib, which is not installed; pip install -e '.[learn]' brings it") from e


def plot(path: str, records: Sequence[Record], result: dict[str, Any]) -> None:
    """Write the chart; the file's ending chooses the format (.svg, .png, .pdf). Raises ConfigError if it cannot be written."""
    figure = require_matplotlib()(figsize=(10, 4.5), layout="constrained")
    over_time, spread = figure.subplots(1, 2, width_ratios=(2, 1))
    done = [r for r in records if r.answer is not None]
    failed = [r for r in records if r.answer is None]
    times = [r.scheduled for r in done]
    for name, colour, values in (
        ("E2E latency", "#0072b2", [r.sojourn().e2el for r in done]),
        ("TTFT", "#d55e00", [r.sojourn().ttft for r in done]),
    ):
        over_time.plot(times, values, ".", color=colour, label=name, alpha=0.7)
        spread.hist(values, bins=40, color=colour, label=name, alpha=0.6)
    if failed:
        over_time.plot([r.scheduled for r in failed], [0.0] * len(failed), "x", color="black", label="failed")
    over_time.set(xlabel="scheduled arrival (s)", ylabel="latency from scheduled arrival (s)", ylim=(0, None))
    spread.set(xlabel="latency (s)", ylabel="requests")
    over_time.legend()
    figure.suptitle(
        f"{result['model_id']} (loop: {result['loop']}): {result['request_throughput']:.3g} req/s, "
        f"{result['output_throughput']:.4g} output tokens/s, {result['failed']} failed"
    )
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as e:  # ValueError: an ending matplotlib has no format for
        raise ConfigError(f"--plot {path}: cannot be written ({e})") from e
