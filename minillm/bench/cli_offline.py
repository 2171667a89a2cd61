"""The commands `bench throughput` and `bench latency`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated

import typer

from minillm.cli_mine import MineOption, read_mine
from minillm.cli_options import engine_options
from minillm.config import EngineConfig

OutputJson = Annotated[str | None, typer.Option(help="Write the result here, as JSON.")]
Seed = Annotated[int, typer.Option(help="Of the prompts and of the sampling.", min=0)]

# Prompts are random here, so nothing could be found again, and bookkeeping is not what is measured.
with_engine_options = engine_options(model_is_option=True, without=("seed",), defaults={"enable_prefix_caching": False})


@with_engine_options
def throughput(
    config: EngineConfig,
    num_prompts: Annotated[int, typer.Option(help="Requests, all there at the start.", min=1)] = 32,
    input_len: Annotated[int, typer.Option(help="Tokens of each prompt.", min=1)] = 128,
    output_len: Annotated[int, typer.Option(help="Tokens of each answer.", min=1)] = 128,
    random_range_ratio: Annotated[float, typer.Option(help="Lengths vary by this share, up and down.", min=0, max=0.999)] = 0.0,
    num_warmups: Annotated[int, typer.Option(help="Runs that are not counted.", min=0)] = 1,
    num_repeats: Annotated[int, typer.Option(help="Runs that are: their median and spread are shown.", min=1)] = 3,
    output_json: OutputJson = None,
    seed: Seed = 0,
    mine: MineOption = None,
) -> None:
    """Tokens a second of the engine alone, with many requests at once."""
    from minillm.bench import offline
    from minillm.llm import LLM

    llm = LLM(**asdict(replace(config, seed=seed)), mine=read_mine(mine))
    with _bar(num_warmups + num_repeats, "runs") as on_done:
        result = offline.throughput(
            llm, num_prompts, input_len, output_len, random_range_ratio, num_warmups, num_repeats, seed, on_done
        )
    low, high = result["output_tokens_per_second_spread"]
    typer.echo(
        f"Throughput: {result['requests_per_second']:.2f} requests/s, {result['tokens_per_second']:.2f} total tokens/s, "
        f"{result['output_tokens_per_second']:.2f} output tokens/s "
        f"(median of {num_repeats} runs; {low:.2f} to {high:.2f} output tokens/s)"
    )
    if output_json:
        offline.save(result, output_json)


@with_engine_options
def latency(
    config: EngineConfig,
    batch_size: Annotated[int, typer.Option(help="Requests in the batch.", min=1)] = 8,
    input_len: Annotated[int, typer.Option(help="Tokens of each prompt.", min=1)] = 32,
    output_len: Annotated[int, typer.Option(help="Tokens of each answer.", min=1)] = 128,
    num_iters_warmup: Annotated[int, typer.Option(help="Runs that are not counted.", min=0)] = 2,
    num_iters: Annotated[int, typer.Option(help="Runs that are.", min=1)] = 10,
    output_json: OutputJson = None,
    seed: Seed = 0,
    mine: MineOption = None,
) -> None:
    """Seconds that one batch takes from its prompts to its last token."""
    from minillm.bench import offline
    from minillm.llm import LLM

    whole_batch = {  # runs at once
        "max_num_seqs": max(batch_size, config.max_num_seqs),
        "max_num_batched_tokens": max(batch_size, config.max_num_batched_tokens),
    }
    llm = LLM(**asdict(replace(config, seed=seed, **whole_batch)), mine=read_mine(mine))
    with _bar(num_iters_warmup + num_iters, "batches") as on_done:
        result = offline.latency(llm, batch_size, input_len, output_len, num_iters_warmup, num_iters, seed, on_done)
    times = result["latencies"]
    typer.echo(f"Avg latency: {result['avg_latency']:.4f} s ({min(times):.4f} to {max(times):.4f} s, {num_iters} runs)")
    for q, value in result["percentiles"].items():
        typer.echo(f"{q}% percentile latency: {value:.4f} s")
    if output_json:
        offline.save(result, output_json)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr; gives what advances it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, refresh_per_second=2) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
