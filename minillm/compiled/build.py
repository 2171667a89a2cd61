"""Compile a model's steps ahead of time: `minillm compile`.

For each batch size (bucket) of decodes two AOTInductor packages: `decode.pt2`, all layers, and `head.pt2`, the output matrix.
They are native code with the weights inside, in the order in which this code reads them. For prompts, `before.pt2` and
`after.pt2`, see minillm.compiled.prefill: code without weights. Building takes minutes, loading a second.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch._inductor.exc import InductorError
from torch._inductor.utils import fresh_cache
from torch.export import Dim, export

from minillm.compiled.dispatch import default_buckets
from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.compiled.key import graphs_folder
from minillm.compiled.prefill import HALVES, LayerHalf, example_inputs, plain_parameters
from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.kv.storage import allocate_layers
from minillm.model.checkpoints.cache import cached_folder, read_manifest
from minillm.model.decoder import Decoder
from minillm.model.linear import Linear, Unquantized

Report = Callable[[int, int, str], None]  # packages done, packages in all, what happens now

# A batch of fewer rows is bound by reading the weights: inductor's own kernels read them faster than the library's, and small
# integers are less to read. From here on arithmetic counts. The library's bfloat16 is the fastest there is, and the processor
# multiplies it faster than it converts small integers: such graphs hold the dequantized weights.
MANY_ROWS = 8

SECONDS_A_LAYER, SECONDS_A_BUCKET, SECONDS_FOR_PROMPTS = 4.0, 25.0, 60.0  # on two cores of a 2023 server, for the estimate

OPTIONS = {
    "freezing": True,  # weights are constants, reordered for the kernels that read them
    "assert_indirect_indexing": False,  # block ids come from our own tables
    "size_asserts": False,
    "cpp.enable_floating_point_contract_flag": "fast",  # fused multiply-add
}
INDUCTORS_KERNELS = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}


def build(config: EngineConfig, buckets: Sequence[int] | None = None, report: Report = lambda *_: None) -> Path:
    """Compile what is not there yet and return the folder of all. buckets: batch sizes of decodes; None: the
    default ones up to config.max_num_seqs. Prompts are compiled always.

    Raises ConfigError for what cannot be compiled here, CheckpointError for a full disk.
    """
    from minillm.loading import load_model  # which imports this package to pick up what is built here

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise ConfigError("compiling needs a C++ compiler and there is none; install g++ (Debian, Ubuntu: apt install g++)")
    if config.kv != "paged":
        raise ConfigError(f"compiled graphs read a paged cache; --kv {config.kv} always runs eager")
    if config.attention not in ("auto", "sdpa"):
        raise ConfigError(f"compiled graphs have their own attention; --attention {config.attention} always runs eager")
    _, decoder = load_model(config)
    if decoder.device.type != "cpu":
        raise ConfigError("minillm compile is for CPUs; on a GPU graphs are captured when the model is loaded")
    buckets = sorted(set(buckets)) if buckets else default_buckets(config.max_num_seqs)
    if buckets[0] < 1:
        raise ConfigError(f"a batch size must be at least 1; got {buckets[0]}")
    folder = graphs_folder(config, decoder)
    jobs = _jobs(decoder, config.block_size, folder, buckets)
    report(0, len(jobs), _estimate(decoder, [job.bucket for job in jobs]))
    for done, job in enumerate(jobs):
        report(done, len(jobs), f"compiling {job.title}")
        started = time.perf_counter()
        cached_folder(job.folder, job.compile, need_bytes=lambda job=job: _bytes(decoder, job.bucket))
        report(done + 1, len(jobs), f"{job.title} took {time.perf_counter() - started:.0f} s")
    return folder


@dataclass(frozen=True)
class _Job:
    title: str
    bucket: int | None  # None: prompts
    folder: Path
    compile: Callable[[Path], dict]


def _jobs(decoder: Decoder, block_size: int, folder: Path, buckets: list[int]) -> list[_Job]:
    """What is not compiled yet, the quick one first."""
    jobs = [_Job("prompts", None, prefill_folder(folder), lambda target: _compile_prefill(decoder, target))]
    for b in buckets:
        compile_one = lambda target, b=b: _compile(decoder, block_size, b, target)  # noqa: E731
        jobs.append(_Job(f"batch size {b}", b, bucket_folder(folder, b), compile_one))
    return [job for job in jobs if read_manifest(job.folder) is None]


def bucket_folder(folder: Path, bucket: int) -> Path:
    return folder / f"batch-{bucket}"


def prefill_folder(folder: Path) -> Path:
    return folder / "prefill"


def _compile_prefill(decoder: Decoder, target: Path) -> dict:
    """Write the code of both halves of a layer into `target`. Returns what its manifest says."""
    tokens = Dim("tokens", min=2)
    with torch.no_grad():
        for half in HALVES:
            inputs = example_inputs(decoder, half)
            changing = ([None] * len(inputs[0]), ({0: tokens},) * (len(inputs) - 1))  # *inputs is one argument
            _package(LayerHalf(decoder, half), inputs, changing, [OPTIONS], target / f"{half}.pt2")
    return {"halves": list(HALVES)}


def _compile(decoder: Decoder, block_size: int, batch: int, target: Path) -> dict[str, int]:
    """Write both packages into `target`. Returns what its manifest says."""
    options = [OPTIONS]
    if batch < MANY_ROWS:
        options = [OPTIONS | INDUCTORS_KERNELS, OPTIONS]
    elif not isinstance(decoder.lm_head.method, Unquantized):
        decoder = dequantized(decoder)
    cache = allocate_layers(decoder.config, 7, block_size, decoder.dtype)
    numbers = torch.zeros(batch, dtype=torch.int64)
    steps = (numbers, numbers.clone(), torch.zeros(batch, 3, dtype=torch.int64), cache)
    changing = (None, None, {1: Dim("width", min=2)}, [{0: Dim("blocks", min=2)}] * len(cache))
    hidden = torch.zeros(batch, decoder.config.hidden_size, dtype=decoder.dtype)
    with torch.no_grad():
        _package(DecodeGraph(decoder), steps, changing, options, target / "decode.pt2")
        _package(HeadGraph(decoder), (hidden,), None, options, target / "head.pt2")
    return {"batch": batch}


def _package(graph: nn.Module, inputs: tuple, dynamic_shapes: tuple | None, options: list[dict], path: Path) -> None:
    """With the first of these options that the graph can be compiled with."""
    exported = export(graph, inputs, dynamic_shapes=dynamic_shapes, strict=False)
    try:
        with fresh_cache():  # inductor would keep every intermediate file, weights included
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=options[0])
    except InductorError as e:
        if "NoValidChoicesError" not in str(e) or len(options) == 1:
            raise
        _package(graph, inputs, dynamic_shapes, options[1:], path)  # inductor has no kernel for one of the matrices


def dequantized(decoder: Decoder) -> Decoder:
    """The same model with its quantized matrices written out in the model's dtype; all else is shared."""
    plain = Decoder(decoder.config, decoder.attention, decoder.dtype, device="meta")
    plain.load_state_dict(plain_parameters(decoder), assign=True)
    plain.inv_freq = decoder.inv_freq
    return plain


def _bytes(decoder: Decoder, bucket: int | None) -> int:
    """About what a bucket takes on disk: the weights, in the form that it holds them. Prompts' code holds none."""
    wide = decoder.dtype.itemsize * sum(m.in_features * m.out_features for m in decoder.modules() if isinstance(m, Linear))
    narrow = sum(p.nbytes for p in decoder.parameters())
    weights = 0 if bucket is None else max(wide, narrow) if bucket >= MANY_ROWS else narrow
    return int(1.3 * weights) + 30_000_000


def _estimate(decoder: Decoder, missing: list[int | None]) -> str:
    if not missing:
        return "everything is compiled already"
    sizes = [b for b in missing if b is not None]
    seconds = len(sizes) * (SECONDS_A_BUCKET + SECONDS_A_LAYER * decoder.config.num_layers)
    seconds += SECONDS_FOR_PROMPTS if None in missing else 0
    gigabytes = sum(_bytes(decoder, b) for b in missing) / 1e9
    parts = ["prompts"] if None in missing else []
    parts += ["batch sizes " + ", ".join(map(str, sizes))] if sizes else []
    return f"{' and '.join(parts)}: about {max(1, round(seconds / 60))} min and {gigabytes:.1f} GB of disk"
