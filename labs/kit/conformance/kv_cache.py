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
        if not (kv.start(request) and kv.allocate(request, SIZE)):
            return held
        held.append(request)
    raise AssertionError(f"{len(held)} requests of a whole block each were admitted to {kv.num_blocks} blocks")


def check_a_new_cache_is_empty(subject):
    kv = _cache(subject)
    assert (kv.num_blocks, kv.block_size, len(kv.layers)) == (BLOCKS, SIZE, NO_MODEL.num_layers)
    assert kv.num_free == BLOCKS and kv.usage == 0, f"{kv.num_free} of {BLOCKS} blocks free, usage {kv.usage}"
    kv.check_integrity()


def check_a_request_gets_slots_for_all_its_tokens(subject):
    kv = _cache(subject)
    request = make_request(range(10, 15), max_tokens=3)
    assert kv.start(request), "an empty cache refused 5 tokens"
    for step in (2, 3, 1, 1):
        if request.num_computed_tokens + step > request.num_tokens:
            request.token_ids.append(7)
        computed(kv, request, step)
        room = len(request.block_ids) * kv.block_size
        assert room >= request.num_computed_tokens, f"{request.num_computed_tokens} tokens computed, room for {room}"
        assert all(0 <= block < BLOCKS for block in request.block_ids), f"block ids {request.block_ids} of {BLOCKS}"
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
    assert len(blocks) == len(set(blocks)), f"different prompts hold {[r.block_ids for r in held]}"
    assert len(held) == BLOCKS, f"{len(held)} one-block requests filled {BLOCKS} blocks"


def check_full_means_false_and_nothing_changes(subject):
    kv = _cache(subject)
    held = _fill(kv)
    assert kv.num_free == 0 and kv.usage == 1, f"{kv.num_free} free, usage {kv.usage} when full"
    late = make_request([9, 9])
    assert not kv.start(late), "a full cache admitted a request"
    assert late.block_ids == [] and late.num_computed_tokens == 0, f"a refused request holds {late.block_ids}"
    held[0].num_computed_tokens = SIZE
    before = list(held[0].block_ids)
    assert not kv.allocate(held[0], 1), "a full cache gave a request a block more"
    assert held[0].block_ids == before, "a refused allocation changed the request's blocks"
    kv.check_integrity()


def check_keep_free_leaves_that_many_blocks(subject):
    kv = _cache(subject)
    request = make_request([5] * SIZE)
    assert not kv.start(request, keep_free=BLOCKS), f"1 block of {BLOCKS} was given away, {BLOCKS} were to stay free"
    assert kv.num_free == BLOCKS, "a refused request took blocks"
    assert kv.start(request, keep_free=BLOCKS - 1), f"{BLOCKS - 1} of {BLOCKS} were to stay free, and 1 was asked for"
    assert kv.allocate(request, SIZE) and kv.num_free == BLOCKS - 1


def check_free_gives_all_back_and_twice_is_harmless(subject):
    kv = _cache(subject)
    held = _fill(kv)
    for count, request in enumerate(held, start=1):
        for _ in range(2):
            kv.free(request)
            assert kv.num_free == count, f"{kv.num_free} blocks free after {count} requests of one block were freed"
            assert request.block_ids == [], f"a freed request still lists {request.block_ids}: it would free them again"
            kv.check_integrity()
    assert kv.usage == 0
    kv.free(make_request([5]))  # one that never held anything
    assert len(_fill(kv)) == BLOCKS, "freed blocks cannot all be used again"


def check_at_least_one_token_is_left_to_compute(subject):
    """The logits that choose the next token are not in the cache, so a prompt seen before may not vanish altogether."""
    for size, length in itertools.product((SIZE, 3 * SIZE), (1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE)):
        kv = _cache(subject, block_size=size)
        if not kv.fits_alone(length):
            continue
        prompt = range(10, 10 + length)
        kv.free(run_prompt(kv, make_request(prompt)))
        again = make_request(prompt)
        assert kv.start(again)
        assert again.num_computed_tokens < length, f"{length} known tokens, all {again.num_computed_tokens} taken as computed"


def check_fits_alone_is_what_fits_in_an_empty_cache(subject):
    for tokens in range(1, BLOCKS * SIZE + 2):
        kv = _cache(subject)
        request = make_request([5] * tokens)
        fits = kv.start(request) and kv.allocate(request, tokens - request.num_computed_tokens)
        assert kv.fits_alone(tokens) == fits, f"fits_alone({tokens}) is {kv.fits_alone(tokens)}, admitting it gave {fits}"


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
            assert kv.start(request)
            memory.check(request, request.num_computed_tokens)
            left = request.num_tokens - request.num_computed_tokens
            assert kv.allocate(request, left)
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
                    assert request.num_computed_tokens < request.num_tokens
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
        assert kv.num_free == num_blocks, f"{num_blocks - kv.num_free} blocks leaked"
