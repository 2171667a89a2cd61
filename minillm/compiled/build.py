"""Compile a model's decode step ahead of time: `minillm compile`.

For each batch size (bucket) two AOTInductor packages: `decode.pt2`, all layers, and `head.pt2`, the output matrix. A package
is native code with the weights inside, in the order in which this code reads them. Building takes minutes, loading a second.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch._inductor.exc import InductorError
from torch._inductor.utils import fresh_cache
from torch.export import Dim, export

from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.compiled.key import graphs_folder
from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.kv.storage import allocate_layers
from minillm.model.checkpoints.cache import cached_folder, read_manifest
from minillm.model.decoder import Decoder
from minillm.model.linear import Linear, Unquantized

BUCKETS = (1, 4, 8, 16, 32)
Report = Callable[[int, int, str], None]  # buckets done, buckets in all, what happens now

# Small integers save memory traffic, and a batch of a few rows is bound by it. From here on arithmetic counts, and the
# processor multiplies bfloat16 faster than it converts small integers: such graphs hold the dequantized weights.
DEQUANTIZE_FROM = 8

SECONDS_A_LAYER, SECONDS_A_BUCKET = 4.0, 25.0  # on two cores of a 2023 server, for the estimate

OPTIONS = {
    "freezing": True,  # weights are constants, reordered for the kernels that read them
    "assert_indirect_indexing": False,  # block ids come from our own tables
    "size_asserts": False,
    "cpp.enable_floating_point_contract_flag": "fast",  # fused multiply-add
}
# For a few rows inductor's own C++ kernels read small integers faster than the library's.
INDUCTORS_KERNELS = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}


def build(config: EngineConfig, buckets: Sequence[int] | None = None, report: Report = lambda *_: None) -> Path:
    """Compile the buckets that are not there yet and return the folder of all. buckets: batch sizes; None: BUCKETS up to
    config.max_num_seqs. Raises ConfigError for what cannot be compiled here, CheckpointError for a full disk."""
    from minillm.loading import load_model  # which imports this package to pick up what is built here

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise ConfigError("compiling needs a C++ compiler and there is none; install g++ (Debian, Ubuntu: apt install g++)")
    if config.kv != "paged":
        raise ConfigError(f"compiled graphs read a paged cache; --kv {config.kv} always runs eager")
    _, decoder = load_model(config)
    if decoder.device.type != "cpu":
        raise ConfigError("minillm compile is for CPUs; on a GPU graphs are captured when the model is loaded")
    buckets = sorted(set(buckets)) if buckets else default_buckets(config.max_num_seqs)
    if buckets[0] < 1:
        raise ConfigError(f"a batch size must be at least 1; got {buckets[0]}")
    folder = graphs_folder(config, decoder)
    missing = [b for b in buckets if read_manifest(bucket_folder(folder, b)) is None]
    report(0, len(missing), _estimate(decoder, missing))
    for done, bucket in enumerate(missing):
        report(done, len(missing), f"compiling batch size {bucket}")
        started = time.perf_counter()
        cached_folder(
            bucket_folder(folder, bucket),
            lambda temp, bucket=bucket: _compile(decoder, config.block_size, bucket, temp),
            need_bytes=lambda bucket=bucket: _bytes(decoder, bucket),
        )
        report(done + 1, len(missing), f"batch size {bucket} took {time.perf_counter() - started:.0f} s")
    return folder


def default_buckets(max_num_seqs: int) -> list[int]:
    """BUCKETS below max_num_seqs, and max_num_seqs itself unless it is larger than all of them."""
    return sorted({min(b, max_num_seqs) for b in BUCKETS})


def bucket_folder(folder: Path, bucket: int) -> Path:
    return folder / f"batch-{bucket}"


def _compile(decoder: Decoder, block_size: int, batch: int, target: Path) -> dict[str, int]:
    """Write both packages into `target`. Returns what its manifest says."""
    options = [OPTIONS]
    if not isinstance(decoder.lm_head.method, Unquantized):
        if batch < DEQUANTIZE_FROM:
            options = [OPTIONS | INDUCTORS_KERNELS, OPTIONS]
        else:
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
    """The same model with its quantized matrices written out in the model's dtype."""
    plain = Decoder(decoder.config, decoder.attention, dtype=decoder.dtype)
    plain.load_state_dict({n: p for n, p in decoder.named_parameters() if "qweight" not in n and "scale" not in n}, strict=False)
    quantized = {name: module for name, module in decoder.named_modules() if isinstance(module, Linear)}
    for name, module in plain.named_modules():
        if isinstance(module, Linear):
            module.weight = nn.Parameter(_weight_of(quantized[name], decoder.dtype), requires_grad=False)
    return plain


def _weight_of(layer: Linear, dtype: torch.dtype) -> Tensor:
    """[N, K]: whatever the form in which it is stored, its product with the identity."""
    product = layer.method.apply(torch.eye(layer.in_features, dtype=dtype), layer)
    return (product if layer.bias is None else product - layer.bias).T.contiguous()


def _bytes(decoder: Decoder, bucket: int) -> int:
    """About what a bucket takes on disk: the weights, in the form that it holds them."""
    wide = decoder.dtype.itemsize * sum(m.in_features * m.out_features for m in decoder.modules() if isinstance(m, Linear))
    narrow = sum(p.nbytes for p in decoder.parameters())
    return int(1.3 * (max(wide, narrow) if bucket >= DEQUANTIZE_FROM else narrow)) + 30_000_000


def _estimate(decoder: Decoder, missing: list[int]) -> str:
    if not missing:
        return "everything is compiled already"
    minutes = len(missing) * (SECONDS_A_BUCKET + SECONDS_A_LAYER * decoder.config.num_layers) / 60
    gigabytes = sum(_bytes(decoder, b) for b in missing) / 1e9
    sizes = ", ".join(map(str, missing))
    return f"batch sizes {sizes}: about {minutes:.0f} minutes and {gigabytes:.1f} GB of disk"
