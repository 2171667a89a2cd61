"""From flags to a ready engine: checkpoint, dtype, threads, weights, cache."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import torch

from minillm.attention.base import AttentionBackend
from minillm.attention.triton import AttentionKernels
from minillm.compiled.cuda_graphs import captured
from minillm.compiled.dispatch import CompiledDecoder, find
from minillm.config import EngineConfig, ModelConfig
from minillm.engine import Engine
from minillm.errors import ConfigError
from minillm.fused.choice import resolved, warn_of_interpreter
from minillm.fused.decoder import FusedDecoder, FusedOps
from minillm.kv.base import KVCache
from minillm.kv.contiguous import ContiguousKV
from minillm.kv.sizing import size_cache
from minillm.model.checkpoints import Checkpoint, open_checkpoint
from minillm.model.decoder import Decoder
from minillm.model.linear import LinearMethod
from minillm.model.ops import Ops
from minillm.parts import Parts
from minillm.quant.linear import make_linear_method
from minillm.request import Request, SamplingParams
from minillm.runner import Runner
from minillm.scheduler import SchedulePlan, SchedulerConfig
from minillm.text.output import OutputProcessor
from minillm.text.tokenizer import Tokenizer
from shared.environment import usable_cores

log = logging.getLogger("minillm")
Kernels = TypeVar("Kernels")


def build_engine(config: EngineConfig, mine: Mapping[str, Any] | None = None) -> Engine:
    """mine: parts to use in place of the references, see minillm.parts."""
    config, parts = resolved(config), Parts(mine)
    warn_of_interpreter(config)
    checkpoint, model = load_model(config, parts)
    model_config, dtype, device = model.config, model.dtype, model.device
    max_model_len = resolve_max_model_len(config.max_model_len, model_config)
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < max_model_len:
        raise ConfigError(
            f"without chunked prefill a prompt must fit in one step: raise --max-num-batched-tokens to {max_model_len}, "
            f"lower --max-model-len to {config.max_num_batched_tokens}, or leave chunked prefill on"
        )
    tokenizer = Tokenizer.from_folder(checkpoint.folder)
    kv = build_cache(config, parts, model, dtype, max_model_len, device)
    return Engine(
        config=config,
        model_config=model_config,
        tokenizer=tokenizer,
        scheduler=parts.get("scheduler", config.scheduler)(kv, scheduler_config(config)),
        runner=Runner(with_graphs(config, with_kernels(config, parts, model), kv, max_model_len), kv, device),
        sampler=build_sampler(config, parts),
        output=OutputProcessor(tokenizer, parts.get("text", "stream"), parts.get("text", "stop")),
        model_name=checkpoint.name,
        max_model_len=max_model_len,
    )


def load_model(config: EngineConfig, parts: Parts | None = None) -> tuple[Checkpoint, Decoder]:
    """The model with its weights, quantized if asked for. Sets the number of torch's threads."""
    config, started = resolved(config), time.perf_counter()
    threads = config.threads or max(1, round(usable_cores()))
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = open_checkpoint(config.model, load_format=config.load_format, revision=config.revision, seed=config.seed)
    dtype = resolve_dtype(config.dtype, device)
    parts = parts or Parts()
    ops = Ops(**{field.name: parts.get("ops", field.name) for field in fields(Ops)})
    method = linear_method(config, checkpoint.config, device, parts)
    model = Decoder(checkpoint.config, build_attention(config, parts), dtype, device, method, ops)
    model.load_weights(checkpoint.weights())
    log.info(
        "loaded %s in %.1f s: %s%s on %s, %d thread%s",
        checkpoint.name, time.perf_counter() - started, f"{config.quantization} weights, " if config.quantization else "",
        str(dtype).removeprefix("torch."), device, threads, "s"[: threads > 1],
    )  # fmt: skip
    return checkpoint, model


def linear_method(config: EngineConfig, model: ModelConfig, device: torch.device, parts: Parts) -> LinearMethod:
    """How matrices are stored and multiplied by: torch's kernels, or ours: by flags of their own for small integers and for
    weights as they are."""
    if (config.kernels if config.quantization else config.linear) == "torch":
        return make_linear_method(config.quantization, config.quantization_group_size, model, device)
    from minillm.fused.linear import LinearKernels, make_triton_linear  # loads Triton

    kernels = named_kernels(LinearKernels, parts)
    return make_triton_linear(config.quantization, config.quantization_group_size, model, kernels)


def build_attention(config: EngineConfig, parts: Parts) -> AttentionBackend:
    backend = parts.get("attention", config.attention)
    if config.attention == "torch":
        return backend(parts.get("ops", "gqa_attention"))
    if config.attention == "triton" and not parts.is_own("attention", "triton"):
        return backend(named_kernels(AttentionKernels, parts))
    return backend()


def named_kernels(kind: type[Kernels], parts: Parts) -> Kernels:
    """A dataclass of kernels, filled with the parts `kernels.<field>`."""
    return kind(**{field.name: parts.get("kernels", field.name) for field in fields(kind)})


def build_cache(
    config: EngineConfig, parts: Parts, model: Decoder, dtype: torch.dtype, max_model_len: int, device: torch.device
) -> KVCache:
    """The cache, as large as memory allows; the log says where each byte went."""
    size = size_cache(
        config, model.config, dtype, max_model_len, device, lambda: largest_step_bytes(model, config, max_model_len)
    )
    weights = sum(p.nbytes for p in model.parameters())
    log.info(
        "memory: weights %.2f GB; cache %.2f GB for %d tokens in %d blocks of %d (%s)%s",
        weights / 1e9, size.bytes / 1e9, size.num_blocks * size.block_size, size.num_blocks, size.block_size, size.why,
        ", taken as it is used" if device.type == "cpu" else "",
    )  # fmt: skip
    options: dict[str, Any] = {}
    if config.kv == "paged":
        own = {"make_pool": parts.get("kv", "blocks"), "find_prefix": parts.get("kv", "prefix")}
        options = {"enable_prefix_caching": config.enable_prefix_caching, **own}
    return parts.get("kv", config.kv)(model.config, size.num_blocks, size.block_size, dtype, device, **options)


def build_sampler(config: EngineConfig, parts: Parts) -> Any:
    """The caller's own sampler if there is one, else with our kernels the one that draws a batch in one launch."""
    if config.kernels != "triton" or parts.is_own("sampling", "pipeline"):
        return parts.get("sampling", "pipeline")()
    from minillm.sampling.on_gpu import SamplingKernels, TritonSampler  # loads Triton

    return TritonSampler(named_kernels(SamplingKernels, parts))


def with_kernels(config: EngineConfig, parts: Parts, model: Decoder) -> Decoder | FusedDecoder:
    """The model with our kernels as its small operators, if they are chosen. An operator of the caller's own, `ops.…`, belongs
    to the plain decoder, and would not run in the fused one: then that is what runs."""
    if config.kernels != "triton" or any(parts.is_own("ops", field.name) for field in fields(Ops)):
        return model
    return FusedDecoder(model, named_kernels(FusedOps, parts))


def with_graphs(
    config: EngineConfig, model: Decoder | FusedDecoder, kv: KVCache, max_model_len: int
) -> Decoder | FusedDecoder | CompiledDecoder:
    """The model with what `minillm compile` has built for it, which is torch's kernels, or on a GPU with graphs captured now, if
    there is any."""
    if model.device.type == "cuda":
        return captured(config, model, kv.layers, max_model_len)
    ours_inside = isinstance(model, FusedDecoder) or config.linear == "triton"
    return model if ours_inside else find(config, model)


def scheduler_config(config: EngineConfig) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        policy=config.scheduling_policy,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        enable_chunked_prefill=config.enable_chunked_prefill,
        watermark=config.watermark,
    )


def largest_step_bytes(model: Decoder, config: EngineConfig, max_model_len: int) -> int:
    """What a GPU's allocator needs at its peak for the largest step, beyond the weights: measured by running one."""
    length = min(config.max_num_batched_tokens, max_model_len)
    kv = ContiguousKV(model.config, 1, length, model.dtype, model.device)
    request = Request("profile", [0] * length, length, SamplingParams(), max_tokens=1, seed=0)
    kv.start(request)
    plan = SchedulePlan([request], [length])
    runner = Runner(model, kv, model.device)
    torch.cuda.reset_peak_memory_stats(model.device)
    before = torch.cuda.memory_allocated(model.device)
    runner.forward(runner.prepare(plan))
    return torch.cuda.max_memory_allocated(model.device) - before


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 where the hardware multiplies it natively, else float32 (emulated bf16 is slower than float32)."""
    if name != "auto":
        return getattr(torch, name)
    native = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else cpu_has_bf16()
    return torch.bfloat16 if native else torch.float32


def cpu_has_bf16() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def resolve_max_model_len(asked: int | None, model: ModelConfig) -> int:
    """The model's own limit, or less if asked for. Raises ConfigError for more: positions it never saw give nonsense."""
    if asked is not None and asked > model.max_position_embeddings:
        raise ConfigError(
            f"--max-model-len {asked} is more than the {model.max_position_embeddings} positions this model was trained for"
        )
    return asked or model.max_position_embeddings
