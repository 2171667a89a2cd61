"""EngineConfig's fields as command-line options: one list for every command that runs a model.

An option's name, type and default are the field's own; only its help is written here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from minillm.config import DTYPES, KERNELS, LINEARS, LOAD_FORMATS, QUANTIZATIONS, EngineConfig
from minillm.parts import implementations

PANEL = "Model and engine"


def _choices(names: typing.Iterable[str | None]) -> str:
    return ", ".join(name for name in names if name)


HELP = {
    "model": "A short name, a Hugging Face id, a folder in its layout, or a .gguf file.",
    "dtype": f"Arithmetic and storage: {_choices(DTYPES)}. auto: bfloat16 where it is native.",
    "load_format": f"{_choices(LOAD_FORMATS)}. dummy: random weights, for trying the machinery.",
    "revision": "Branch, tag or commit of a Hugging Face model.",
    "max_model_len": "Tokens of prompt and answer together. Default: the model's own limit.",
    "max_num_seqs": "Requests running at once; more wait.",
    "max_num_batched_tokens": "Tokens computed in one step, shared by all running requests.",
    "attention": f"Attention backend: {_choices(('auto', *implementations('attention')))}. auto: with --kernels.",
    "kernels": f"Whose kernels compute: {_choices(KERNELS)}. auto: our Triton kernels on a GPU, else torch's.",
    "linear": f"Matrix products of unquantized weights: {_choices(LINEARS)}. torch: cuBLAS or oneDNN; triton: our kernels.",
    "kv": f"KV cache: {_choices(implementations('kv'))}.",
    "scheduler": f"{_choices(implementations('scheduler'))}.",
    "scheduling_policy": "fcfs, or priority: a request's lower priority number goes first.",
    "block_size": "Tokens a cache block.",
    "enable_prefix_caching": "Compute a prefix that several requests share only once.",
    "enable_chunked_prefill": "Let a long prompt be computed over several steps, beside others' decodes.",
    "long_prefill_token_threshold": "Longest chunk of one prompt in one step, in tokens; 0: only the budget limits it.",
    "watermark": "Share of the cache left free when a request is admitted beside others.",
    "kv_cache_memory_bytes": "Size of the KV cache in bytes. Default: measured.",
    "gpu_memory_utilization": "Share of a GPU's memory for weights, activations and cache together.",
    "quantization": f"Store weights in fewer bits: {_choices(QUANTIZATIONS)}. Default: as they are.",
    "quantization_group_size": "Weights that share a scale in int4: 32, 64 or 128.",
    "enforce_eager": "Never use compiled graphs.",
    "seed": "Start of the random draws of requests that bring no seed.",
    "threads": "CPU threads of torch. Default: this process's CPU quota.",
}


def log_to_stderr(name: str = "minillm") -> None:
    """Let this logger, and those below it, say what they do; of all others only warnings are shown."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger(name).setLevel(logging.INFO)


def engine_options(
    *, model_is_option: bool = False, without: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None
) -> Callable:
    """Decorates a command that takes `config: EngineConfig` (and options of its own): gives it an option for each field.

    model_is_option: --model NAME in place of the argument. without: fields that keep their default in this command.
    defaults: {field name: value} where this command's default is another than EngineConfig's.
    A value that cannot work raises ConfigError before the command runs.
    """
    fields = [f for f in dataclasses.fields(EngineConfig) if f.name not in without]
    types = typing.get_type_hints(EngineConfig)

    def parameter(field: dataclasses.Field) -> inspect.Parameter:
        text = HELP.get(field.name)
        if field.name == "model" and not model_is_option:
            info: Any = typer.Argument(help=text)
        else:
            info = typer.Option(help=text, rich_help_panel=PANEL)
        annotation = Annotated[types[field.name], info]
        default = (defaults or {}).get(field.name, field.default)
        return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def decorate(command: Callable) -> Callable:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "config"]

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            config = EngineConfig(**{field.name: values.pop(field.name) for field in fields})
            return command(config=config, **values)

        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        run.__signature__ = inspect.Signature([*map(parameter, fields[:1]), *own, *map(parameter, fields[1:])])
        return run

    return decorate
