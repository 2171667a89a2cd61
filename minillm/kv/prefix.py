"""Which blocks of a pool already hold the beginning of a request."""

from __future__ import annotations

from minillm.kv.blocks import BlockPool
from minillm.kv.prefix_hash import BlockHash, block_hash, root_hash
from minillm.request import Request


def match_prefix(request: Request, block_size: int, pool: BlockPool) -> list[int]:
    """The blocks that hold the longest known beginning of the request in whole blocks, in its order. Holds nothing yet.

    The last known token is always left to compute: its logits choose the next one, and they are not in the cache. A block is
    whole or not there at all, so of a prompt that is cached to its end the last block is computed anew.
    """
    return pool.find(block_names(request, block_size, (request.num_tokens - 1) // block_size))


def block_names(request: Request, block_size: int, count: int) -> list[BlockHash]:
    """The names of the request's first `count` full blocks; each is computed once in a request's life."""
    names = request.block_hashes
    while len(names) < count:
        start = len(names) * block_size
        parent = names[-1] if names else root_hash(request.cache_salt)
        names.append(block_hash(parent, request.token_ids[start : start + block_size]))
    return names[:count]
