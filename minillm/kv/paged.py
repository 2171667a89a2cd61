"""A cache in small blocks: a request holds just the blocks its tokens fill, and equal prefixes are held once.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from minillm.config import ModelConfig
from minillm.kv.blocks import BlockPool
from minillm.kv.prefix import block_names, match_prefix
from minillm.kv.storage import allocate_layers
from minillm.request import Request


class PagedKV:
    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        enable_prefix_caching: bool = True,
        make_pool: Callable[[int], BlockPool] = BlockPool,
        find_prefix: Callable[[Request, int, BlockPool], list[int]] = match_prefix,
    ):
        """make_pool, find_prefix: the parts kv.blocks and kv.prefix."""
        self.num_blocks, self.block_size, self.enable_prefix_caching = num_blocks, block_size, enable_prefix_caching
        self.layers = allocate_layers(config, num_blocks, block_size, dtype, device)
        self.pool = make_pool(num_blocks)
        self._find_prefix = find_prefix
        self._held: dict[str, Request] = {}

    def start(self, request: Request, keep_free: int = 0) -> bool:
        reuse = self.enable_prefix_caching and not request.skip_prefix_cache
        found = self._find_prefix(request, self.block_size, self.pool) if reuse else []
        needed = self._blocks_for(request.num_tokens) - len(found) + self.pool.num_unheld(found)
        if needed + keep_free > self.pool.num_free:
            return False
        self.pool.hold(found)
        self._held[request.request_id] = request
        request.block_ids = list(found)  # it will grow; whoever found it may keep its list
        request.num_computed_tokens = len(found) * self.block_size
        return True

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        missing = self._blocks_for(request.num_computed_tokens + num_new_tokens) - len(request.block_ids)
        if missing > self.pool.num_free:
            return False
        if missing > 0:
            request.block_ids += self.pool.allocate(missing)
        return True

    def commit(self, request: Request, num_new_tokens: int) -> None:
        if not self.enable_prefix_caching:
            return
        first, end = (n // self.block_size for n in (request.num_computed_tokens, request.num_computed_tokens + num_new_tokens))
        if first < end:
            names = block_names(request, self.block_size, end)
            for i in range(first, end):
                self.pool.name(request.block_ids[i], names[i])

    def forget(self) -> None:
        self.pool.forget_all()

    def free(self, request: Request) -> None:
        if self._held.pop(request.request_id, None) is not None:
            self.pool.release(request.block_ids)
            request.block_ids = []

    def fits_alone(self, num_tokens: int) -> bool:
        return self._blocks_for(num_tokens) <= self.num_blocks

    @property
    def usage(self) -> float:
        return 1 - self.pool.num_free / self.num_blocks

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    def check_integrity(self) -> None:
        self.pool.check_integrity(r.block_ids for r in self._held.values())
        for request in self._held.values():
            room = len(request.block_ids) * self.block_size
            assert request.num_computed_tokens <= room, f"{request.request_id} has computed more tokens than its blocks hold"

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
