"""config.json from GGUF metadata."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from minillm.errors import CheckpointError
from minillm.model.checkpoints.gguf_file import ROPE_FACTORS, GgufFile

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Llama 3.1 and 3.2: the only frequency scalings that exporters write out as rope_freqs.weight for a dense model.
_LLAMA3_SCALINGS = [
    {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    for factor in (8.0, 32.0)
]


def hf_config(gguf: GgufFile) -> dict[str, Any]:
    """The contents of a config.json that describes the file. Raises CheckpointError for what this engine cannot run."""
    arch = gguf.architecture
    if arch not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise CheckpointError(f"{gguf.path.name}: GGUF architecture {arch!r} is not supported; minillm converts {known}")
    _refuse_variants(gguf, arch)
    hidden, heads = gguf.require(f"{arch}.embedding_length"), gguf.require(f"{arch}.attention.head_count")
    head_dim = gguf.get(f"{arch}.attention.key_length", hidden // heads)
    if gguf.get(f"{arch}.rope.dimension_count", head_dim) != head_dim:
        raise CheckpointError(f"{gguf.path.name}: RoPE over a part of each head is not supported; use another model")
    theta = gguf.get(f"{arch}.rope.freq_base", 10000.0)
    shapes = gguf.shapes
    config = {
        "architectures": [_ARCHITECTURES[arch]],
        "model_type": arch,
        "vocab_size": shapes.get("model.embed_tokens.weight", (len(gguf.require("tokenizer.ggml.tokens")),))[0],
        "hidden_size": hidden,
        "intermediate_size": gguf.require(f"{arch}.feed_forward_length"),
        "num_hidden_layers": gguf.require(f"{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": gguf.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": gguf.require(f"{arch}.context_length"),
        "rms_norm_eps": gguf.require(f"{arch}.attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "bos_token_id": gguf.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": eos_token_id(gguf),
        "pad_token_id": gguf.get("tokenizer.ggml.padding_token_id"),
        "torch_dtype": str(gguf.dtype).removeprefix("torch."),
    }
    factors = gguf.array(ROPE_FACTORS)
    if factors is not None:
        config["rope_scaling"] = _recover_scaling(factors, theta, gguf)
    return config


def eos_token_id(gguf: GgufFile) -> int | list[int] | None:
    """Every id that ends an answer (end of sequence, of turn, of message), as Hugging Face writes it: one, or a list."""
    ids = [gguf.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    found = list(dict.fromkeys(i for i in ids if i is not None))
    return found if len(found) > 1 else next(iter(found), None)


def llama3_factors(head_dim: int, theta: float, scaling: dict[str, float]) -> Tensor:
    """What each of the head_dim / 2 rotary frequencies is divided by: [head_dim / 2] fp32 (Llama 3.1's rule).

    Wavelengths short beside the original context stay, long ones are stretched by `factor`, those between are blended.
    """
    wavelengths = 2 * math.pi * theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)  # tokens a turn
    turns = scaling["original_max_position_embeddings"] / wavelengths
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 / (kept + (1 - kept) / scaling["factor"])).float()


def _recover_scaling(factors: Tensor, theta: float, gguf: GgufFile) -> dict[str, Any]:
    for scaling in _LLAMA3_SCALINGS:
        if torch.allclose(factors, llama3_factors(2 * factors.numel(), theta, scaling), rtol=1e-3):
            return {"rope_type": "llama3", **scaling}
    raise CheckpointError(f"{gguf.path.name}: its {ROPE_FACTORS} is not Llama 3's scaling; use the safetensors checkpoint")


def _refuse_variants(gguf: GgufFile, arch: str) -> None:
    """What shares an architecture name with a plain dense decoder but computes something else."""
    variants = {
        "a mixture of experts": gguf.get(f"{arch}.expert_count", 0) > 0,
        "sliding-window attention": bool(gguf.get(f"{arch}.attention.sliding_window", 0)),
        f"RoPE scaling {gguf.get(f'{arch}.rope.scaling.type')!r}": gguf.get(f"{arch}.rope.scaling.type", "none") != "none",
        "a number of heads that differs by layer": isinstance(gguf.get(f"{arch}.attention.head_count_kv"), list),
    }
    for what, present in variants.items():
        if present:
            raise CheckpointError(f"{gguf.path.name}: {what} is not supported in a GGUF file; use the safetensors checkpoint")
