"""The search for a request's beginning, apart from the cache that asks for it."""

import pytest

from labs.kit.conformance.requests import make_request
from minillm.kv.blocks import BlockPool
from minillm.kv.prefix import block_names, match_prefix
from minillm.kv.prefix_hash import hash_blocks

TOKENS = list(range(10, 22))  # three blocks of four


def filled(tokens, size, salt=None) -> tuple[BlockPool, list[int]]:
    """A pool in which the full blocks of `tokens` have been computed and given back."""
    pool, names = BlockPool(8), hash_blocks(tokens, size, salt)
    blocks = pool.allocate(len(names))
    for block, name in zip(blocks, names, strict=True):
        pool.name(block, name)
    pool.release(blocks)
    return pool, blocks


@pytest.mark.parametrize("length, found", [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2), (13, 3), (17, 3)])
def test_one_known_token_is_always_left(length, found):
    pool, blocks = filled(TOKENS, 4)
    request = make_request((TOKENS + [50] * 5)[:length])
    assert match_prefix(request, 4, pool) == blocks[:found]
    assert pool.num_free == 8, "finding holds nothing"


def test_names_are_kept_with_the_request_and_go_on_where_they_stopped():
    pool, _ = filled(TOKENS, 4)
    request = make_request(TOKENS[:9])
    match_prefix(request, 4, pool)
    assert request.block_hashes == hash_blocks(TOKENS[:8], 4)
    request.token_ids += TOKENS[9:]
    assert block_names(request, 4, 3) == hash_blocks(TOKENS, 4) == request.block_hashes
    request.block_hashes[0] = b"known"
    assert block_names(request, 4, 2) == [b"known", hash_blocks(TOKENS, 4)[1]], "what is known is not computed again"


def test_a_salt_and_another_beginning_find_nothing():
    pool, blocks = filled(TOKENS, 4, salt="a")
    assert match_prefix(make_request(TOKENS, cache_salt="a"), 4, pool) == blocks[:2]
    assert match_prefix(make_request(TOKENS), 4, pool) == []
    assert match_prefix(make_request([9, *TOKENS[1:]], cache_salt="a"), 4, pool) == []
