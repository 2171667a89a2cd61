"""Names for full blocks of tokens, such that equal names mean equal tokens *and* equal everything before them.

A block's keys and values depend on all tokens up to its end. Its name is therefore a hash over its own tokens and the
name of the block before it: a chain. (Zheng et al., SGLang, 2024, keep the same knowledge in a radix tree instead.)
"""

from __future__ import annotations

import hashlib
from array import array

BlockHash = bytes


def root_hash(salt: str | None = None) -> BlockHash:
    """Where a chain starts. Requests share blocks only if their salts are equal: a tenant's salt keeps others from finding out,
    by a fast first token, what the tenant's prompts begin with."""
    return hashlib.sha256(b"" if salt is None else b"salt:" + salt.encode()).digest()


def block_hash(parent: BlockHash, token_ids: list[int]) -> BlockHash:
    """The name of a full block holding token_ids, whose preceding block is named `parent`.

    SHA-256 and not Python's hash(): two prompts whose names collide would read each other's cache, and somebody who can
    choose a prompt must not be able to make that happen.
    """
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()


def hash_blocks(token_ids: list[int], block_size: int, salt: str | None = None) -> list[BlockHash]:
    """The names of all full blocks of a sequence, in order; a partial last block has none."""
    hashes, parent = [], root_hash(salt)
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = block_hash(parent, token_ids[start : start + block_size])
        hashes.append(parent)
    return hashes
