"""Flag values that need reading: name:value pairs, lists, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Sequence
from typing import Any

from minillm.errors import ConfigError

SLO_METRICS = ("ttft", "tpot", "e2el")


def parse_goodput(pairs: Sequence[str]) -> dict[str, float]:
    """["ttft:500", "tpot:50"], milliseconds, as {"ttft": 0.5, "tpot": 0.05}, seconds."""
    slos = {}
    for pair in pairs:
        name, _, value = pair.partition(":")
        limit = _number(value)
        if name not in SLO_METRICS or not 0 < limit < math.inf:
            raise ConfigError(f"--goodput {pair}: write METRIC:MILLISECONDS with a metric of {', '.join(SLO_METRICS)}")
        slos[name] = limit / 1e3
    return slos


def parse_metadata(pairs: Sequence[str], taken: Container[str] = ()) -> dict[str, str]:
    """["tp=1"] as {"tp": "1"}. taken: names that the result has already."""
    metadata = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ConfigError(f"--metadata {pair}: write NAME=VALUE")
        if name in taken:
            raise ConfigError(f"--metadata {pair}: the result has a field of that name; choose another")
        metadata[name] = value
    return metadata


def share_out(extra: Sequence[str], goodput: list[str], metadata: list[str]) -> None:
    """Give words that follow `--goodput ttft:500` or `--metadata a=1` to the flag they belong to, as vLLM reads them."""
    for word in extra:
        if metadata and "=" in word:
            metadata.append(word)
        elif goodput and ":" in word:
            goodput.append(word)
        else:
            raise ConfigError(f"unexpected argument {word!r}; `minillm bench serve --help` lists the flags")


def parse_percentiles(text: str) -> tuple[float, ...]:
    values = tuple(_number(part) for part in text.split(","))
    if not all(0 <= v <= 100 for v in values):
        raise ConfigError(f"--metric-percentiles {text}: write numbers from 0 to 100 with commas between, such as 50,95,99")
    return values


def parse_metrics(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The chosen metrics, in the order of `known`."""
    asked = text.split(",")
    if not set(asked) <= set(known):
        raise ConfigError(f"--percentile-metrics {text}: write some of {','.join(known)}, with commas between")
    return tuple(name for name in known if name in asked)


def parse_extra_body(text: str | None) -> dict[str, Any]:
    try:
        body = json.loads(text or "{}")
    except ValueError as e:
        raise ConfigError(f"--extra-body: not JSON ({e})") from e
    if not isinstance(body, dict):
        raise ConfigError("--extra-body: write a JSON object, such as '{\"top_k\": 20}'")
    if reserved := {"stream", "stream_options", "n"} & body.keys():
        raise ConfigError(
            f"--extra-body: {', '.join(sorted(reserved))} cannot be set: one streamed answer with its usage is what is measured"
        )
    return body


def check_load(
    request_rate: float, burstiness: float, ramp_up_strategy: str | None, start_rps: float | None, end_rps: float | None
) -> None:
    """Raises ConfigError for rates at which nothing, or not what was asked, could be sent."""
    if math.isnan(request_rate) or request_rate <= 0:
        raise ConfigError(f"--request-rate {request_rate:g}: must be above 0; inf sends everything at once")
    if not 0 < burstiness < math.inf:
        raise ConfigError(f"--burstiness {burstiness:g}: must be above 0 and finite; 1 is Poisson")
    if len({ramp_up_strategy is None, start_rps is None, end_rps is None}) > 1:
        raise ConfigError("--ramp-up-strategy, --ramp-up-start-rps and --ramp-up-end-rps go together; give all three or none")
    if ramp_up_strategy is None:
        return
    if not 0 < start_rps <= end_rps < math.inf:
        raise ConfigError(
            f"--ramp-up-start-rps {start_rps:g} --ramp-up-end-rps {end_rps:g}: both must be above 0 and finite, and the end "
            "no lower than the start"
        )
    if request_rate != math.inf:
        raise ConfigError("--request-rate and --ramp-up-strategy exclude each other; leave one out")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # fails every comparison, and so the caller's check
