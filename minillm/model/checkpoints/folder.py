"""A folder in Hugging Face's layout: config.json, tokenizer.json and safetensors, whole or in shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import CheckpointError
from minillm.model.checkpoints.checkpoint import Checkpoint
from minillm.model.checkpoints.names import Shape, check_names, expected_tensors

_DTYPES = ("BF16", "F16", "F32")  # in safetensors' spelling


def open_folder(folder: Path, name: str) -> Checkpoint:
    """A checkpoint of the files in `folder`; tensors are checked when `weights()` begins."""
    config = read_config(folder)
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{folder} has no tokenizer.json; save the tokenizer into it (transformers: save_pretrained)")
    files = weight_files(folder)
    return Checkpoint(name, folder, config, read=lambda: read_safetensors(files, config))


def read_config(folder: Path) -> ModelConfig:
    """ModelConfig of config.json; generation_config.json may add end-of-sequence ids (an answer may end with any of them)."""
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}; check the path, or give a Hugging Face id such as org/name")
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} has no config.json, so it is not a Hugging Face checkpoint; check the path")
    raw = _read_json(path)
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise CheckpointError(f"{folder.name} is quantized ({method}); use the original checkpoint in bf16, fp16 or fp32")
    generation = folder / "generation_config.json"
    extra = _read_json(generation).get("eos_token_id") if generation.is_file() else None
    raw["eos_token_id"] = list(dict.fromkeys(_as_list(raw.get("eos_token_id")) + _as_list(extra)))
    return ModelConfig.from_hf(raw)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: the one, or those that its index names."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():
        return [single]
    if index.is_file():
        files = [folder / shard for shard in sorted(set(_read_json(index).get("weight_map", {}).values()))]
        missing = [f.name for f in files if not f.is_file()]
        if missing or not files:
            what = f"{missing[0]} (one of {len(files)} shards)" if missing else "every shard"
            raise CheckpointError(f"{folder} lacks {what}; fetch the checkpoint again")
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise CheckpointError(
            f"{folder} holds only pickled weights (.bin), which can run code when opened; "
            "convert them to safetensors (transformers: save_pretrained) or use a checkpoint that has them"
        )
    raise CheckpointError(f"{folder} has no model.safetensors; minillm reads no other weights: use a checkpoint that has it")


def read_safetensors(files: list[Path], config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors in file order; each is copied out of the memory map when its turn comes."""
    check_names(config, _headers(files), files[0].parent.name)
    wanted = expected_tensors(config)
    for path in files:
        with _open(path) as file:
            for name in file.offset_keys():  # in the order of their bytes: the disk is read front to back
                if name in wanted:
                    yield name, file.get_tensor(name)


def _headers(files: list[Path]) -> dict[str, Shape]:
    """Name -> shape over all files, reading their headers only."""
    found: dict[str, Shape] = {}
    for path in files:
        with _open(path) as file:
            for name in file.offset_keys():
                entry = file.get_slice(name)
                if entry.get_dtype() not in _DTYPES:
                    raise CheckpointError(
                        f"{path.name}: {name} is stored as {entry.get_dtype()}; minillm loads {', '.join(_DTYPES)}: "
                        "use the unquantized checkpoint"
                    )
                found[name] = tuple(entry.get_shape())
    return found


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as e:
        raise CheckpointError(f"{path} is damaged or cut short ({e}); delete it and fetch it again") from e


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as e:
        raise CheckpointError(f"{path} cannot be read as JSON ({e}); fetch it again") from e
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object; fetch it again")
    return raw


def _as_list(value: Any) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]
