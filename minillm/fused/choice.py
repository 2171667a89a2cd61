"""What `auto` stands for, of --kernels and --attention: decided once, from the device, before anything is built."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.util import find_spec

import torch

from minillm.config import EngineConfig
from minillm.errors import ConfigError

log = logging.getLogger("minillm")


def resolved(config: EngineConfig, device: torch.device | None = None) -> EngineConfig:
    """The configuration without `auto`. device: None: a GPU if there is one, else the CPU. Raises ConfigError where Triton is
    asked for and not installed."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kernels = config.kernels
    if kernels == "auto":
        kernels = "triton" if device.type == "cuda" and has_triton() else "torch"
    if "triton" in (kernels, config.attention) and not has_triton():
        raise ConfigError("Triton is not installed: pip install triton (Linux only), or choose --kernels torch")
    attention = config.attention
    if attention == "auto":  # our kernels read small blocks; a contiguous row is one block, of any size
        attention = "triton" if kernels == "triton" and config.kv == "paged" else "sdpa"
    return replace(config, kernels=kernels, attention=attention)


def warn_of_interpreter(config: EngineConfig) -> None:
    """Without a GPU, Triton's kernels run in its interpreter: right to the last bit that matters, and hopelessly slow."""
    if "triton" in (config.kernels, config.attention) and not torch.cuda.is_available():
        log.warning("no GPU: Triton's kernels run in its interpreter, for tiny models only: a thousand times slower")


def has_triton() -> bool:
    return find_spec("triton") is not None
