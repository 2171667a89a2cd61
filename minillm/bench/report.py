"""From records to vLLM's result fields (one flat JSON object), and the table that is printed."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from minillm.bench.load import Record, client_warning
from minillm.bench.metrics import Latencies, goodput, peak_concurrency, peak_rate, summary
from minillm.errors import ConfigError

METRICS = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
WIDTH = 58


def results(
    records: Sequence[Record],
    duration: float,
    slos: dict[str, float] | None = None,
    percentile_metrics: Iterable[str] = tuple(METRICS),
    percentiles: Iterable[float] = (99,),
) -> dict[str, Any]:
    """Everything measured. duration: seconds from the run's begin to its last answer; slos: seconds, see metrics.goodput.

    TTFT and E2E latency count from the scheduled arrival; `service_…` ones from the sending, `client_queue` is what lies
    between. Failed requests are in `failed` and `failures` (reason: how many) and in nothing else.
    """
    done = [r for r in records if r.answer is not None]
    sojourns, services = [r.sojourn() for r in done], [r.service() for r in done]
    total_in, total_out = sum(r.answer.prompt_tokens for r in done), sum(r.answer.output_tokens for r in done)
    result: dict[str, Any] = {
        "duration": duration,
        "completed": len(done),
        "failed": len(records) - len(done),
        "failures": dict(Counter(r.failure for r in records if r.answer is None)),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": len(done) / duration,
        "request_goodput": goodput(sojourns, slos, duration) if slos else None,
        "output_throughput": total_out / duration,
        "total_token_throughput": (total_in + total_out) / duration,
        "max_output_tokens_per_s": peak_rate(_token_times(done, services), 0.0),
        "max_concurrent_requests": peak_concurrency([r.sent for r in done], [r.ended for r in done]),
        "num_without_tpot": sum(s.tpot is None for s in sojourns),
    }
    values = {
        "ttft": [s.ttft for s in sojourns],
        "tpot": [s.tpot for s in sojourns if s.tpot is not None],
        "itl": [gap for s in sojourns for gap in s.itl],
        "e2el": [s.e2el for s in sojourns],
    }
    extra = {
        "service_ttft": [s.ttft for s in services],
        "service_e2el": [s.e2el for s in services],
        "client_queue": [r.sent - r.scheduled for r in done],
    }
    for name, seconds in ({m: values[m] for m in percentile_metrics} | extra).items():
        for statistic, value in summary(seconds, percentiles).items():
            result[f"{statistic}_{name}_ms"] = None if value is None else value * 1e3
    return result


def _token_times(done: Sequence[Record], services: Sequence[Latencies]) -> list[float]:
    """When each output token came, seconds since the run began."""
    times = []
    for record, latencies in zip(done, services, strict=True):
        at = record.sent + latencies.ttft
        times.append(at)
        for gap in latencies.itl:
            at += gap
            times.append(at)
    return times


def details(records: Sequence[Record]) -> dict[str, list]:
    """One entry a request in every list, in the order they were due; None where a request failed. Seconds."""
    latencies = [r.sojourn() if r.answer else None for r in records]
    return {
        "input_lens": [r.answer.prompt_tokens if r.answer else None for r in records],
        "output_lens": [r.answer.output_tokens if r.answer else None for r in records],
        "scheduled_times": [r.scheduled for r in records],
        "start_times": [r.sent for r in records],
        "ttfts": [s.ttft if s else None for s in latencies],
        "e2els": [s.e2el if s else None for s in latencies],
        "itls": [list(s.itl) if s else None for s in latencies],
        "generated_texts": [r.answer.text if r.answer else None for r in records],
        "errors": [r.failure or "" for r in records],
    }


def table(result: dict[str, Any]) -> str:
    """The result as text, in vLLM's layout."""
    rows = [f"{' Serving Benchmark Result ':=^{WIDTH}}"]
    rows += [
        _row("Successful requests:", result["completed"]),
        _row("Failed requests:", result["failed"]),
        _row("Loop:", result["loop"]),
        *([_row("Maximum request concurrency:", result["max_concurrency"])] if result["max_concurrency"] else []),
        *([_row("Request rate configured (RPS):", result["request_rate"])] if result["request_rate"] != "inf" else []),
        *([_row("Request rate ramp-up (RPS):", _ramp(result))] if "ramp_up_strategy" in result else []),
        _row("Benchmark duration (s):", result["duration"]),
        _row("Total input tokens:", result["total_input_tokens"]),
        _row("Total generated tokens:", result["total_output_tokens"]),
        _row("Request throughput (req/s):", result["request_throughput"]),
        *([_row("Request goodput (req/s):", result["request_goodput"])] if result["request_goodput"] is not None else []),
        _row("Output token throughput (tok/s):", result["output_throughput"]),
        _row("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"]),
        _row("Peak concurrent requests:", result["max_concurrent_requests"]),
        _row("Total token throughput (tok/s):", result["total_token_throughput"]),
    ]
    for metric, title in METRICS.items():
        if f"mean_{metric}_ms" in result:
            rows += [f"{title:-^{WIDTH}}", *_statistics(result, metric, metric.upper())]
    if result["loop"] != "closed":
        rows += [f"{'Of it: queueing in this client':-^{WIDTH}}", *_statistics(result, "client_queue", "queue")]
    rows.append("=" * WIDTH)
    return "\n".join([*rows, *_remarks(result)])


def _statistics(result: dict[str, Any], metric: str, label: str) -> list[str]:
    names = [name.removesuffix(f"_{metric}_ms") for name in result if re.fullmatch(rf"(mean|median|p[\d.]+)_{metric}_ms", name)]
    return [_row(f"{name.capitalize()} {label} (ms):", result[f"{name}_{metric}_ms"]) for name in names]


def _ramp(result: dict[str, Any]) -> str:
    return f"{result['ramp_up_start_rps']:g} to {result['ramp_up_end_rps']:g}, {result['ramp_up_strategy']}"


def _row(label: str, value: Any) -> str:
    text = "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<42}{text}"


def _remarks(result: dict[str, Any]) -> list[str]:
    remarks = [f"failed: {count} × {reason}" for reason, count in result["failures"].items()]
    if result["num_without_tpot"]:
        remarks.append(f"{result['num_without_tpot']} answers of one token have no TPOT and are not in it")
    if warning := client_warning(result):
        remarks.append(f"warning: {warning}")
    return remarks


def save(result: dict[str, Any], folder: str | None, filename: str | None) -> Path:
    """Write one result as JSON; the default name tells backend, load, model and date. Raises ConfigError."""
    path = Path(folder or ".") / (filename or _default_name(result))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"cannot write {path}: {e.strerror or e}; choose another place with --result-dir") from e
    return path


def _default_name(result: dict[str, Any]) -> str:
    concurrency = f"-concurrency{result['max_concurrency']}" if result["max_concurrency"] else ""
    model = Path(str(result["model_id"])).name
    rate = f"{result['request_rate']}qps"
    if "ramp_up_strategy" in result:
        rate = f"ramp-up-{result['ramp_up_strategy']}-{result['ramp_up_start_rps']:g}qps-{result['ramp_up_end_rps']:g}qps"
    return f"{result['backend']}-{rate}{concurrency}-{model}-{result['date']}.json"


def rate_name(rate: float) -> float | str:
    """JSON has no infinity: "inf", as vLLM writes it."""
    return "inf" if math.isinf(rate) else rate
