"""Checks for a KVCache (minillm.kv.base). subject: its class, called as (model config, num_blocks, block_size, dtype)."""

from __future__ import annotations

import itertools
import random

import torch

from labs.kit.conformance.memory import Memory
from labs.kit.conformance.requests import NO_MODEL, computed, give_back, make_request, run_prompt

BLOCKS, SIZE = 6, 8


def _cache(subject, num_blocks: int = BLOCKS, block_size: int = SIZE):
    return subject(NO_MODEL, num_blocks, block_size, torch.float32)


def _fill(kv) -> list:
    """Requests of different one-block prompts until no more is admitted."""
    held = []
    while len(held) <= kv.num_blocks:
        request = make_request([10 + len(held)] * SIZE)
        if not kv.start(request):
            return held
        assert kv.allocate(request, SIZE), (
            f"start said True for a request of {SIZE} tokens, and allocate(request, {SIZE}) said False: "
            f"a block of {SIZE} tokens may be filled to its last slot"
        )
        held.append(request)
    raise AssertionError(f"{len(held)} requests of a whole block each were admitted to {kv.num_blocks} blocks")


def check_a_new_cache_is_empty(subject):
    kv = _cache(subject)
    got, expected = (kv.num_blocks, kv.block_size), (BLOCKS, SIZE)
    assert got == expected, f"made with num_blocks, block_size = {expected}; the attributes of these names are {got}"
    layers = f"layers must be the list that allocate_layers gives, a tensor a layer ({NO_MODEL.num_layers} here)"
    assert isinstance(kv.layers, list) and len(kv.layers) == NO_MODEL.num_layers, f"{layers}; got {type(kv.layers).__name__}"
    assert kv.num_free == BLOCKS, f"a new cache of {BLOCKS} blocks: num_free is {kv.num_free}, expected {BLOCKS}"
    assert kv.usage == 0, f"a new cache of {BLOCKS} blocks: usage is {kv.usage}, expected 0"
    kv.check_integrity()


def check_answers_are_true_or_false(subject):
    """A method that returns nothing returns None, which counts as "no"."""
    kv = _cache(subject)
    request = make_request(range(10, 15))
    for name, got in (
        ("start(request)", kv.start(request)),
        ("allocate(request, 5)", kv.allocate(request, 5)),
        ("start(another, keep_free=6)", kv.start(make_request([9]), keep_free=BLOCKS)),
        ("fits_alone(1)", kv.fits_alone(1)),
    ):
        assert isinstance(got, bool), f"{name} returned {got!r}, expected True or False{'; is a return missing?' * (got is None)}"


def check_a_request_gets_slots_for_all_its_tokens(subject):
    kv = _cache(subject)
    request = make_request(range(10, 15), max_tokens=3)
    assert kv.start(request), f"an empty cache of {BLOCKS} blocks of {SIZE} tokens refused a request of 5 tokens"
    for step in (2, 3, 1, 1):
        if request.num_computed_tokens + step > request.num_tokens:
            request.token_ids.append(7)
        computed(kv, request, step)
        assert isinstance(request.block_ids, list) and all(isinstance(block, int) for block in request.block_ids), (
            f"request.block_ids is {request.block_ids!r}, expected a list of int"
        )
        room = len(request.block_ids) * kv.block_size
        assert room >= request.num_computed_tokens, (
            f"{request.num_computed_tokens} tokens are computed, the request holds {request.block_ids}: room for {room}"
        )
        assert all(0 <= block < BLOCKS for block in request.block_ids), (
            f"block ids {request.block_ids}, expected from 0 to {BLOCKS - 1}"
        )
        kv.check_integrity()


def check_a_request_keeps_its_slots_while_it_grows(subject):
    kv = _cache(subject)
    request = make_request(range(10, 15))
    kv.start(request)
    kv.allocate(request, 5)
    before = list(request.block_ids)
    request.num_computed_tokens = 5
    kv.allocate(request, 1)
    assert request.block_ids[: len(before)] == before, f"blocks {before} became {request.block_ids}: their contents are lost"


def check_two_requests_never_write_to_one_slot(subject):
    held = _fill(_cache(subject))
    blocks = [block for request in held for block in request.block_ids]
    assert len(blocks) == len(set(blocks)), (
        f"requests of different prompts hold {[r.block_ids for r in held]}: a block that two hold mixes their texts. "
        "Is a block that was handed out still listed as free?"
    )
    assert len(held) == BLOCKS, (
        f"{BLOCKS} blocks, requests of one block each: {len(held)} were admitted, expected {BLOCKS}. Is one never used?"
    )


def check_full_means_false_and_nothing_changes(subject):
    kv = _cache(subject)
    held = _fill(kv)
    assert kv.num_free == 0, f"{len(held)} requests hold a block each of {BLOCKS}: num_free is {kv.num_free}, expected 0"
    assert kv.usage == 1, f"all {BLOCKS} blocks are held: usage is {kv.usage}, expected 1"
    late = make_request([9, 9])
    assert not kv.start(late), f"all {BLOCKS} blocks are held, and start admitted one request more; expected False"
    assert late.block_ids == [], f"start said False, and the refused request holds {late.block_ids}; nothing may change"
    assert late.num_computed_tokens == 0, f"start said False and set num_computed_tokens to {late.num_computed_tokens}"
    held[0].num_computed_tokens = SIZE
    before = list(held[0].block_ids)
    assert not kv.allocate(held[0], 1), (
        f"a request has {SIZE} tokens computed, its block of {SIZE} is full and none is free: allocate(request, 1) said True"
    )
    assert held[0].block_ids == before, f"allocate said False and changed block_ids from {before} to {held[0].block_ids}"
    kv.check_integrity()


def check_keep_free_leaves_that_many_blocks(subject):
    kv = _cache(subject)
    request = make_request([5] * SIZE)
    assert not kv.start(request, keep_free=BLOCKS), (
        f"{BLOCKS} blocks, start(request, keep_free={BLOCKS}): one would be taken and {BLOCKS - 1} stay free; expected False"
    )
    assert kv.num_free == BLOCKS, f"start said False, and num_free fell from {BLOCKS} to {kv.num_free}"
    assert kv.start(request, keep_free=BLOCKS - 1), (
        f"{BLOCKS} blocks, start(request, keep_free={BLOCKS - 1}): just {BLOCKS - 1} would stay free; expected True"
    )
    assert kv.allocate(request, SIZE), f"a request of {SIZE} tokens was admitted, and allocate(request, {SIZE}) said False"
    assert kv.num_free == BLOCKS - 1, f"one request of one block runs: num_free is {kv.num_free}, expected {BLOCKS - 1}"


def check_free_gives_all_back_and_twice_is_harmless(subject):
    kv = _cache(subject)
    held = _fill(kv)
    for count, request in enumerate(held, start=1):
        for second in (False, True):
            kv.free(request)
            assert kv.num_free == count, (
                f"{count} of {BLOCKS} requests of one block were freed, the last one {'twice' if second else 'once'}: "
                f"num_free is {kv.num_free}, expected {count}"
            )
            assert request.block_ids == [], f"a freed request still lists {request.block_ids}: it would free them again"
            kv.check_integrity()
    assert kv.usage == 0, f"everything was freed: usage is {kv.usage}, expected 0"
    kv.free(make_request([5]))  # one that never held anything
    again = len(_fill(kv))
    assert again == BLOCKS, f"all {BLOCKS} blocks were freed, and {again} could be handed out again"


def check_at_least_one_token_is_left_to_compute(subject):
    """The logits that choose the next token are not in the cache, so a prompt seen before may not vanish altogether."""
    for size, length in itertools.product((SIZE, 3 * SIZE), (1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE)):
        kv = _cache(subject, block_size=size)
        if not kv.fits_alone(length):
            continue
        prompt = range(10, 10 + length)
        kv.free(run_prompt(kv, make_request(prompt)))
        again = make_request(prompt)
        assert kv.start(again), f"{BLOCKS} blocks of {size} tokens, all free: a request of {length} tokens was refused"
        assert again.num_computed_tokens < length, f"{length} known tokens, all {again.num_computed_tokens} taken as computed"


def check_fits_alone_is_what_fits_in_an_empty_cache(subject):
    for tokens in range(1, BLOCKS * SIZE + 2):
        kv = _cache(subject)
        request = make_request([5] * tokens)
        fits = kv.start(request) and kv.allocate(request, tokens - request.num_computed_tokens)
        assert kv.fits_alone(tokens) == fits, (
            f"{BLOCKS} blocks of {SIZE} tokens: fits_alone({tokens}) is {kv.fits_alone(tokens)}, and start and allocate of such "
            f"a request in an empty cache said {fits}"
        )


def check_fits_alone_looks_at_no_others(subject):
    kv = _cache(subject)
    held = _fill(kv)
    for tokens, expected in ((SIZE, True), (BLOCKS * SIZE + 1, False)):
        got = kv.fits_alone(tokens)
        assert got == expected, (
            f"all {BLOCKS} blocks of {SIZE} tokens are held: fits_alone({tokens}) is {got}, expected {expected}; "
            f"it asks about an empty cache, not about now, when {len(held)} requests run"
        )


def check_forget_takes_nothing_away(subject):
    """What is forgotten is what others might have found; whoever runs keeps all that he holds."""
    kv = _cache(subject)
    held = [run_prompt(kv, make_request(range(10 * n, 10 * n + 5))) for n in (1, 2)]
    before, num_free = [list(request.block_ids) for request in held], kv.num_free
    kv.forget()
    after = [request.block_ids for request in held]
    assert kv.num_free == num_free, f"two requests run, forget(): num_free went from {num_free} to {kv.num_free}"
    assert after == before, f"two requests run, forget(): their block_ids went from {before} to {after}"
    kv.check_integrity()
    for request in held:
        kv.free(request)
    assert kv.num_free == BLOCKS, f"forget(), then both requests were freed: num_free is {kv.num_free}, expected {BLOCKS}"
    kv.check_integrity()


def check_requests_of_one_prefix_read_their_own_tokens(subject):
    """Whatever is shared, each request must find at each computed position the key and value of just this sequence."""
    shared = list(range(10, 30))
    for num_blocks, block_size in ((24, 32), (100, 4)):
        kv = _cache(subject, num_blocks, block_size)
        memory = Memory(kv)
        for salt, tail in itertools.product((None, "a", "b"), ([], [1], [2] * 5, [1, 3])):
            request = make_request(shared + tail, cache_salt=salt)
            if not kv.fits_alone(request.num_tokens):
                continue  # rows of four tokens
            where = f"{kv.num_free} of {num_blocks} blocks of {block_size} tokens are free, a request knows {request.num_tokens}"
            assert kv.start(request), f"{where}: start said False"
            memory.check(request, request.num_computed_tokens)
            left = request.num_tokens - request.num_computed_tokens
            assert kv.allocate(request, left), f"{where}: it was admitted, and allocate(request, {left}) said False"
            memory.write(request, left)
            computed(kv, request, left)
            memory.check(request, request.num_tokens)
            if tail == [1]:
                kv.free(request)


def check_random_operations(subject):
    """Admit, grow, preempt and finish at random, on caches too small: the books balance, and each reads its own text."""
    rng = random.Random(0)
    for num_blocks, block_size in ((3, 32), (8, 4), (13, 1), (5, 8)):
        kv = _cache(subject, num_blocks, block_size)
        memory, live = Memory(kv), []
        for _ in range(600):
            action = rng.random()
            if action < 0.3:
                prompt = [3, 4, 5, 6, 7, 8, 9, 3, 4, 5][: rng.randint(1, 10)] + [
                    rng.randint(3, 5) for _ in range(rng.randint(0, 3))
                ]
                request = make_request(prompt, cache_salt=rng.choice([None, None, "a"]))
                if kv.start(request, keep_free=rng.choice([0, 0, 1])):
                    live.append(request)
                    assert request.num_computed_tokens < request.num_tokens, (
                        f"start counts all {request.num_tokens} known tokens as computed; one must be left to compute"
                    )
            elif live and action < 0.8:
                request = rng.choice(live)
                if request.num_computed_tokens == request.num_tokens:
                    request.token_ids.append(rng.randint(3, 5))
                count = rng.randint(1, request.num_tokens - request.num_computed_tokens)
                if kv.allocate(request, count):
                    memory.write(request, count)
                    computed(kv, request, count)
            elif live:
                give_back(kv, live.pop(rng.randrange(len(live))))
            kv.check_integrity()
            for request in live:
                memory.check(request, request.num_computed_tokens)
        for request in live:
            kv.free(request)
        assert kv.num_free == num_blocks, (
            f"every request was freed, and {num_blocks - kv.num_free} of {num_blocks} blocks are still not free"
        )
