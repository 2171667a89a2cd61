"""Random weights of a known shape: for measuring speed and memory without downloading gigabytes.

Text that comes out means nothing, but every token decodes to some text, so that streaming can be watched.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import CheckpointError
from minillm.model.checkpoints.cache import cache_home, cached_folder
from minillm.model.checkpoints.checkpoint import Checkpoint, NamedTensors
from minillm.model.checkpoints.folder import read_config
from minillm.model.checkpoints.names import Shape, expected_tensors

_SPECIAL_TOKENS = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _shape(kind: str, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int, vocab: int, **rest) -> dict:
    config = {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[kind]],
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "eos_token_id": _SPECIAL_TOKENS["<|im_end|>"],
    }
    return {**config, **rest}


def _smollm2(*sizes: int, theta: float = 100000.0) -> dict:
    rest = {"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": theta, "tie_word_embeddings": True}
    return _shape("llama", *sizes, 49152, **rest)


def _llama3(*sizes: int, factor: float, tied: bool) -> dict:
    scaling = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    rope = {"rope_theta": 500000.0, "rope_scaling": {"factor": factor, **scaling}}
    return _shape("llama", *sizes, 128256, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=tied, **rope)


def _qwen(kind: str, *sizes: int, context: int, tied: bool) -> dict:
    rest = {"max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": tied}
    return _shape(kind, *sizes, 151936, **rest)


# layers, hidden, heads, KV heads, head_dim, intermediate size
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": _smollm2(30, 576, 9, 3, 64, 1536),
    "smollm2-360m": _smollm2(32, 960, 15, 5, 64, 2560),
    "smollm2-1.7b": _smollm2(24, 2048, 32, 32, 64, 8192, theta=130000.0),
    "llama-3.2-1b": _llama3(16, 2048, 32, 8, 64, 8192, factor=32.0, tied=True),
    "llama-3.2-3b": _llama3(28, 3072, 24, 8, 128, 8192, factor=32.0, tied=True),
    "llama-3.1-8b": _llama3(32, 4096, 32, 8, 128, 14336, factor=8.0, tied=False),
    "llama-3.1-70b": _llama3(80, 8192, 64, 8, 128, 28672, factor=8.0, tied=False),
    "qwen2.5-0.5b": _qwen("qwen2", 24, 896, 14, 2, 64, 4864, context=32768, tied=True),
    "qwen3-0.6b": _qwen("qwen3", 28, 1024, 16, 8, 128, 3072, context=40960, tied=True),
    "qwen3-1.7b": _qwen("qwen3", 28, 2048, 16, 8, 128, 6144, context=40960, tied=True),
    "qwen3-4b": _qwen("qwen3", 36, 2560, 32, 8, 128, 9728, context=40960, tied=True),
    "qwen3-8b": _qwen("qwen3", 36, 4096, 32, 8, 128, 12288, context=40960, tied=False),
}


def open_shape(name: str, seed: int) -> Checkpoint:
    """A named shape with random weights and a byte-level tokenizer. name: a key of SHAPES."""
    raw = SHAPES[name]
    digest = hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:8]
    target = cache_home() / "checkpoints" / "shapes" / f"{name}-{digest}"
    folder = cached_folder(target, lambda temp: _write_folder(temp, raw), need_bytes=lambda: 20_000_000)
    return open_random(folder, name, seed)


def open_random(folder: Path, name: str, seed: int) -> Checkpoint:
    """The shape and tokenizer of a folder in Hugging Face's layout, with random weights."""
    config = read_config(folder)
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{folder} has no tokenizer.json; copy one there, or name a shape: {', '.join(SHAPES)}")
    # a GPU draws 8 billion numbers in the time of a breath, a CPU in minutes
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Checkpoint(name, folder, config, read=lambda: random_weights(config, seed, device))


def random_weights(config: ModelConfig, seed: int, device: torch.device | str = "cpu") -> NamedTensors:
    """Normal with standard deviation 0.02, as most models start; norms are 1. A tensor depends on its name, the seed and the kind
    of device only, which draws it: a GPU's numbers are others than a CPU's."""
    dtype, device = getattr(torch, config.torch_dtype or "bfloat16"), torch.device(device)
    for name, shape in expected_tensors(config).items():
        yield name, _random(name, shape, dtype, seed, device)


def _random(name: str, shape: Shape, dtype: torch.dtype, seed: int, device: torch.device) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=dtype, device=device)
    key = int.from_bytes(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:8], "big", signed=True)
    generator = torch.Generator(device).manual_seed(key)
    return torch.empty(shape, dtype=dtype, device=device).normal_(0.0, 0.02, generator=generator)


def byte_tokenizer(vocab_size: int) -> Tokenizer:
    """Id = byte value for 0 to 255, then ChatML's special tokens. Ids above never come from text, and decode to " <id>"."""
    vocab = {char: byte for byte, char in enumerate(_byte_characters())}
    vocab |= _SPECIAL_TOKENS
    vocab |= {f"Ġ{i}": i for i in range(len(vocab), vocab_size)}  # Ġ stands for a space in the byte-level alphabet
    tokenizer = Tokenizer(models.BPE(vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in _SPECIAL_TOKENS])
    return tokenizer


def _byte_characters() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes: itself where printable, else the next code point from 256 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _write_folder(folder: Path, raw: dict[str, Any]) -> dict[str, Any]:
    byte_tokenizer(raw["vocab_size"]).save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": _CHAT_TEMPLATE,
        "model_max_length": raw["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    for name, contents in (("config.json", raw), ("tokenizer_config.json", tokenizer_config)):
        (folder / name).write_text(json.dumps(contents, indent=2) + "\n", "utf-8")
    return {"source": "a shape only: weights are drawn at random when loaded"}
