"""GGUF -> a folder in Hugging Face's layout, so that one loader serves every source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from minillm.config import ModelConfig
from minillm.errors import CheckpointError
from minillm.model.checkpoints.cache import cache_home, cached_folder
from minillm.model.checkpoints.gguf_config import hf_config
from minillm.model.checkpoints.gguf_file import GgufFile
from minillm.model.checkpoints.gguf_tokenizer import build_tokenizer, tokenizer_config
from minillm.model.checkpoints.names import check_names
from minillm.model.checkpoints.progress import byte_bar
from minillm.model.checkpoints.safetensors_writer import write_safetensors

_OTHER_BYTES = 50_000_000  # more than any tokenizer.json takes


def convert_cached(path: Path, *, progress: bool) -> Path:
    """The converted folder of a .gguf file, made on first use and again whenever the file has changed."""
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}; check the path")

    @cache
    def opened() -> GgufFile:
        return GgufFile(path)

    key, header_sha256 = _fingerprint(path)
    about = {"source": str(path.resolve()), "header_sha256": header_sha256, "gguf_path": str(path.resolve())}
    return cached_folder(
        cache_home() / "checkpoints" / "gguf" / f"{path.stem}-{key}",
        lambda folder: {**about, **convert(opened(), folder, progress=progress)},
        need_bytes=lambda: opened().converted_bytes + _OTHER_BYTES,
    )


def convert(gguf: GgufFile, folder: Path, *, progress: bool) -> dict[str, Any]:
    """Fill `folder`; return what minillm.json should say of the weights. Raises CheckpointError."""
    raw = hf_config(gguf)
    check_names(ModelConfig.from_hf(raw), gguf.shapes, gguf.path.name)
    tokenizer = build_tokenizer(gguf)  # before the slow part, so that a refusal comes at once
    with byte_bar(f"converting {gguf.path.name}", gguf.converted_bytes, show=progress) as report:

        def tensors() -> Iterator[Tensor]:
            done = 0
            for _, tensor in gguf.tensors():
                yield tensor
                done += tensor.numel() * gguf.dtype.itemsize
                report(done)

        write_safetensors(folder / "model.safetensors", gguf.shapes, gguf.dtype, tensors())
    tokenizer.save(str(folder / "tokenizer.json"))
    generation = {key: raw[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, contents in (
        ("config.json", raw),
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer_config(gguf)),
    ):
        text = json.dumps({k: v for k, v in contents.items() if v is not None}, indent=2, ensure_ascii=False)
        (folder / name).write_text(text + "\n", "utf-8")
    return {
        "stored_as": gguf.tensor_types,
        "dtype": raw["torch_dtype"],
        "note": "weights of quantized types (Q…) were dequantized: this is the quantized model, not the original one",
    }


def _fingerprint(path: Path) -> tuple[str, str]:
    """(short key, SHA-256 of the first MiB): changes with the file's place, size, time or header."""
    with open(path, "rb") as file:
        header = hashlib.sha256(file.read(1 << 20)).hexdigest()
    stat = path.stat()
    identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{header}"
    return hashlib.sha256(identity.encode()).hexdigest()[:12], header
