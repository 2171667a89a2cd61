"""A GGUF file, as far as this engine understands it: metadata, and tensors under their Hugging Face names.

GGUF is llama.cpp's single-file format; see the specification in ggml's documentation (docs/gguf.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, GGUFValueType, dequantize
from torch import Tensor

from minillm.errors import CheckpointError
from minillm.model.checkpoints.names import Shape

_GLOBAL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3's frequency scaling, written out as numbers: configuration, not a weight
_DTYPES = {"F32": torch.float32, "F16": torch.float16}  # matrices of any other type become bf16


class GgufFile:
    """Opened lazily: tensors stay on disk until `tensors()` reaches them. Raises CheckpointError for a damaged file."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise CheckpointError(f"there is no file {path}; check the path")
        try:
            self._reader = GGUFReader(path)
        except Exception as e:  # the parser walks untrusted bytes and fails in as many ways as bytes can be wrong
            raise CheckpointError(f"{path} is not a whole GGUF file ({e}); delete it and fetch it again") from e
        if self.get("split.count", 1) > 1:
            raise CheckpointError(f"{path} is one part of several; merge them first (llama.cpp: llama-gguf-split --merge)")

    @property
    def architecture(self) -> str:
        return self.require("general.architecture")

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value, or default. A 32-bit float comes as its shortest decimal: 1e-05, not 9.999999747378752e-06."""
        field = self._reader.get_field(key)
        if field is None:
            return default
        value = field.contents()
        return float(str(field.parts[-1][0])) if field.types == [GGUFValueType.FLOAT32] else value

    def require(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise CheckpointError(f"{self.path}: metadata {key!r} is missing; convert the model again with a current llama.cpp")
        return value

    def array(self, name: str) -> Tensor | None:
        """A tensor by its GGUF name in fp32, or None."""
        found = next((t for t in self._reader.tensors if t.name == name), None)
        return None if found is None else _read(found)

    @property
    def tensor_types(self) -> dict[str, int]:
        """How many tensors are stored as what, e.g. {"Q4_1": 210, "F32": 61, "Q8_0": 1}."""
        return dict(Counter(t.tensor_type.name for t in self._reader.tensors))

    @property
    def dtype(self) -> torch.dtype:
        """What to convert to: the matrices' own type where all share a plain one, else bf16."""
        kinds = {t.tensor_type.name for t in self._reader.tensors if len(t.shape) > 1}
        return _DTYPES.get(kinds.pop(), torch.bfloat16) if len(kinds) == 1 else torch.bfloat16

    @property
    def shapes(self) -> dict[str, Shape]:
        """Hugging Face name -> shape, in file order. GGUF lists dimensions innermost first, torch outermost first."""
        return {hf_name(t.name): tuple(int(n) for n in reversed(t.shape)) for t in self._weights()}

    @property
    def converted_bytes(self) -> int:
        """Bytes of all weights once converted to `dtype`."""
        return sum(int(t.n_elements) for t in self._weights()) * self.dtype.itemsize

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(Hugging Face name, fp32 tensor), dequantized one at a time, in the order of `shapes`."""
        for t in self._weights():
            tensor = _read(t)
            if self.architecture == "llama" and t.name.split(".")[-2] in ("attn_q", "attn_k"):
                is_q = t.name.split(".")[-2] == "attn_q"
                heads = self.require("llama.attention.head_count")
                tensor = unpermute(tensor, heads if is_q else self.get("llama.attention.head_count_kv", heads))
            yield hf_name(t.name), tensor

    def _weights(self) -> list[Any]:
        return [t for t in self._reader.tensors if t.name != ROPE_FACTORS]


def hf_name(name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; a name without counterpart is returned as it is."""
    stem, _, kind = name.rpartition(".")
    if stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.{kind}"
    block, _, part = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{_LAYER_NAMES[part]}.{kind}" if stem.startswith("blk.") and part in _LAYER_NAMES else name


def unpermute(weight: Tensor, num_heads: int) -> Tensor:
    """Undo llama.cpp's reordering of q and k rows: [num_heads * head_dim, in_features] -> the same shape.

    Its RoPE turns neighbours (2i, 2i + 1) of a head, Hugging Face's turns (i, i + head_dim / 2).
    """
    return weight.view(num_heads, weight.shape[0] // num_heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def _read(tensor: Any) -> Tensor:
    try:
        array = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as e:
        kind = tensor.tensor_type.name
        raise CheckpointError(f"{tensor.name} is stored as {kind}, which cannot be read; use a Q4 to F16 file") from e
    return torch.from_numpy(array if array.flags.writeable else array.copy())
