"""A cache in small blocks: a request holds just the blocks its tokens fill, and equal prefixes are held once.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023.
"""

from __future__ import annotations

import torch

from minillm.config import ModelConfig
from minillm.kv.blocks import BlockPool
from minillm.kv.prefix_hash import BlockHash, block_hash, root_hash
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
    ):
        self.num_blocks, self.block_size, self.enable_prefix_caching = num_blocks, block_size, enable_prefix_caching
        self.layers = allocate_layers(config, num_blocks, block_size, dtype, device)
        self.pool = BlockPool(num_blocks)
        self._held: dict[str, Request] = {}

    def start(self, request: Request, keep_free: int = 0) -> bool:
        found = self.pool.find(self._reusable(request))
        needed = self._blocks_for(request.num_tokens) - len(found) + self.pool.num_unheld(found)
        if needed + keep_free > self.pool.num_free:
            return False
        self.pool.hold(found)
        self._held[request.request_id] = request
        request.block_ids = found
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
            names = self._names(request, end)
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

    def _reusable(self, request: Request) -> list[BlockHash]:
        """Names of the full blocks that may be taken from others. The last known token is always computed anew: its logits
        choose the next one, and they are not in the cache."""
        if not self.enable_prefix_caching or request.skip_prefix_cache:
            return []
        return self._names(request, (request.num_tokens - 1) // self.block_size)

    def _names(self, request: Request, count: int) -> list[BlockHash]:
        """The names of the request's first `count` full blocks; each is computed once in a request's life."""
        names, size = request.block_hashes, self.block_size
        while len(names) < count:
            start = len(names) * size
            parent = names[-1] if names else root_hash(request.cache_salt)
            names.append(block_hash(parent, request.token_ids[start : start + size]))
        return names[:count]
