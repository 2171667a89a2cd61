import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm.kv.prefix_hash import block_hash, hash_blocks, root_hash

TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_names_are_equal_just_as_far_as_the_sequences_are(a, b, size):
    names = [hash_blocks(tokens, size) for tokens in (a, b)]
    assert [len(n) for n in names] == [len(a) // size, len(b) // size], "only full blocks have names"
    for i, (x, y) in enumerate(zip(*names, strict=False), start=1):
        assert (x == y) == (a[: i * size] == b[: i * size])


def test_one_block_after_different_prefixes_has_different_names():
    (_, a), (_, b) = hash_blocks([1, 2, 7, 8], 2), hash_blocks([1, 3, 7, 8], 2)
    assert a != b


def test_a_salt_changes_every_name_and_the_empty_salt_is_one():
    names = {salt: hash_blocks([1, 2, 3, 4], 2, salt) for salt in (None, "", "a", "b")}
    everything = [name for chain in names.values() for name in chain]
    assert len(set(everything)) == len(everything)
    assert names["a"] == hash_blocks([1, 2, 3, 4], 2, "a")


@pytest.mark.parametrize("a, b", [([1], [256]), ([1, 2], [2, 1]), ([0], [0, 0]), ([0], [2**32]), ([12, 3], [1, 23])])
def test_token_ids_do_not_run_into_each_other(a, b):
    assert block_hash(root_hash(), a) != block_hash(root_hash(), b)


def test_names_are_the_same_in_every_process():
    """Pinned: a cache that outlives the process, or is shared by two, finds its blocks again."""
    assert hash_blocks([1, 2, 3], 2)[0].hex().startswith(PINNED)


PINNED = "5d8bb3bb5aa40477"
