"""Answers to labs/c2/m03_kv_cache.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

import torch

from labs.kit import exercise
from minillm.config import ModelConfig
from minillm.kv.storage import allocate_layers
from minillm.request import Request


@exercise(reference="minillm.kv.contiguous:ContiguousKV", part="kv.contiguous")
class ContiguousKV:
    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.layers = allocate_layers(config, num_blocks, block_size, dtype, device)
        self._free_rows = list(range(num_blocks))
        self._row_of: dict[str, int] = {}  # request id -> its row

    def start(self, request: Request, keep_free: int = 0) -> bool:
        if request.num_tokens > self.block_size or not self._free_rows or len(self._free_rows) - 1 < keep_free:
            return False
        row = self._free_rows.pop()
        self._row_of[request.request_id] = row
        request.block_ids = [row]
        return True

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        return request.num_computed_tokens + num_new_tokens <= self.block_size

    def commit(self, request: Request, num_new_tokens: int) -> None:
        return

    def forget(self) -> None:
        return

    def free(self, request: Request) -> None:
        row = self._row_of.pop(request.request_id, None)
        if row is not None:
            self._free_rows.append(row)
            request.block_ids = []

    def fits_alone(self, num_tokens: int) -> bool:
        return num_tokens <= self.block_size

    @property
    def usage(self) -> float:
        return len(self._row_of) / self.num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free_rows)

    def check_integrity(self) -> None:
        rows = sorted([*self._free_rows, *self._row_of.values()])
        if rows != list(range(self.num_blocks)):
            raise AssertionError(f"free and held rows are {rows}; each of 0 to {self.num_blocks - 1} belongs there once")
