"""How much memory the cache gets, and how many blocks that makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from minillm.config import EngineConfig, ModelConfig
from minillm.errors import ConfigError
from minillm.kv.storage import kv_bytes
from shared.environment import memory_bytes

CPU_SHARE = 0.5  # of the memory that is free once the model is loaded: the machine runs other things too
CPU_LIMIT_BYTES = 4 * 2**30  # unless asked for more; vLLM's default for a CPU


@dataclass(frozen=True)
class CacheSize:
    """The outcome, and what it was worked out from, for the log."""

    num_blocks: int
    block_size: int
    bytes: int
    why: str


def size_cache(
    config: EngineConfig,
    model: ModelConfig,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device,
    measure_activations: Callable[[], int],
) -> CacheSize:
    """Blocks for the cache. measure_activations: runs the largest step and returns the bytes it needed at its peak.

    Raises ConfigError if one request of max_model_len tokens would not fit.
    """
    block_size = max_model_len if config.kv == "contiguous" else config.block_size
    block_bytes = kv_bytes(model, block_size, dtype)
    enough = config.max_num_seqs * -(-max_model_len // block_size)  # every running request at full length
    if config.kv_cache_memory_bytes is not None:
        budget, why = config.kv_cache_memory_bytes, "--kv-cache-memory-bytes"
    elif device.type == "cuda":
        budget, why = _gpu_budget(config, device, measure_activations())
    else:
        budget, why = _cpu_budget()
    blocks = min(enough, budget // block_bytes)
    if blocks * block_size < max_model_len:
        most = budget // block_bytes * block_size if config.kv != "contiguous" else budget // kv_bytes(model, 1, dtype)
        remedy = f"set --max-model-len to {most} or less, or give the cache more" if most > 0 else "free some memory for it"
        raise ConfigError(
            f"one request of {max_model_len} tokens needs {kv_bytes(model, max_model_len, dtype) / 1e9:.2f} GB of cache "
            f"and there are {budget / 1e9:.2f} GB ({why}); {remedy}"
        )
    if blocks == enough:
        why = f"all {config.max_num_seqs} requests at full length"
    return CacheSize(blocks, block_size, blocks * block_bytes, why)


def _cpu_budget() -> tuple[int, str]:
    free = min(psutil.virtual_memory().available, memory_bytes() - psutil.Process().memory_info().rss)
    share = int(max(0, free) * CPU_SHARE)
    if share > CPU_LIMIT_BYTES:
        return CPU_LIMIT_BYTES, f"{CPU_LIMIT_BYTES / 1e9:.2f} GB unless --kv-cache-memory-bytes asks for more"
    return share, f"half of the {free / 1e9:.2f} GB that are free"


def _gpu_budget(config: EngineConfig, device: torch.device, activation_bytes: int) -> tuple[int, str]:
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(total * config.gpu_memory_utilization)
    budget = allowed - (total - free) - activation_bytes
    why = (
        f"{config.gpu_memory_utilization:.0%} of {total / 1e9:.2f} GB, less {(total - free) / 1e9:.2f} GB in use "
        f"and {activation_bytes / 1e9:.2f} GB for the largest step"
    )
    return max(0, budget), why
