"""The simplest cache that works: one row of max_model_len slots for each running request.

A row is reserved whole when the request starts, however short its answer will be. That waste is what paging removes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from minillm.config import ModelConfig
from minillm.request import Request


class ContiguousKV:
    """num_rows rows of max_model_len slots; a row is a block, so `block_size` is max_model_len and each request has one.

    layers: one tensor a layer, [2, num_rows, max_model_len, num_kv_heads, head_dim]: keys, then values.
    """

    def __init__(
        self, config: ModelConfig, num_rows: int, max_model_len: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ):
        self.num_rows = num_rows
        self.block_size = max_model_len
        shape = (2, num_rows, max_model_len, config.num_kv_heads, config.head_dim)
        self.layers = [_lazy_zeros(shape, dtype, torch.device(device)) for _ in range(config.num_layers)]
        self._free = sorted(range(num_rows), reverse=True)
        self._held: dict[str, int] = {}  # request id -> row

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        """Make room for `num_new_tokens` more tokens of `request`. False: nothing is free now (and nothing changed)."""
        if request.num_computed_tokens + num_new_tokens > self.block_size:
            return False  # a row never grows; admission refuses such requests before they get here
        if request.request_id not in self._held:
            if not self._free:
                return False
            row = self._free.pop()
            self._held[request.request_id] = row
            request.block_ids = [row]
        return True

    def free(self, request: Request) -> None:
        """Give the request's row back; a request that holds none is left alone."""
        row = self._held.pop(request.request_id, None)
        if row is not None:
            self._free.append(row)
            self._free.sort(
                reverse=True
            )  # lowest row next: running rows stay close together, and attention reads them as one slice
            request.block_ids = []

    @property
    def usage(self) -> float:
        """Share of the cache that is reserved, 0 to 1."""
        return len(self._held) / self.num_rows

    @property
    def num_free(self) -> int:
        return len(self._free)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every row is either free or held by exactly one request."""
        rows = self._free + list(self._held.values())
        assert sorted(rows) == list(range(self.num_rows)), f"rows free {self._free}, held {self._held}"


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory only where something is written: the operating system maps a page at its first write.

    torch.zeros would touch every page at once, and most of a reserved row is never used.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    raw = np.zeros(int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)


def row_bytes(config: ModelConfig, max_model_len: int, dtype: torch.dtype) -> int:
    """Bytes that one request reserves, all layers."""
    return config.kv_elements_per_token * dtype.itemsize * max_model_len
