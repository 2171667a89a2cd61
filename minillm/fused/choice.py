"""What `auto` stands for, of --kernels and --attention: decided once, from the device, before anything is built."""

from __future__ import annotations

import logging
import os
import shutil
import sysconfig
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from minillm.config import EngineConfig
from minillm.errors import ConfigError

log = logging.getLogger("minillm")


def resolved(config: EngineConfig, device: torch.device | None = None) -> EngineConfig:
    """The configuration without `auto`. device: None: a GPU if there is one, else the CPU. Raises ConfigError where Triton is
    asked for and not installed."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kernels, problem = config.kernels, obstacle() if device.type == "cuda" and has_triton() else None
    if kernels == "auto":
        kernels = "triton" if device.type == "cuda" and has_triton() and problem is None else "torch"
        if problem:
            log.warning("running torch's kernels instead of ours: %s", problem)
    asked = (kernels, "--kernels torch"), (config.attention, "--attention sdpa"), (config.linear, "--linear torch")
    if ways_out := " and ".join(way_out for value, way_out in asked if value == "triton"):
        if not has_triton():
            raise ConfigError(f"Triton is not installed: pip install triton (Linux only), or choose {ways_out}")
        if problem:
            raise ConfigError(f"{problem}; or choose {ways_out}")
    attention = config.attention
    if attention == "auto":  # our kernels read small blocks; a contiguous row is one block, of any size
        attention = "triton" if kernels == "triton" and config.kv == "paged" else "sdpa"
    return replace(config, kernels=kernels, attention=attention)


def warn_of_interpreter(config: EngineConfig) -> None:
    """Without a GPU, Triton's kernels run in its interpreter: right to the last bit that matters, and hopelessly slow."""
    if "triton" in (config.kernels, config.attention, config.linear) and not torch.cuda.is_available():
        log.warning("no GPU: Triton's kernels run in its interpreter, for tiny models only: a thousand times slower")


def has_triton() -> bool:
    return find_spec("triton") is not None


def obstacle() -> str | None:
    """What keeps an installed Triton from launching kernels on the GPU, and the way out; None: nothing. It compiles the code that
    launches them, in C, at the first launch."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0):
        return "the kernels need a GPU of compute capability 8.0 or higher"
    if not any((os.environ.get("CC"), shutil.which("gcc"), shutil.which("clang"))):
        return "Triton needs a C compiler and there is none: install gcc (Debian, Ubuntu: apt install gcc)"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # Debian's own, without the headers
    if not (Path(sysconfig.get_paths(scheme)["include"]) / "Python.h").is_file():
        return "Triton needs Python's headers and there are none: install them (Debian, Ubuntu: apt install python3-dev)"
    return None
