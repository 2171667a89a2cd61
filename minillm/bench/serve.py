"""`minillm bench serve`: from options to a result."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from minillm.bench.client import ENDPOINTS, ApiClient, BenchError
from minillm.bench.datasets import Sample, custom_samples, random_samples
from minillm.bench.load import LoopLag, Record, closed_loop, open_loop
from minillm.bench.metrics import poisson_arrivals, ramp_up
from minillm.bench.report import METRICS, details, rate_name, results
from minillm.bench.sharegpt import ShareGPT
from minillm.bench.stream import BadAnswer
from minillm.errors import ConfigError


@dataclass(frozen=True)
class ServeOptions:
    """Each field is a flag of the same name; names and meanings are vLLM's where vLLM has one."""

    backend: str = "openai"
    base_url: str = "http://127.0.0.1:8000"
    endpoint: str | None = None  # None: the backend's own
    model: str | None = None  # None: the first one the server lists
    tokenizer: str | None = None
    api_key: str | None = None
    dataset_name: str = "random"
    dataset_path: str | None = None
    num_prompts: int = 100
    random_input_len: int = 256
    random_output_len: int = 64
    random_range_ratio: float = 0.0
    random_prefix_len: int = 0
    sharegpt_output_len: int | None = None
    output_len: int | None = None
    request_rate: float = math.inf  # requests a second
    ramp_up_strategy: str | None = None  # linear or exponential: the rate changes from start to end, and request_rate is inf
    ramp_up_start_rps: float | None = None
    ramp_up_end_rps: float | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    num_warmups: int = 0
    ignore_eos: bool = False
    temperature: float | None = 0.0
    extra_body: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    slos: dict[str, float] = field(default_factory=dict)  # seconds
    percentile_metrics: tuple[str, ...] = tuple(METRICS)
    metric_percentiles: tuple[float, ...] = (99.0,)
    ready_check_timeout_sec: float = 60.0
    request_timeout_sec: float = 3600.0
    show_progress: bool = True

    @property
    def is_closed(self) -> bool:
        """No rate but a concurrency: users who wait for their answer before they ask again."""
        return self.rates is None and self.max_concurrency is not None

    @property
    def rates(self) -> float | np.ndarray | None:
        """Requests a second: one rate, or under a ramp one for each request; None: all at once."""
        if self.ramp_up_strategy is not None:
            return ramp_up(self.num_prompts, self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        return None if math.isinf(self.request_rate) else self.request_rate

    @property
    def loop(self) -> str:
        if self.is_closed:
            return "closed"
        return "open" if self.max_concurrency is None else "open, concurrency capped"


def run(options: ServeOptions) -> tuple[dict[str, Any], list[Record]]:
    """The result (vLLM's fields) and its records. Raises BenchError if the server cannot be reached or does not answer."""
    return asyncio.run(run_async(options))


async def run_async(options: ServeOptions) -> tuple[dict[str, Any], list[Record]]:
    async with ApiClient(
        base_url=options.base_url,
        endpoint=options.endpoint or ENDPOINTS[options.backend],
        backend=options.backend,
        model=options.model,
        api_key=options.api_key,
        ignore_eos=options.ignore_eos,
        temperature=options.temperature,
        extra_body=options.extra_body,
        timeout_s=options.request_timeout_sec,
    ) as client:
        await client.wait_until_ready(options.ready_check_timeout_sec)
        tokenizer_id, tokenizer = open_tokenizer(options.tokenizer, client.model)
        load, warmups, arrivals = workload(options, tokenizer)
        bodies = [client.body(sample) for sample in load]
        await _warm_up(client, warmups, options)
        records, duration, lag = await _measure(client, bodies, arrivals, options)
    measured = results(records, duration, options.slos, options.percentile_metrics, options.metric_percentiles)
    return _head(options, client.model, tokenizer_id) | measured | lag, records


def _head(options: ServeOptions, model: str | None, tokenizer_id: str | None) -> dict[str, Any]:
    ramp = {name: getattr(options, name) for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")}
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": options.backend,
        "model_id": model,
        "tokenizer_id": tokenizer_id,
        "num_prompts": options.num_prompts,
        "request_rate": rate_name(options.request_rate),
        **(ramp if options.ramp_up_strategy is not None else {}),
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "loop": options.loop,
        "seed": options.seed,
    }


def field_names(options: ServeOptions) -> set[str]:
    """The fields that a result of these options will have, those of single requests included."""
    measured = results([], 1.0, options.slos, options.percentile_metrics, options.metric_percentiles)
    return {*_head(options, None, None), *measured, *LoopLag.FIELDS, *details([])}


def workload(options: ServeOptions, tokenizer) -> tuple[list[Sample], list[Sample], np.ndarray]:
    """(measured samples, warm-up samples, arrival times); each comes from a generator of its own, keyed by the seed, so
    that another rate asks the same prompts and another number of warm-ups changes nothing measured."""
    prompts, warmups, arrivals = (np.random.default_rng([options.seed, i]) for i in range(3))
    times = np.zeros(options.num_prompts)
    if options.rates is not None:
        times = poisson_arrivals(options.num_prompts, options.rates, arrivals, options.burstiness)
    num_warmups = max(1, options.num_warmups)  # one at least serves as the ready check
    sample = _sampler(options, tokenizer)
    return sample(options.num_prompts, prompts), sample(num_warmups, warmups), times


def _sampler(options: ServeOptions, tokenizer) -> Callable[[int, np.random.Generator], list[Sample]]:
    if options.dataset_name == "sharegpt":
        if tokenizer is None:
            raise ConfigError(
                "--dataset-name sharegpt counts tokens, and this server's tokenizer is not on this machine; name one with "
                "--tokenizer"
            )
        given = options.output_len or options.sharegpt_output_len
        return ShareGPT(options.dataset_path, tokenizer, given).sample
    if options.dataset_name == "custom":
        return lambda n, rng: custom_samples(options.dataset_path, n, options.output_len, rng)
    output_len = options.output_len or options.random_output_len
    ratio, prefix_len = options.random_range_ratio, options.random_prefix_len
    return lambda n, rng: random_samples(n, options.random_input_len, output_len, rng, ratio, prefix_len, tokenizer)


async def _warm_up(client: ApiClient, samples: list[Sample], options: ServeOptions) -> None:
    """Before the clock starts: a server's first requests pay for what later ones find ready. One is sent always (unless the
    ready check is off), so that a request the server refuses is known before a thousand of them are."""
    if not options.num_warmups and not options.ready_check_timeout_sec:
        return
    first, *rest = [client.body(sample) for sample in samples]
    try:
        (await client.send(first)).answer()
    except BadAnswer as e:
        raise BenchError(f"the first request to {client.base_url}{client.endpoint} failed: {e}") from e
    if rest:
        await closed_loop(client.send, rest, options.max_concurrency or len(rest))


async def _measure(
    client: ApiClient, bodies: list[bytes], arrivals: np.ndarray, options: ServeOptions
) -> tuple[list[Record], float, dict[str, float]]:
    with _progress(options.show_progress) as progress:
        bar = progress.add_task(options.loop, total=len(bodies))

        def on_done() -> None:
            progress.advance(bar)

        async with LoopLag() as lag:
            began = time.perf_counter()
            if options.is_closed:
                records = await closed_loop(client.send, bodies, options.max_concurrency, on_done)
            else:
                records = await open_loop(client.send, bodies, arrivals.tolist(), options.max_concurrency, on_done)
            duration = time.perf_counter() - began
    return records, duration, lag.report()


def _progress(show: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # few refreshes: the bar is drawn by a thread that shares this process with the clock
    return Progress(*columns, console=Console(stderr=True), disable=not show, refresh_per_second=2, transient=True)


def open_tokenizer(asked: str | None, model: str | None) -> tuple[str | None, Any]:
    """(its name, a Tokenizer) to give random prompts their length: the one asked for, else the model's if it is local, else
    (None, None). Raises CheckpointError if the one asked for cannot be had."""
    from minillm.model.checkpoints import cache_home, pull
    from minillm.text.tokenizer import Tokenizer

    if asked is not None:
        return asked, Tokenizer.from_folder(pull(asked))
    for folder in (Path(model), cache_home() / "checkpoints" / model):
        if (folder / "tokenizer.json").is_file():
            return model, Tokenizer.from_folder(folder)
    return None, None
