"""The `minillm` command. torch is imported inside the commands, so that --help answers at once."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from minillm import __version__
from minillm.config import DTYPES, LOAD_FORMATS, EngineConfig
from minillm.errors import ConfigError, MinillmError, RequestError

app = typer.Typer(
    help="A small inference engine for large language models: pull one, serve it, talk to it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Model = Annotated[str, typer.Argument(help="A short name, a Hugging Face id, a folder in its layout, or a .gguf file.")]
Dtype = Annotated[str, typer.Option(help=f"Arithmetic and storage: {', '.join(DTYPES)}. auto: bfloat16 where it is native.")]
LoadFormat = Annotated[str, typer.Option(help=f"{', '.join(LOAD_FORMATS)}. dummy: random weights, for trying the machinery.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hugging Face model.")]
MaxModelLen = Annotated[int | None, typer.Option(help="Tokens of prompt and answer together.  [default: the model's own limit]")]
MaxNumSeqs = Annotated[int, typer.Option(help="Requests running at once; more wait.")]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Tokens computed in one step, shared by all running requests.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads of torch.  [default: this process's CPU quota]")]
Attention = Annotated[str, typer.Option(help="Attention backend.")]
EngineSeed = Annotated[int, typer.Option(help="Start of the random draws of requests that bring no seed.")]
Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token; higher is more varied.")]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal answers.")]

DEFAULTS = EngineConfig()


def main() -> None:
    """Entry point: an error meant for the user is one line on stderr and exit code 1, without a traceback."""
    try:
        app()
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


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("minillm").setLevel(logging.INFO)


@app.command()
def pull(source: Model = DEFAULTS.model, revision: Revision = None) -> None:
    """Fetch a model into the cache and say where it lies."""
    from minillm.model.checkpoints import pull as pull_checkpoint

    _log_to_stderr()
    typer.echo(pull_checkpoint(source, revision=revision))


@app.command()
def serve(
    model: Model = DEFAULTS.model,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0: the whole network; there is no password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 picks a free one.", min=0, max=65535)] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="What clients call the model.  [default: its own name]")] = None,
    dtype: Dtype = DEFAULTS.dtype,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = DEFAULTS.max_num_seqs,
    max_num_batched_tokens: MaxNumBatchedTokens = DEFAULTS.max_num_batched_tokens,
    attention: Attention = DEFAULTS.attention,
    load_format: LoadFormat = DEFAULTS.load_format,
    revision: Revision = None,
    threads: Threads = None,
    seed: EngineSeed = DEFAULTS.seed,
) -> None:
    """Serve a model: OpenAI's HTTP API, and a page to chat with at /."""
    config = EngineConfig(
        model=model,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        attention=attention,
        load_format=load_format,
        revision=revision,
        threads=threads,
        seed=seed,
    )
    from minillm.server.run import bind, url
    from minillm.server.run import serve as serve_until_stopped

    _log_to_stderr()
    sock = bind(host, port)  # before the model: a port in use is known at once, not after a minute
    typer.echo(f"loading {model} …", err=True)
    from minillm.async_engine import AsyncEngine
    from minillm.engine import Engine
    from minillm.server.app import build_app

    application = build_app(AsyncEngine(Engine.from_config(config)), served_model_name)
    address = url(sock)

    def announce() -> None:
        places = f"  chat   {address}/\n  API    {address}/v1\n  health {address}/health"
        typer.echo(f"ready\n{places}\nCtrl-C stops the server; twice, at once", err=True)

    serve_until_stopped(application, sock, announce)


@app.command()
def generate(
    model: Model = DEFAULTS.model,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="The prompt; - reads it from standard input.")] = ...,
    chat: Annotated[bool, typer.Option(help="Ask through the model's chat template, or continue the text as it stands.")] = True,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256,
    temperature: Temperature = 1.0,
    seed: Seed = None,
    dtype: Dtype = DEFAULTS.dtype,
    max_model_len: MaxModelLen = None,
    attention: Attention = DEFAULTS.attention,
    load_format: LoadFormat = DEFAULTS.load_format,
    revision: Revision = None,
    threads: Threads = None,
) -> None:
    """Answer one prompt on standard output, token by token."""
    from minillm.request import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise ConfigError("the prompt is empty; give one with --prompt, or on standard input with --prompt -")
    from minillm.llm import LLM
    from minillm.terminal import stream_answer

    llm = LLM(
        model,
        dtype=dtype,
        max_model_len=max_model_len,
        attention=attention,
        load_format=load_format,
        revision=revision,
        threads=threads,
    )
    try:
        tokens = llm.tokenizer.encode_chat([{"role": "user", "content": text}]) if chat else llm.tokenizer.encode(text)
    except RequestError as e:
        raise ConfigError(f"{e}. --no-chat goes without the chat template") from e
    stream_answer(llm, tokens, params)


@app.command()
def chat(
    model: Model = DEFAULTS.model,
    system: Annotated[str | None, typer.Option(help="Instructions that open the conversation.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Longest answer, in tokens.  [default: until the context is full]")
    ] = None,
    temperature: Temperature = 0.7,
    seed: Seed = None,
    dtype: Dtype = DEFAULTS.dtype,
    max_model_len: MaxModelLen = None,
    attention: Attention = DEFAULTS.attention,
    load_format: LoadFormat = DEFAULTS.load_format,
    revision: Revision = None,
    threads: Threads = None,
) -> None:
    """Talk with a model in the terminal. Ctrl-C stops an answer, /reset forgets, /quit leaves."""
    from minillm.request import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    from minillm.llm import LLM
    from minillm.terminal import Conversation

    typer.echo(f"loading {model} …", err=True)
    llm = LLM(
        model,
        dtype=dtype,
        max_model_len=max_model_len,
        attention=attention,
        load_format=load_format,
        revision=revision,
        threads=threads,
    )
    Conversation(llm, params, system).run()


if __name__ == "__main__":
    main()
