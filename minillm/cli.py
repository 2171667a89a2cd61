"""The `minillm` command. torch is imported inside the commands, so that --help answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from minillm import __version__
from minillm.bench.cli import app as bench_app
from minillm.cli_kernels import kernels
from minillm.cli_mine import MineOption, complete_mine, read_mine
from minillm.cli_options import HELP, engine_options, log_to_stderr
from minillm.config import EngineConfig
from minillm.errors import ConfigError, MinillmError, RequestError
from minillm.server.limits import MAX_BODY_BYTES, MAX_QUEUE_SIZE, SHUTDOWN_TIMEOUT_S

app = typer.Typer(
    help="A small inference engine for large language models: pull one, serve it, talk to it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench_app, name="bench")
app.command()(kernels)

Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token; higher is more varied.")]
TopP = Annotated[float, typer.Option(help="Draw from the likeliest tokens that together have this probability.")]
TopK = Annotated[int, typer.Option(help="Draw from this many of the likeliest tokens; 0: from all.")]
MinP = Annotated[float, typer.Option(help="Leave out tokens below this share of the likeliest one's probability.")]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal answers.")]
SAMPLING_SEED = ("seed",)  # where --seed is SamplingParams', it is not EngineConfig's


def main() -> None:
    """Entry point: an error meant for the user is one line on stderr and exit code 1, without a traceback."""
    try:
        app(args=complete_mine(sys.argv[1:]))
    except MinillmError as e:
        typer.echo(f"error: {e}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minillm {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr: call it with steps done, steps in all, and what happens now. Where there is no terminal, lines."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, now: str) -> None:
            progress.update(task, completed=done, total=total, description=now)
            if not console.is_terminal:
                console.print(f"[{done}/{total}] {now}", markup=False)

        yield report


@app.command()
def pull(
    source: Annotated[str, typer.Argument(help=HELP["model"])] = EngineConfig.model,
    revision: Annotated[str | None, typer.Option(help=HELP["revision"])] = None,
) -> None:
    """Fetch a model into the cache and say where it lies."""
    from minillm.model.checkpoints import pull as pull_checkpoint

    log_to_stderr()
    typer.echo(pull_checkpoint(source, revision=revision))


@app.command()
@engine_options()
def serve(
    config: EngineConfig,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0: the whole network; give it an --api-key then.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 picks a free one.", min=0, max=65535)] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="What clients call the model. Default: its own name.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="What clients must send as a bearer token. The variable keeps it out of the list of processes.",
            envvar="MINILLM_API_KEY",
        ),
    ] = None,
    max_queue_size: Annotated[
        int, typer.Option(help="Requests that may wait beside the --max-num-seqs that run; above it the answer is 429.", min=0)
    ] = MAX_QUEUE_SIZE,
    max_body_bytes: Annotated[int, typer.Option(help="Largest request; above it the answer is 413.", min=1)] = MAX_BODY_BYTES,
    shutdown_timeout: Annotated[
        float, typer.Option(help="Seconds that accepted requests get to finish after Ctrl-C or SIGTERM.", min=0)
    ] = SHUTDOWN_TIMEOUT_S,
    record_events: Annotated[
        Path | None, typer.Option(help="Write what every step does to this file, a JSON object a line (docs/events.md).")
    ] = None,
    mine: MineOption = None,
) -> None:
    """Serve a model: OpenAI's HTTP API, and a page to chat with at /."""
    if api_key is not None and not api_key.strip():
        raise ConfigError("the API key is empty; give one with --api-key or MINILLM_API_KEY, or leave both out")
    from minillm.mine.choose import choose
    from minillm.server.run import bind, url
    from minillm.server.run import serve as serve_until_stopped

    log_to_stderr()
    choice = choose(read_mine(mine), config)
    sock = bind(host, port)  # before the model: a port in use is known at once, not after a minute
    typer.echo(f"loading {config.model} …", err=True)
    from minillm.async_engine import AsyncEngine
    from minillm.engine import Engine
    from minillm.recording import record_events as recording
    from minillm.server.app import build_app

    engine = AsyncEngine(Engine.from_config(choice.config, choice.objects), max_queue_size)
    application = build_app(engine, served_model_name, max_body_bytes, api_key, own_parts=choice.names)
    address = url(sock)

    def announce() -> None:
        places = f"  chat    {address}/\n  API     {address}/v1\n  health  {address}/health\n  metrics {address}/metrics"
        typer.echo(f"ready\n{places}\nCtrl-C stops the server; twice, at once", err=True)

    with recording(engine.engine, record_events) if record_events else nullcontext():
        serve_until_stopped(application, sock, announce, shutdown_timeout)


@app.command()
@engine_options(without=SAMPLING_SEED)
def generate(
    config: EngineConfig,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="The prompt; - reads it from standard input.")],
    chat: Annotated[bool, typer.Option(help="Ask through the model's chat template, or continue the text as it stands.")] = True,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    mine: MineOption = None,
) -> None:
    """Answer one prompt on standard output, token by token."""
    from minillm.request import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise ConfigError("the prompt is empty; give one with --prompt, or on standard input with --prompt -")
    from minillm.llm import LLM
    from minillm.terminal import stream_answer

    llm = LLM(**asdict(config), mine=read_mine(mine))
    try:
        tokens = llm.tokenizer.encode_chat([{"role": "user", "content": text}]) if chat else llm.tokenizer.encode(text)
    except RequestError as e:
        raise ConfigError(f"{e}. --no-chat goes without the chat template") from e
    stream_answer(llm, tokens, params)


@app.command()
@engine_options(without=SAMPLING_SEED)
def chat(
    config: EngineConfig,
    system: Annotated[str | None, typer.Option(help="Instructions that open the conversation.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens. Default: until the context is full.")] = None,
    temperature: Temperature = 0.7,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    mine: MineOption = None,
) -> None:
    """Talk with a model in the terminal. Ctrl-C stops an answer, /reset forgets, /quit leaves."""
    from minillm.request import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    from minillm.llm import LLM
    from minillm.terminal import Conversation

    typer.echo(f"loading {config.model} …", err=True)
    Conversation(LLM(**asdict(config), mine=read_mine(mine)), params, system).run()


@app.command("compile")
@engine_options(without=("linear",))  # torch's products are what is compiled
def compile_model(
    config: EngineConfig,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            help="Compile decode steps of this size; may be repeated. Default: a few up to --max-num-seqs. Prompts always."
        ),
    ] = None,
) -> None:
    """Compile a model's steps ahead of time, so that serving it is fast; takes minutes, once."""
    from minillm.compiled.build import build
    from minillm.fused.choice import resolved

    log_to_stderr()
    with _progress() as report:
        folder = build(resolved(config), batch_size, report)
    typer.echo(folder)


@app.command()
def parts(
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, an object a part.")] = False,
    long: Annotated[bool, typer.Option("--long", help="With the code of each reference; wide.")] = False,
) -> None:
    """List the replaceable pieces of the engine: whose each is (yours once its lab passes), its lab, and what it does."""
    from minillm.mine.listing import as_lines, whose_parts

    rows = whose_parts()
    typer.echo(json.dumps([asdict(row) for row in rows], indent=2) if as_json else "\n".join(as_lines(rows, long)))


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="A name of shared/models.toml, such as llama-3.1-8b.")],
    gpu: Annotated[str, typer.Option(help="A name of shared/hardware.toml, such as rtx-4090.")],
    dtype: Annotated[str, typer.Option(help="Weights: fp32, bf16, fp16, fp8, int8 or int4.")] = "bf16",
    context: Annotated[int, typer.Option(help="Tokens of prompt and answer together, for each user.")] = 4096,
    users: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="KV cache: fp32, bf16, fp16 or fp8. Default: with --dtype.")] = None,
    gpu_memory_utilization: Annotated[float, typer.Option(help="Share of the card that the engine takes in all.")] = 0.92,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens of the largest step.")] = 2048,
    max_num_seqs: Annotated[int, typer.Option(help="Requests in the largest step.")] = 256,
    lora_adapters: Annotated[int, typer.Option(help="LoRA adapters held beside the weights.")] = 0,
    lora_rank: Annotated[int, typer.Option(help="Their rank.")] = 16,
    image_tokens: Annotated[int, typer.Option(help="Tokens of images, for each user; the encoder is not counted.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON object, in bytes.")] = False,
) -> None:
    """Does it fit on a card, and for how many? Arithmetic only. The exit code is 1 where it does not."""
    from rich.console import Console

    from minillm.plan import Wish, make_plan
    from minillm.plan_view import show

    options = (kv_cache_dtype, gpu_memory_utilization, max_num_batched_tokens, max_num_seqs)
    found = make_plan(Wish(model, gpu, dtype, context, users, *options, lora_adapters, lora_rank, image_tokens))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        show(found, Console())
    if not found.fits:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
