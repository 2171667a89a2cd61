"""Mistakes planted in 2.8."""

from labs.kit.conformance.requests import make_request
from labs.kit.wrong import patch, replace
from minillm.kv.blocks import BlockPool
from minillm.kv.prefix import block_names
from minillm.kv.prefix_hash import block_hash, hash_blocks, root_hash


def blocks_come_and_go(subject):
    """The test one would write first: take two, give them back, take them again; name one and find it."""
    pool = subject(4)
    blocks = pool.allocate(2)
    assert len(set(blocks)) == 2 and pool.num_free == 2
    pool.name(blocks[0], b"name")
    assert pool.find([b"name"]) == blocks[:1]
    pool.release(blocks)
    assert pool.num_free == 4 and len(set(pool.allocate(4))) == 4


def a_longer_prompt_finds_the_shorter_one(subject):
    pool, tokens = BlockPool(8), list(range(10, 19))
    for block, name in zip(pool.allocate(2), hash_blocks(tokens, 4), strict=True):
        pool.name(block, name)
    assert len(subject(make_request(tokens), 4, pool)) == 2 and subject(make_request([1] * 9), 4, pool) == []


def stops_a_token_late(request, block_size, pool):
    return pool.find(block_names(request, block_size, request.num_tokens // block_size))


def leaves_a_whole_block(request, block_size, pool):
    return pool.find(block_names(request, block_size, max(0, request.num_tokens // block_size - 1)))


def looks_at_the_prompt_only(request, block_size, pool):
    return pool.find(block_names(request, block_size, (request.num_prompt_tokens - 1) // block_size))


def forgets_the_salt(request, block_size, pool):
    return pool.find(hash_blocks(request.token_ids, block_size)[: (request.num_tokens - 1) // block_size])


def always_from_the_root(request, block_size, pool):
    count, root = (request.num_tokens - 1) // block_size, root_hash(request.cache_salt)
    starts = range(0, count * block_size, block_size)
    return pool.find([block_hash(root, request.token_ids[start : start + block_size]) for start in starts])


def hashes_anew_each_time(request, block_size, pool):
    count = (request.num_tokens - 1) // block_size
    return pool.find(hash_blocks(request.token_ids, block_size, request.cache_salt)[:count])


def appends_them_again(request, block_size, pool):
    names = hash_blocks(request.token_ids, block_size, request.cache_salt)[: (request.num_tokens - 1) // block_size]
    request.block_hashes += names
    return pool.find(names)


def uses_all_names_there_are(request, block_size, pool):
    block_names(request, block_size, (request.num_tokens - 1) // block_size)
    return pool.find(request.block_hashes)


def holds_what_it_finds(request, block_size, pool):
    blocks = pool.find(block_names(request, block_size, (request.num_tokens - 1) // block_size))
    pool.hold(blocks)
    return blocks


def books_what_it_finds(request, block_size, pool):
    request.block_ids = pool.find(block_names(request, block_size, (request.num_tokens - 1) // block_size))
    request.num_computed_tokens = len(request.block_ids) * block_size
    return list(request.block_ids)


class FoundIsUsed(BlockPool):
    """find counts as a use: whoever only waits, and looks each step, keeps its beginning for ever."""

    def find(self, names):
        blocks = super().find(names)
        for block in blocks:
            if block in self._free:
                self._free.move_to_end(block)
        return blocks


class SharedListsTheOtherWay(BlockPool):
    """The order is turned where a block of the list stays held."""

    def release(self, blocks):
        super().release(blocks[::-1] if any(self._references[block] > 1 for block in blocks) else blocks)


class NamedByItsOnlyHolder(BlockPool):
    def name(self, block, name):
        if self._references[block] == 1:
            super().name(block, name)


def end_first(request, block_size, pool):
    return pool.find(block_names(request, block_size, (request.num_tokens - 1) // block_size))[::-1]


WRONG = {
    "BlockPool": {
        "double_free_in_silence": patch(
            "            if self._references[block] == 0:\n"
            '                raise ValueError(f"block {block} is released and nobody holds it: some request was freed twice")\n',
            "            if self._references[block] == 0:\n                continue\n",
            "a second release is passed over: the mistake that caused it is never found",
        ),
        "name_goes_with_its_holder": patch(
            "                self._free[block] = None\n",
            "                self._forget(block)\n                self._free[block] = None\n",
            "a released block loses its name: nothing is ever found after its request has gone",
        ),
        "name_outlives_its_contents": patch(
            "            self._forget(block)\n            self._references[block] = 1",
            "            self._references[block] = 1",
            "a block handed out keeps its old name: others find what is being overwritten",
        ),
        "free_at_the_first_release": patch(
            "            self._references[block] -= 1\n",
            "            self._references[block] = 0\n",
            "a shared block is free too early",
        ),
        "found_but_still_free": patch(
            "                del self._free[block]\n", "                pass\n", "hold leaves the block among the free ones"
        ),
        "beginning_goes_first": patch(
            "for block in reversed(blocks):", "for block in list(blocks):", "a text's beginning is overwritten before its end"
        ),
        "turns_the_table_round": patch(
            "        for block in reversed(blocks):\n",
            "        blocks.reverse()\n        for block in blocks:\n",
            "release changes the caller's list",
        ),
        "newest_is_overwritten_first": patch(
            "self._free.popitem(last=False)[0]", "self._free.popitem(last=True)[0]", "a stack: what was just used is forgotten"
        ),
        "empty_blocks_wait_too": patch(
            "                    self._free.move_to_end(block, last=False)\n",
            "                    self._free.move_to_end(block)\n",
            "blocks that hold nothing go to the end, and a prefix is overwritten in their place",
        ),
        "last_bearer_takes_the_name": patch(
            "if name not in self._named and self._hash_of[block] is None:",
            "if self._hash_of[block] is None:",
            "the second block takes the name over, and its end takes the name from the first",
        ),
        "named_twice": patch(
            " and self._hash_of[block] is None:", ":", "a second name: when the block is handed out the first one stays"
        ),
        "find_skips_gaps": patch(
            "                break\n", "                continue\n", "find goes on after a block that is missing"
        ),
        "counts_all_as_held": patch(
            "sum(self._references[block] == 0 for block in blocks)",
            "len(list(blocks))",
            "num_unheld counts shared blocks as well",
        ),
        "tells_nobody": patch(
            "            renamed.add(block)", "            pass", "renamed stays empty: the live page shows no names"
        ),
        "tells_of_every_block": patch(
            "            self._forget(block)\n            self._references[block] = 1",
            "            self._forget(block)\n            self._note_renamed(block)\n            self._references[block] = 1",
            "renamed lists blocks that never had a name",
        ),
        "integrity_is_not_checked": patch(
            'assert counted == self._references, "reference counts differ from what requests hold"',
            "pass",
            "references are not compared",
        ),
        "found_is_used": replace(FoundIsUsed, "find moves what it finds to the end of the queue"),
        "shared_lists_the_other_way": replace(
            SharedListsTheOtherWay, "with a shared block in it a list is freed from its beginning"
        ),
        "named_by_its_only_holder": replace(NamedByItsOnlyHolder, "a block that two hold gets no name"),
        "forget_all_frees": patch(
            "            self._forget(block)\n\n    def _forget",
            "            self._forget(block)\n            self._references[block] = 0\n            self._free[block] = None\n\n"
            "    def _forget",
            "forget_all gives away what requests still hold",
        ),
    },
    "match_prefix": {
        "fully_cached_leaves_nothing": replace(
            stops_a_token_late, "of 32 cached tokens all 32 are found: no logits to go on with"
        ),
        "leaves_a_whole_block": replace(leaves_a_whole_block, "a block too few wherever the text does not end with a block"),
        "looks_at_the_prompt_only": replace(looks_at_the_prompt_only, "a request that gave way computes its answer again"),
        "forgets_the_salt": replace(forgets_the_salt, "every tenant shares with every other"),
        "always_from_the_root": replace(always_from_the_root, "no chain: only first blocks are found"),
        "hashes_anew_each_time": replace(hashes_anew_each_time, "block_hashes is neither read nor written"),
        "appends_them_again": replace(appends_them_again, "block_hashes grows with every look, and its places are wrong"),
        "uses_all_names_there_are": replace(uses_all_names_there_are, "names known from before lead past the last token"),
        "holds_what_it_finds": replace(
            holds_what_it_finds, "found blocks are held, and held again by the caller: they never come back"
        ),
        "books_what_it_finds": replace(books_what_it_finds, "changes the request, which may not be admitted at all"),
        "end_first": replace(end_first, "the blocks come in the wrong order"),
    },
}

HAPPY = {"BlockPool": blocks_come_and_go, "match_prefix": a_longer_prompt_finds_the_shorter_one}
