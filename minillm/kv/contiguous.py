"""The simplest cache that works: one row of max_model_len slots for each running request.

A row is reserved whole when the request starts, however short its answer will be. That waste is what paging removes.
"""

from __future__ import annotations

import torch

from minillm.config import ModelConfig
from minillm.kv.storage import allocate_layers
from minillm.request import Request


class ContiguousKV:
    """num_blocks rows; a row is a block, so `block_size` is max_model_len and each request has exactly one.

    num_blocks and block_size are at least 1."""

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.layers = allocate_layers(config, num_blocks, block_size, dtype, device)
        self._free = sorted(range(num_blocks), reverse=True)
        self._held: dict[str, int] = {}  # request id -> row

    def start(self, request: Request, keep_free: int = 0) -> bool:
        if len(self._free) < 1 + keep_free or request.num_tokens > self.block_size:
            return False
        row = self._free.pop()
        self._held[request.request_id] = row
        request.block_ids = [row]
        return True

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        return request.num_computed_tokens + num_new_tokens <= self.block_size  # a row never grows

    def commit(self, request: Request, num_new_tokens: int) -> None:
        """Nothing to do: rows are never shared."""

    def forget(self) -> None:
        """Nothing to do either."""

    def free(self, request: Request) -> None:
        row = self._held.pop(request.request_id, None)
        if row is not None:
            self._free.append(row)
            # lowest row next: running rows stay close together, and attention reads them as one slice
            self._free.sort(reverse=True)
            request.block_ids = []

    def fits_alone(self, num_tokens: int) -> bool:
        return num_tokens <= self.block_size

    @property
    def usage(self) -> float:
        """A row counts as used from end to end: it is reserved."""
        return len(self._held) / self.num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def check_integrity(self) -> None:
        rows = self._free + list(self._held.values())
        assert sorted(rows) == list(range(self.num_blocks)), f"rows free {self._free}, held {self._held}"
