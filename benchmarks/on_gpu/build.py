"""Engines to measure: random weights, no download, every memory given back at the end."""

from __future__ import annotations

import gc
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from on_gpu.worker import Setting

SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


@contextmanager
def small_folder(config: dict[str, Any]) -> Iterator[Path]:
    """A folder in Hugging Face's layout with a configuration and a tokenizer, for load_format="dummy"."""
    from minillm.model.checkpoints.dummy import byte_tokenizer

    with tempfile.TemporaryDirectory(prefix="minillm-gpu-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        byte_tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
        yield folder


class _Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def make_llm(setting: Setting, model: str, graphs: bool = False, **options: Any):
    """An LLM of that shape with random weights. RuntimeError where graphs are asked for and could not be captured: an engine that
    quietly runs eager would be measured under the wrong name. In a rehearsal a capture is replaced by a plain call."""
    from minillm.compiled.cuda_graphs import captured
    from minillm.compiled.dispatch import CompiledDecoder
    from minillm.llm import LLM

    heard = _Warnings()
    logging.getLogger("minillm").addHandler(heard)
    try:
        llm = LLM(model, load_format="dummy", enable_prefix_caching=False, enforce_eager=not graphs, **options)
    finally:
        logging.getLogger("minillm").removeHandler(heard)
    engine = llm.engine
    if graphs and setting.rehearsal:
        engine.runner.model = captured(
            engine.config, engine.runner.model, engine.scheduler.kv.layers, engine.max_model_len, plain_call
        )
    if graphs and not isinstance(engine.runner.model, CompiledDecoder):
        raise RuntimeError("no graphs: " + "; ".join(heard.messages))
    return llm


def plain_call(run):
    output = run().clone()
    return lambda: output.copy_(run()), output


def close(llm) -> None:
    """Give its memory back, graphs' pools too, although others may still hold `llm` itself."""
    llm.engine.runner.model = llm.engine.runner.kv = llm.engine.scheduler.kv = None
    del llm.engine
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
