"""The pool of blocks alone: order, references, names."""

import pytest

from minillm.kv.blocks import BlockPool

NAMES = [bytes([i]) * 32 for i in range(16)]


def named(pool: BlockPool, count: int, first_name: int = 0) -> list[int]:
    """Blocks held once, each with a name."""
    blocks = pool.allocate(count)
    for block, name in zip(blocks, NAMES[first_name:], strict=False):
        pool.name(block, name)
    return blocks


def order(pool: BlockPool) -> list[int]:
    """The free list, next to be handed out first."""
    return list(pool._free)


def test_blocks_are_handed_out_in_order_and_once():
    pool = BlockPool(6)
    assert pool.allocate(2) == [0, 1] and pool.allocate(0) == [] and pool.allocate(4) == [2, 3, 4, 5]
    assert pool.num_free == 0


def test_freed_blocks_without_a_name_are_the_next_to_be_handed_out():
    pool = BlockPool(6)
    blocks = pool.allocate(3)
    pool.release(blocks)
    assert order(pool) == [0, 1, 2, 3, 4, 5]


def test_freed_blocks_with_a_name_go_to_the_end_last_block_first():
    pool = BlockPool(6)
    pool.release(named(pool, 3))
    assert order(pool) == [3, 4, 5, 2, 1, 0], "a prefix outlives its end"


def test_a_request_with_full_blocks_and_a_partial_one():
    pool = BlockPool(6)
    blocks = named(pool, 2) + pool.allocate(1)
    pool.release(blocks)
    assert order(pool) == [2, 3, 4, 5, 1, 0]


def test_the_least_recently_freed_is_evicted_first():
    pool = BlockPool(4)
    a, b = named(pool, 2), named(pool, 2, first_name=2)
    pool.release(b)
    pool.release(a)
    assert pool.allocate(2) == [b[1], b[0]]
    assert pool.find(NAMES[2:4]) == [] and pool.find(NAMES[:2]) == a


def test_being_found_again_makes_a_block_recent():
    pool = BlockPool(4)
    a, b = named(pool, 2), named(pool, 2, first_name=2)
    pool.release(a)
    pool.release(b)
    pool.hold(pool.find(NAMES[:2]))
    pool.release(a)
    assert order(pool) == [b[1], b[0], a[1], a[0]]


def test_find_stops_at_the_first_that_is_missing():
    pool = BlockPool(4)
    blocks = named(pool, 3)
    assert pool.find(NAMES[:4]) == blocks
    assert pool.find([NAMES[0], NAMES[9], NAMES[1]]) == blocks[:1]
    assert pool.find([NAMES[9], *NAMES[:2]]) == [] and pool.find([]) == []


def test_names_survive_freeing_until_the_block_is_needed():
    pool = BlockPool(3)
    blocks = named(pool, 2)
    pool.release(blocks)
    assert pool.find(NAMES[:2]) == blocks, "freed and still to be found"
    assert pool.allocate(2) == [2, blocks[1]]
    assert pool.find(NAMES[:2]) == blocks[:1], "the end was overwritten, the beginning was not"


def test_holding_and_releasing_count():
    pool = BlockPool(4)
    blocks = named(pool, 2)
    assert pool.num_unheld(blocks) == 0
    pool.hold(blocks)
    pool.release(blocks)
    assert pool.num_free == 2, "one holder is left"
    pool.check_integrity([blocks])
    pool.release(blocks)
    assert pool.num_free == 4 and pool.num_unheld(blocks) == 2 and pool.num_unheld([*blocks, 3]) == 3
    pool.hold(blocks)
    assert pool.num_free == 2 and order(pool) == [2, 3], "a held block is not free, however it came to be held"
    pool.check_integrity([blocks])


def test_a_second_release_is_refused():
    pool = BlockPool(4)
    blocks = named(pool, 2)
    pool.release(blocks)
    with pytest.raises(ValueError, match="block 1 is released and nobody holds it"):
        pool.release(blocks)
    pool.check_integrity([])


def test_the_first_bearer_of_a_name_keeps_it():
    """Two requests computed one prefix side by side: both blocks stay valid, one of them is findable."""
    pool = BlockPool(4)
    (a,), (b,) = named(pool, 1), pool.allocate(1)
    pool.name(b, NAMES[0])
    assert pool.find(NAMES[:1]) == [a]
    pool.release([b])
    assert pool.find(NAMES[:1]) == [a] and order(pool)[0] == b, "the unnamed twin is the next to be handed out"
    pool.check_integrity([[a]])


def test_a_block_has_one_name_for_as_long_as_it_is_held():
    pool = BlockPool(2)
    (a,) = named(pool, 1)
    pool.name(a, NAMES[1])
    assert pool.find(NAMES[:1]) == [a] and pool.find(NAMES[1:2]) == []
    pool.check_integrity([[a]])


def test_forget_all_drops_names_and_keeps_references():
    pool = BlockPool(4)
    held, freed = named(pool, 1), named(pool, 1, first_name=1)
    pool.release(freed)
    pool.forget_all()
    assert pool.find(NAMES[:1]) == pool.find(NAMES[1:2]) == [] and pool.num_free == 3
    pool.check_integrity([held])
    pool.name(held[0], NAMES[1])
    assert pool.find(NAMES[1:2]) == held


@pytest.mark.parametrize("damage, message", [
    (lambda pool: pool._references.__setitem__(0, 2), "reference counts"),
    (lambda pool: pool.release([0]), "reference counts"),
    (lambda pool: pool._free.popitem(), "free list"),
    (lambda pool: pool._free.__setitem__(0, None), "free list"),
    (lambda pool: pool._named.__setitem__(NAMES[0], 1), "does not bear it"),
    (lambda pool: pool._named.clear(), "cannot be found"),
])  # fmt: skip
def test_the_integrity_check_sees(damage, message):
    pool = BlockPool(4)
    held = [named(pool, 2)]
    pool.check_integrity(held)
    damage(pool)
    with pytest.raises(AssertionError, match=message):
        pool.check_integrity(held)


def test_the_integrity_check_sees_a_block_held_twice_by_one_request():
    with pytest.raises(AssertionError, match="twice"):
        BlockPool(4).check_integrity([[1, 1]])
