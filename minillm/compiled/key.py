"""Which compiled graphs belong to a model: a name that changes with everything the compiler built in."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import platform
from pathlib import Path

import torch

from minillm.config import EngineConfig
from minillm.model.checkpoints import cache_home
from minillm.model.decoder import Decoder

SOURCES = (  # of what ends up in a graph
    "compiled/graph.py",
    "compiled/build.py",
    "compiled/prefill.py",
    "kv/storage.py",
    "model/decoder.py",
    "model/linear.py",
    "model/ops.py",
    "quant/linear.py",
)


def graphs_folder(config: EngineConfig, decoder: Decoder) -> Path:
    """Where the compiled graphs of this loaded model lie, or would lie: MINILLM_HOME/compiled/<key>."""
    return cache_home() / "compiled" / graph_key(config, decoder)


def graph_key(config: EngineConfig, decoder: Decoder) -> str:
    """16 hexadecimal digits. Weights, thread count and processor features are constants of the generated code."""
    facts = {
        "model": dataclasses.asdict(decoder.config),
        "weights": weights_digest(decoder),
        "quantization": [config.quantization, config.quantization_group_size],
        "block_size": config.block_size,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": [platform.machine(), torch.backends.cpu.get_cpu_capability(), _processor_flags()],
        "code": _code_digest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def weights_digest(decoder: Decoder) -> str:
    """A hash over every parameter's name, shape, type, a sample of its bytes and a sum of all of them: any one change shows."""
    digest = hashlib.sha256()
    for name, p in decoder.named_parameters():
        bits = p.detach().contiguous().flatten().view(torch.uint8)
        words = bits[: len(bits) // 8 * 8].view(torch.int64)
        sample = bits[:: max(1, len(bits) // 1024)].cpu().numpy().tobytes()
        digest.update(f"{name}|{tuple(p.shape)}|{p.dtype}|{int(words.sum())}|".encode() + sample)
    return digest.hexdigest()


def _processor_flags() -> str:
    """What the compiler could use; empty where the system does not list it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("flags", "Features"))), "")


def _code_digest() -> str:
    """Of what the sources say to Python: a comment more or less does not cost anyone minutes of compiling."""
    root = Path(__file__).parents[1]
    code = "".join(ast.dump(ast.parse((root / name).read_text("utf-8"))) for name in SOURCES)
    return hashlib.sha256(code.encode()).hexdigest()
