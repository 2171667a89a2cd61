"""From flags to a ready engine: checkpoint, dtype, threads, weights, cache."""

from __future__ import annotations

import logging
import time

import psutil
import torch

from minillm.attention import make_attention
from minillm.config import EngineConfig, ModelConfig
from minillm.engine import Engine
from minillm.errors import ConfigError
from minillm.kv.contiguous import ContiguousKV, row_bytes
from minillm.model.checkpoints import open_checkpoint
from minillm.model.decoder import Decoder
from minillm.runner import Runner
from minillm.sampling.pipeline import Sampler
from minillm.scheduler import Scheduler
from minillm.text.tokenizer import Tokenizer
from shared.environment import memory_bytes, usable_cores

log = logging.getLogger("minillm")

KV_SHARE_OF_FREE_MEMORY = 0.5  # of a machine that also runs a browser


def build_engine(config: EngineConfig) -> Engine:
    started = time.perf_counter()
    threads = config.threads or max(1, round(usable_cores()))
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = open_checkpoint(config.model, load_format=config.load_format, revision=config.revision, seed=config.seed)
    model_config, dtype = checkpoint.config, resolve_dtype(config.dtype, device)
    max_model_len = resolve_max_model_len(config.max_model_len, model_config)

    model = Decoder(model_config, make_attention(config.attention), dtype=dtype, device=device)
    model.load_weights(checkpoint.weights())
    rows = num_rows(config.max_num_seqs, max_model_len, row_bytes(model_config, 1, dtype), free_memory_bytes(device))
    kv = ContiguousKV(model_config, rows, max_model_len, dtype, device)
    scheduler = Scheduler(kv, min(config.max_num_seqs, rows), config.max_num_batched_tokens)
    log.info(
        "loaded %s in %.1f s: %s on %s, %d thread%s; cache for %d requests of %d tokens (%.2f GB each, taken as used)",
        checkpoint.name, time.perf_counter() - started, str(dtype).removeprefix("torch."), device,
        threads, "" if threads == 1 else "s", rows, max_model_len, row_bytes(model_config, max_model_len, dtype) / 1e9,
    )  # fmt: skip
    return Engine(
        config=config,
        model_config=model_config,
        tokenizer=Tokenizer.from_folder(checkpoint.folder),
        scheduler=scheduler,
        runner=Runner(model, kv, device),
        sampler=Sampler(),
        model_name=checkpoint.name,
        max_model_len=max_model_len,
    )


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


def num_rows(max_num_seqs: int, max_model_len: int, bytes_per_token: int, free_bytes: int) -> int:
    """How many requests get a cache row each. Raises ConfigError if not even one fits."""
    budget = int(free_bytes * KV_SHARE_OF_FREE_MEMORY)
    rows = budget // (max_model_len * bytes_per_token)
    if rows == 0:
        raise ConfigError(
            f"the cache of one request of {max_model_len} tokens takes {max_model_len * bytes_per_token / 1e9:.2f} GB, "
            f"and half of the free memory is {budget / 1e9:.2f} GB; "
            f"set --max-model-len to {budget // bytes_per_token} or less, or free some memory"
        )
    return min(max_num_seqs, rows)


def free_memory_bytes(device: torch.device) -> int:
    """What the device has left; on a CPU no more than a container's limit leaves to this process."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, memory_bytes() - psutil.Process().memory_info().rss)
