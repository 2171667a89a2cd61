"""`minillm bench serve | throughput | latency`. Flags are vLLM's where it has one; what is not listed is refused.

Numpy, torch and the HTTP client are imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer

from minillm.bench.cli_offline import latency, throughput
from minillm.bench.options import (
    check_load,
    parse_extra_body,
    parse_goodput,
    parse_metadata,
    parse_metrics,
    parse_percentiles,
    share_out,
)
from minillm.errors import ConfigError

app = typer.Typer(help="Load and measure.", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(throughput)
app.command()(latency)


@app.callback()
def _root() -> None:
    """Measure a server, or the engine alone."""


class Backend(StrEnum):
    openai = "openai"
    openai_chat = "openai-chat"
    vllm = "vllm"


class Dataset(StrEnum):
    random = "random"
    sharegpt = "sharegpt"
    custom = "custom"


class RampUp(StrEnum):
    linear = "linear"
    exponential = "exponential"


def _load(help: str, **more):
    return typer.Option(help=help, rich_help_panel="What load", **more)


def _asked(help: str, *names: str, **more):
    return typer.Option(*names, help=help, rich_help_panel="What is asked", **more)


def _out(help: str, *names: str, **more):
    return typer.Option(*names, help=help, rich_help_panel="What comes out", **more)


@app.command()
def serve(
    extra: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    backend: Annotated[Backend, typer.Option(help="openai and vllm: text completions; openai-chat: chat.")] = Backend.openai,
    base_url: Annotated[str | None, typer.Option(help="Where the server is, instead of host and port.")] = None,
    host: Annotated[str, typer.Option(help="Where the server is.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Its port.", min=1, max=65535)] = 8000,
    endpoint: Annotated[str | None, typer.Option(help="Path of the API (default: the backend's)")] = None,
    model: Annotated[str | None, typer.Option(help="Name to ask for (default: the first that the server lists)")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Sent as a bearer token.", envvar="OPENAI_API_KEY", show_default=False)
    ] = None,
    ready_check_timeout_sec: Annotated[
        float, typer.Option(help="Wait so long for the server. 0: ask once, and send no request before the clock.", min=0)
    ] = 60.0,
    request_timeout_sec: Annotated[float, typer.Option(help="An answer that takes longer has failed.", min=0.001)] = 3600.0,
    request_rate: Annotated[
        float, _load("Requests a second. inf: all at once, or with --max-concurrency a closed loop.")
    ] = math.inf,
    ramp_up_strategy: Annotated[
        RampUp | None, _load("Instead of one rate: from start to end along the run, by equal steps or equal factors.")
    ] = None,
    ramp_up_start_rps: Annotated[float | None, _load("Requests a second at the start of the ramp.")] = None,
    ramp_up_end_rps: Annotated[float | None, _load("Requests a second at its end.")] = None,
    burstiness: Annotated[float, _load("1: Poisson arrivals; below, burstier; above, more even.")] = 1.0,
    max_concurrency: Annotated[int | None, _load("Most requests in flight.", min=1)] = None,
    num_warmups: Annotated[int, _load("Requests before the clock starts.", min=0)] = 0,
    num_prompts: Annotated[int, _asked("Requests to measure.", min=1)] = 100,
    dataset_name: Annotated[Dataset, _asked("random words; sharegpt, custom: a file.")] = Dataset.random,
    dataset_path: Annotated[
        str | None,
        _asked('For sharegpt: its JSON file. For custom: JSON lines such as {"prompt": "…", "output_tokens": 64}.'),
    ] = None,
    sharegpt_output_len: Annotated[int | None, _asked("Tokens of each answer, instead of the reply's.", min=1)] = None,
    input_len: Annotated[int | None, _asked("Instead of --random-input-len.", min=1)] = None,
    output_len: Annotated[int | None, _asked("Tokens of each answer, whatever the dataset.", min=1)] = None,
    random_input_len: Annotated[int, _asked("Tokens of a random prompt.", min=1)] = 256,
    random_output_len: Annotated[int, _asked("Tokens of its answer.", min=1)] = 64,
    random_range_ratio: Annotated[float, _asked("Lengths vary by this share, up and down.", min=0, max=0.999)] = 0.0,
    random_prefix_len: Annotated[int, _asked("Tokens in front that all share.", min=0)] = 0,
    tokenizer: Annotated[
        str | None, _asked("Model whose tokenizer sets prompt lengths (default: the server's, if it is on this machine)")
    ] = None,
    ignore_eos: Annotated[bool, _asked("Answers of full length; not every server can.", "--ignore-eos")] = False,
    temperature: Annotated[float, _asked("0: greedy.", min=0)] = 0.0,
    extra_body: Annotated[str | None, _asked("More request fields, as a JSON object.")] = None,
    seed: Annotated[int, _asked("Of prompts and arrivals.", min=0)] = 0,
    goodput: Annotated[
        list[str] | None, _out("Objectives in ms: ttft:500 tpot:50 e2el:5000. Counts the requests that keep all.")
    ] = None,
    percentile_metrics: Annotated[str, _out("Which latencies.")] = "ttft,tpot,itl,e2el",
    metric_percentiles: Annotated[str, _out("Which percentiles, such as 50,95,99.")] = "99",
    save_result: Annotated[bool, _out("Write the result as JSON.", "--save-result")] = False,
    save_detailed: Annotated[bool, _out("With every single request in it.", "--save-detailed")] = False,
    result_dir: Annotated[str | None, _out("Folder of the file.")] = None,
    result_filename: Annotated[str | None, _out("Name of the file (default: tells what was run)")] = None,
    metadata: Annotated[list[str] | None, _out("NAME=VALUE to keep with the result.")] = None,
    plot: Annotated[str | None, _out("Write a chart here (.svg, .png, .pdf).")] = None,
    disable_tqdm: Annotated[bool, _out("No progress bar.", "--disable-tqdm")] = False,
) -> None:
    """Load an OpenAI-compatible server and measure it.

    With --request-rate or a ramp, requests come when they are due whatever the server does (open loop), and latency counts
    from that moment. With --max-concurrency alone, that many users each wait for their answer before they ask again (closed
    loop).
    """
    check_load(request_rate, burstiness, ramp_up_strategy, ramp_up_start_rps, ramp_up_end_rps)
    if (dataset_name is Dataset.random) != (dataset_path is None):
        raise ConfigError("--dataset-name sharegpt or custom and --dataset-path FILE go together; give both or none")
    if sharegpt_output_len is not None and dataset_name is not Dataset.sharegpt:
        raise ConfigError("--sharegpt-output-len is for --dataset-name sharegpt; --output-len sets it for any")
    slos, notes = list(goodput or ()), list(metadata or ())
    share_out(extra or (), slos, notes)
    from minillm.bench import report
    from minillm.bench.plot import plot as draw
    from minillm.bench.plot import require_matplotlib
    from minillm.bench.serve import BenchError, ServeOptions, field_names, run

    if plot:
        require_matplotlib()
    options = ServeOptions(
        backend=backend.value,
        base_url=base_url or f"http://{host}:{port}",
        endpoint=endpoint,
        model=model,
        tokenizer=tokenizer,
        api_key=api_key,
        dataset_name=dataset_name.value,
        dataset_path=dataset_path,
        num_prompts=num_prompts,
        random_input_len=input_len or random_input_len,
        random_output_len=random_output_len,
        random_range_ratio=random_range_ratio,
        random_prefix_len=random_prefix_len,
        sharegpt_output_len=sharegpt_output_len,
        output_len=output_len,
        request_rate=request_rate,
        ramp_up_strategy=ramp_up_strategy and ramp_up_strategy.value,
        ramp_up_start_rps=ramp_up_start_rps,
        ramp_up_end_rps=ramp_up_end_rps,
        burstiness=burstiness,
        max_concurrency=max_concurrency,
        num_warmups=num_warmups,
        ignore_eos=ignore_eos,
        temperature=temperature,
        extra_body=parse_extra_body(extra_body),
        seed=seed,
        slos=parse_goodput(slos),
        percentile_metrics=parse_metrics(percentile_metrics, list(report.METRICS)),
        metric_percentiles=parse_percentiles(metric_percentiles),
        ready_check_timeout_sec=ready_check_timeout_sec,
        request_timeout_sec=request_timeout_sec,
        show_progress=not disable_tqdm,
    )
    extra_fields = parse_metadata(notes, taken=field_names(options))
    result, records = run(options)
    result |= extra_fields
    typer.echo(report.table(result))
    if save_result or save_detailed:
        whole = result | (report.details(records) if save_detailed else {})
        typer.echo(f"saved {report.save(whole, result_dir, result_filename)}", err=True)
    if plot:
        draw(plot, records, result)
        typer.echo(f"drawn {plot}", err=True)
    if not result["completed"]:
        raise BenchError("no request succeeded; the reasons are above")
