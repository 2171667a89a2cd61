"""Write a safetensors file one tensor at a time, so that a model of any size can be converted in little memory.

The format: 8 bytes with the header's length (little-endian), a JSON header (name -> dtype, shape, byte range), the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def write_safetensors(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, tensors: Iterable[Tensor]) -> None:
    """tensors: one for each entry of `shapes` and in its order; each is cast to dtype and written before the next is drawn."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}  # transformers refuses files without this mark
    offset = 0
    for name, shape in shapes.items():
        end = offset + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors then start at a multiple of 8 bytes
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for (name, shape), tensor in zip(shapes.items(), tensors, strict=True):
            if tuple(tensor.shape) != tuple(shape):
                raise ValueError(f"{name}: the header says {tuple(shape)}, the tensor is {tuple(tensor.shape)}")
            file.write(tensor.to(dtype).contiguous().view(-1).view(torch.uint8).numpy().data)
