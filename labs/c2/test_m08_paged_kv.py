"""Checks of 2.8: the pool of blocks against a slow and obvious one, the known beginning, and both in a model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises
from labs.kit.conformance.requests import make_request
from labs.kit.tiny_model import TINY, generate, recompute
from minillm.kv.blocks import BlockPool as EnginesPool
from minillm.kv.paged import PagedKV
from minillm.kv.prefix_hash import hash_blocks

NAMES = [bytes([65 + i]) * 4 for i in range(26)]
FRONT = "blocks without a name are handed out first, then the one that has been free for longest"


def named(pool, count, first=0):
    """Blocks held once, each with a name."""
    for block, name in zip(blocks := pool.allocate(count), NAMES[first:], strict=False):
        pool.name(block, name)
    return blocks


@checks("BlockPool")
def test_each_block_is_handed_out_once(lab):
    pool = lab.BlockPool(5)
    assert_equal((pool.num_blocks, pool.num_free, pool.renamed), (5, 5, None), "num_blocks, num_free, renamed of a new pool of 5")
    assert_equal(pool.allocate(0), [], "allocate(0)")
    blocks, inputs = [*pool.allocate(2), *pool.allocate(3)], "a pool of 5 blocks, allocate(2) and allocate(3)"
    assert_equal(sorted(blocks), [0, 1, 2, 3, 4], "all blocks handed out, sorted", inputs=inputs)
    assert_equal(pool.num_free, 0, "num_free", inputs=inputs)
    pool.release(blocks[:2])
    assert_equal(pool.num_free, 2, "num_free after two were released", inputs=inputs)
    assert_equal(sorted(pool.allocate(2)), sorted(blocks[:2]), "the blocks handed out next", inputs=inputs)


@checks("BlockPool")
def test_a_released_block_keeps_its_name_until_it_is_handed_out(lab):
    pool = lab.BlockPool(3)
    blocks = named(pool, 2)
    assert_equal(pool.find(NAMES[:2]), blocks, "find of two names", inputs="two held blocks with these names")
    pool.release(blocks)
    hint = "release changes who holds a block, not what is in it: the name goes when the block is handed out again"
    assert_equal((pool.find(NAMES[:2]), pool.num_free), (blocks, 3), "find, and num_free, after release", hint=hint)
    new, inputs = pool.allocate(3), "two named blocks released, then all three blocks handed out to be written to"
    assert_equal(pool.find(NAMES[:1]), [], "find of the first name", inputs=inputs, hint="what was there will be overwritten")
    assert_equal([pool.is_named(block) for block in new], [False] * 3, "is_named of each", inputs=inputs)
    pool.name(new[0], NAMES[1])
    assert_equal(pool.find(NAMES[1:2]), new[:1], "find of a name given anew", inputs=inputs)


@checks("BlockPool")
def test_a_shared_block_is_free_when_its_last_holder_has_gone(lab):
    pool = lab.BlockPool(4)
    blocks = named(pool, 2)
    pool.hold(blocks)
    inputs = "two of four blocks, held by two requests"
    assert_equal((pool.num_free, pool.num_unheld(blocks)), (2, 0), "num_free and num_unheld", inputs=inputs)
    pool.release(blocks)
    assert_equal(pool.num_free, 2, "num_free after one request has gone", inputs=inputs, hint="one reference is left")
    pool.release(blocks)
    assert_equal((pool.num_free, pool.num_unheld(blocks)), (4, 2), "num_free and num_unheld after both have", inputs=inputs)
    pool.hold(pool.find(NAMES[:2]))
    assert_equal(pool.num_free, 2, "num_free", inputs="two free blocks, found and held", hint="hold takes a free block back")
    others = pool.allocate(2)
    assert_equal(set(others) & set(blocks), set(), "blocks that are held and were handed out as well")


@checks("BlockPool")
def test_a_second_release_is_refused(lab):
    for shared in (False, True):
        pool = lab.BlockPool(4)
        blocks = named(pool, 2)
        if shared:
            pool.hold(blocks)
            pool.release(blocks)
        pool.release(blocks)
        what = "release(blocks), once more than they were held"
        assert_raises(ValueError, lambda p=pool, b=blocks: p.release(b), what, hint="it would be handed to two requests")
        assert_raises(ValueError, lambda p=pool: p.release([3]), "release of a block that was never handed out")
        assert_equal(pool.num_free, 4, "num_free after the refusals", hint="a block stands among the free ones once at most")
        assert_equal(sorted(pool.allocate(4)), [0, 1, 2, 3], "all four blocks handed out, sorted")


@checks("BlockPool")
def test_the_order_in_which_blocks_are_forgotten(lab):
    pool = lab.BlockPool(6)
    old, new = named(pool, 2), named(pool, 2, first=2)
    bare = pool.allocate(2)
    for blocks in (old, bare, new):
        pool.release(blocks)
    inputs = f"{old} (named), {bare} (no names), {new} (named) released in this order, all of six"
    assert_equal(sorted(pool.allocate(2)), sorted(bare), "the first two handed out, sorted", inputs=inputs, hint=FRONT)
    hint = f"{FRONT}; the last block of a list becomes free before the others of it"
    assert_equal([pool.allocate(1)[0] for _ in range(4)], [*old[::-1], *new[::-1]], "the next four", inputs=inputs, hint=hint)


@checks("BlockPool")
def test_the_end_goes_first_of_a_list_with_shared_blocks_too(lab):
    pool = lab.BlockPool(4)
    blocks = named(pool, 4)
    pool.hold(blocks[:1])
    pool.release(blocks)
    inputs = f"{blocks} released, all named, and the first of them held by another request"
    hint = "from the last of the list to the first, whoever else holds some of them"
    assert_equal(pool.allocate(3), blocks[:0:-1], "the three blocks handed out", inputs=inputs, hint=hint)


@checks("BlockPool")
def test_a_block_that_was_used_again_is_forgotten_later(lab):
    pool = lab.BlockPool(2)
    a, b = named(pool, 1), named(pool, 1, first=1)
    pool.release(a)
    pool.release(b)
    pool.hold(pool.find(NAMES[:1]))
    pool.release(a)
    inputs = f"{a} released, then {b}, then {a} found, held and released again"
    assert_equal(pool.allocate(1), b, "allocate(1)", inputs=inputs, hint="the longest free is not the first ever released")


@checks("BlockPool")
def test_find_stops_at_the_first_gap(lab):
    pool = lab.BlockPool(4)
    blocks = named(pool, 3)
    for names, expected in (
        ([], []), (NAMES[:4], blocks), ([NAMES[9], *NAMES[:2]], []), ([NAMES[0], NAMES[9], NAMES[1]], blocks[:1]),
    ):  # fmt: skip
        said = [name.decode()[0] for name in names]
        hint = "what comes after a block that is missing has to be computed anyway"
        assert_equal(pool.find(iter(names)), expected, "find", inputs=f"names {said}; A, B and C are there", hint=hint)
    pool.release(blocks)
    pool.find(NAMES[:3])
    pool.find(NAMES[1:2])
    inputs = f"{blocks} (named A, B, C) released, then A, B, C and B found, and nobody held them; one block never had a name"
    hint = "finding changes nothing; a block is used again when it is held"
    assert_equal(pool.allocate(4)[1:], blocks[::-1], "the blocks handed out, without the first", inputs=inputs, hint=hint)
    pool = lab.BlockPool(4)
    blocks = named(pool, 3)
    pool.find(NAMES[:3]).clear()
    assert_equal(pool.find(NAMES[:3]), blocks, "find, after a caller emptied the list that it had got", hint="return a new list")


@checks("BlockPool")
def test_the_first_bearer_keeps_a_name(lab):
    pool = lab.BlockPool(3)
    a, b = named(pool, 1), pool.allocate(1)
    pool.name(b[0], NAMES[0])
    inputs = f"block {a[0]} is named A, then block {b[0]} is to be named A"
    assert_equal((pool.find(NAMES[:1]), pool.is_named(b[0])), (a, False), "find of A, and is_named of the second", inputs=inputs)
    pool.release(b)
    pool.allocate(2)
    hint = "the second never bore the name, so its end must not take the name away"
    assert_equal(pool.find(NAMES[:1]), a, "find of A when the second was handed out again", inputs=inputs, hint=hint)
    pool.name(a[0], NAMES[1])
    inputs = f"block {a[0]} is named A, then B"
    assert_equal((pool.find(NAMES[:1]), pool.find(NAMES[1:2])), (a, []), "find of A and of B", inputs=inputs)


@checks("BlockPool")
def test_renamed_tells_of_each_change(lab):
    pool = lab.BlockPool(3)
    first = named(pool, 1)  # nobody watches: must not fail
    pool.renamed = set()
    (block,) = pool.allocate(1)
    assert_equal(pool.renamed, set(), "renamed", inputs="a block without a name was handed out: nothing got or lost a name")
    pool.name(block, NAMES[0])
    assert_equal(pool.renamed, set(), "renamed", inputs="a name that another block bears: nothing has changed")
    pool.name(block, NAMES[1])
    assert_equal(pool.renamed, {block}, "renamed", inputs=f"block {block} got a name")
    pool.release(first)
    pool.renamed = set()
    pool.allocate(2)
    assert_equal(pool.renamed, set(first), "renamed", inputs=f"two blocks handed out, of which {first} had a name")
    pool.renamed = set()
    pool.forget_all()
    assert_equal(pool.renamed, {block}, "renamed after forget_all", inputs=f"only {block} had a name")


@checks("BlockPool")
def test_forget_all_takes_names_and_nothing_else(lab):
    pool = lab.BlockPool(4)
    held, freed = named(pool, 1), named(pool, 1, first=1)
    pool.release(freed)
    pool.forget_all()
    got = pool.find(NAMES[:1]), pool.find(NAMES[1:2]), pool.num_free, pool.is_named(held[0])
    assert_equal(got, ([], [], 3, False), "two finds, num_free, is_named", inputs="a held and a free block with names, forgotten")
    pool.check_integrity([held])
    pool.name(held[0], NAMES[1])
    assert_equal(pool.find(NAMES[1:2]), held, "find", inputs="a held block named again after forget_all")
    pool.hold(held)
    pool.forget_all()
    pool.name(held[0], NAMES[2])
    assert_equal(pool.find(NAMES[2:3]), held, "find", inputs="the same, for a block that two hold")


@checks("BlockPool")
def test_check_integrity_compares_with_who_holds_what(lab):
    pool = lab.BlockPool(4)
    blocks = named(pool, 2)
    pool.hold(blocks[:1])
    pool.check_integrity(iter([blocks, blocks[:1]]))
    for held in ([blocks], [blocks, blocks], [[*blocks, *blocks[:1]]], [blocks, blocks[:1], [3]], []):
        inputs = f"check_integrity({held}), where [{blocks}, {blocks[:1]}] is true"
        assert_raises(AssertionError, lambda h=held: pool.check_integrity(h), inputs)


class Plain:
    """A pool without any order: what is held, how often, and which names stand where."""

    def __init__(self, size):
        self.size, self.held, self.names = size, [], {}

    def references(self, block):
        return sum(block in blocks for blocks in self.held)

    def free(self):
        return [block for block in range(self.size) if not self.references(block)]


@checks("BlockPool")
@given(size=st.integers(1, 6), moves=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 9)), max_size=30))
def test_any_order_of_calls(lab, size, moves):
    """Requests take blocks, name them, find and share them, and go, in any order."""
    pool, plain = lab.BlockPool(size), Plain(size)
    for move, number, name in moves:
        if move == 0 and number <= len(plain.free()):
            blocks, said = pool.allocate(number), f"{move=} allocate({number})"
            assert_equal(len(set(blocks)), number, "different blocks handed out", inputs=said)
            assert_equal(sorted(set(blocks) - set(plain.free())), [], "blocks handed out that are held", inputs=said)
            plain.held.append(list(blocks))
            plain.names = {n: b for n, b in plain.names.items() if b not in blocks}
        elif move == 1 and plain.held:
            blocks = plain.held[number % len(plain.held)]
            for block in blocks[:1]:
                pool.name(block, NAMES[name])
                if NAMES[name] not in plain.names and block not in plain.names.values():
                    plain.names[NAMES[name]] = block
        elif move == 2 and plain.held:
            blocks = plain.held.pop(number % len(plain.held))
            pool.release(blocks)
        elif move == 3:
            names = NAMES[name : name + number]
            expected = []
            for each in names:
                if each not in plain.names:
                    break
                expected.append(plain.names[each])
            found = pool.find(names)
            assert_equal(found, expected, "find", inputs=f"names there: {sorted(plain.names)}, asked for {names}")
            unheld = sum(block in plain.free() for block in found)
            assert_equal(pool.num_unheld(found), unheld, "num_unheld", inputs=f"blocks {found}, held lists {plain.held}")
            pool.hold(found)
            plain.held.append(list(found))
        elif move == 4 and number == 0:
            pool.forget_all()
            plain.names = {}
        assert_equal(pool.num_free, len(plain.free()), "num_free", inputs=f"{size} blocks, held lists {plain.held}")
        bearers = [block for block in range(size) if pool.is_named(block)]
        assert_equal(bearers, sorted(plain.names.values()), "blocks with a name", inputs=f"held lists {plain.held}")
        pool.check_integrity(plain.held)


# Two full blocks of four that all have in common; the last text is the first once more.
COMMON = [7, 7, 8, 9, 3, 1, 4, 1]
TEXTS = [[*COMMON, 5, 9], [*COMMON, 20, 30], COMMON, [*COMMON, 5, 9]]


def tokens_like_without_a_cache(kv, what):
    answers = generate(kv, [*TEXTS, [2] * 11], [9, 7, 5, 9, 6], num_running=2, budget=12)
    for number, answer in enumerate(answers):
        for i, logits in enumerate(answer.logits):
            text = answer.token_ids[: answer.num_prompt_tokens + i]
            assert_close(
                logits, recompute(text), f"logits of answer token {i} of request {number}", atol=1e-4, rtol=0, inputs=what,
                hint="does a block belong to two requests that write to it, or does a name lead to other tokens?",
            )  # fmt: skip
    assert_equal(kv.num_free, kv.num_blocks, "num_free when all requests are done", inputs=what)


@checks("BlockPool")
@pytest.mark.parametrize("num_blocks", [8, 6])
def test_a_model_cannot_tell_it_from_computing_everything_again(lab, num_blocks):
    kv = PagedKV(TINY, num_blocks, 4, torch.float32, make_pool=lab.BlockPool)
    tokens_like_without_a_cache(kv, f"five requests, two at a time, in {num_blocks} blocks of 4 tokens")


TOKENS = list(range(10, 22))


def filled(tokens, size, salt=None):
    """The engine's own pool, after a request with these tokens was computed and has gone."""
    pool, names = EnginesPool(12), hash_blocks(tokens, size, salt)
    blocks = pool.allocate(len(names))
    for block, name in zip(blocks, names, strict=True):
        pool.name(block, name)
    pool.release(blocks)
    return pool, blocks


@checks("match_prefix")
@pytest.mark.parametrize("size", [4, 1, 5])
def test_it_finds_what_is_there_and_leaves_a_token(lab, size):
    pool, blocks = filled(TOKENS, size)
    text = [*TOKENS, 50, 51, 52]
    for length in range(1, len(text) + 1):
        expected = blocks[: min(len(TOKENS) // size, (length - 1) // size)]
        inputs = f"{length} known tokens, the first {min(length, len(TOKENS))} are cached, blocks of {size}"
        hint = "at least the last known token is left to compute, and a block is taken whole or not at all"
        got = lab.match_prefix(make_request(text[:length]), size, pool)
        assert_equal(got, expected, "match_prefix", inputs=inputs, hint=hint)
    assert_equal(pool.num_free, 12, "num_free of the pool afterwards", hint="finding is not holding: the caller holds")


@checks("match_prefix")
def test_equal_tokens_after_another_beginning_do_not_match(lab):
    pool, blocks = filled(TOKENS, 4)
    hint = "a block's keys and values depend on all tokens before it: its name goes through the name of the block before"
    for place, expected in ((0, []), (5, blocks[:1]), (9, blocks[:2])):
        text = [*TOKENS, 50]
        text[place] = 99
        inputs = f"cached {TOKENS} in blocks of 4, asked for {text}"
        assert_equal(lab.match_prefix(make_request(text), 4, pool), expected, "match_prefix", inputs=inputs, hint=hint)


@checks("match_prefix")
def test_only_equal_salts_share(lab):
    for salt in (None, "", "a"):
        pool, blocks = filled(TOKENS, 4, salt)
        for asked in (None, "", "a", "b"):
            got = lab.match_prefix(make_request([*TOKENS, 1], cache_salt=asked), 4, pool)
            expected = blocks if asked == salt else []
            hint = "the chain begins at root_hash(request.cache_salt)"
            assert_equal(got, expected, "match_prefix", inputs=f"computed with salt {salt!r}, asked with {asked!r}", hint=hint)


@checks("match_prefix")
def test_answers_count_when_a_request_comes_back(lab):
    pool, blocks = filled(TOKENS, 4)
    request = make_request(TOKENS[:5])
    request.token_ids += [*TOKENS[5:], 50]
    said = "a prompt of 5 tokens and 8 generated ones, 12 of the 13 cached in blocks of 4"
    assert_equal(
        lab.match_prefix(request, 4, pool), blocks, "match_prefix", inputs=said, hint="token_ids include what was generated"
    )


@checks("match_prefix")
def test_names_are_computed_once(lab):
    pool, blocks = filled(TOKENS, 4)
    names, request = hash_blocks(TOKENS, 4), make_request(TOKENS[:9])
    said = "a request of 9 tokens in blocks of 4, all cached, asked for three times, then of 13"
    for _ in range(3):
        assert_equal(lab.match_prefix(request, 4, pool), blocks[:2], "match_prefix", inputs=said)
        assert_equal(request.block_hashes, names[:2], "block_hashes", inputs=said, hint="append each name once, in order")
    request.token_ids += [*TOKENS[9:], 50]
    assert_equal(lab.match_prefix(request, 4, pool), blocks, "match_prefix", inputs=said, hint="go on from the names there are")
    assert_equal(request.block_hashes, names, "block_hashes", inputs=said)
    pool.name(pool.allocate(1)[0], b"mark")
    request = make_request([1, 2, 3, 4, 5])
    request.block_hashes = [b"mark"]
    said = "block_hashes of a request begins with a name that only we know, and a block bears it"
    found = lab.match_prefix(request, 4, pool)
    assert_equal(len(found), 1, "the number of blocks", inputs=said, hint="use the names that are there as they are")


@checks("match_prefix")
def test_more_names_than_needed_are_no_permission(lab):
    pool, blocks = filled(TOKENS, 4)
    request, names = make_request(TOKENS[:8]), hash_blocks(TOKENS[:8], 4)
    request.block_hashes = list(names)
    said = "8 known tokens in blocks of 4, both blocks named and cached"
    assert_equal(lab.match_prefix(request, 4, pool), blocks[:1], "match_prefix", inputs=said, hint="one token is left")
    assert_equal(request.block_hashes, names, "block_hashes afterwards", inputs=said, hint="do not cut it")


@checks("match_prefix")
def test_the_request_is_only_asked(lab):
    pool, _ = filled(TOKENS, 4)
    lab.match_prefix(request := make_request(TOKENS), 4, pool)
    got = request.token_ids, request.num_computed_tokens, request.block_ids
    hint = "the caller holds what was found, and says how much of it is computed; block_hashes alone may grow"
    assert_equal(got, (TOKENS, 0, []), "token_ids, num_computed_tokens, block_ids", inputs="12 cached tokens", hint=hint)


@checks("match_prefix")
@pytest.mark.parametrize("size", [4, 1])
def test_a_model_cannot_tell_that_a_beginning_was_shared(lab, size):
    found = []

    def watched(request, block_size, pool):
        blocks = lab.match_prefix(request, block_size, pool)
        found.append(len(blocks))
        return blocks

    kv = PagedKV(TINY, 36 // size, size, torch.float32, find_prefix=watched)
    tokens_like_without_a_cache(kv, f"five requests, two at a time, in {36 // size} blocks of {size} tokens")
    assert sum(found) > 0, "nothing was ever found, although four of five requests begin alike"
