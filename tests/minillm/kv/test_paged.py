"""The paged cache: what is shared, what is not, and what stays after a request has gone."""

import pytest
import torch

from labs.kit.conformance.requests import NO_MODEL, computed, give_back, make_request, run_prompt
from minillm.kv.paged import PagedKV

SIZE = 4
PROMPT = list(range(10, 20))  # two full blocks and a half


@pytest.fixture
def kv() -> PagedKV:
    return PagedKV(NO_MODEL, 12, SIZE, torch.float32)


def started(kv, prompt, **options):
    request = make_request(prompt, **options)
    assert kv.start(request)
    return request


def test_a_request_holds_just_the_blocks_its_tokens_fill(kv):
    request = started(kv, PROMPT)
    assert request.block_ids == [], "admitted, nothing computed"
    for count, blocks in ((3, 1), (1, 1), (1, 2), (5, 3)):
        computed(kv, request, count)
        assert len(request.block_ids) == blocks
    assert kv.num_free == 9 and kv.usage == pytest.approx(3 / 12)


def test_a_prefix_is_held_once_while_its_first_reader_runs(kv):
    first = run_prompt(kv, make_request(PROMPT))
    second = started(kv, PROMPT)
    assert second.block_ids == first.block_ids[:2] and second.num_computed_tokens == 8
    computed(kv, second, 2)
    assert second.block_ids[2] != first.block_ids[2], "a partial block is never shared: both write to it"
    assert kv.num_free == 8
    kv.check_integrity()
    kv.free(first)
    assert kv.num_free == 9, "the shared blocks have a holder"
    kv.free(second)
    assert kv.num_free == 12


def test_a_prefix_is_found_after_its_first_reader_has_gone(kv):
    first = run_prompt(kv, make_request(PROMPT))
    blocks = first.block_ids[:2]
    kv.free(first)
    assert started(kv, PROMPT[:9]).block_ids == blocks


@pytest.mark.parametrize("length, found", [(1, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_a_fully_cached_prompt_computes_the_tokens_after_its_last_but_one_block(kv, length, found):
    """Never zero: of 8 cached tokens in blocks of 4, four are computed again, because the last one must be."""
    kv.free(run_prompt(kv, make_request(range(10, 10 + length))))
    assert started(kv, range(10, 10 + length)).num_computed_tokens == found


def test_with_blocks_of_one_token_a_fully_cached_prompt_computes_one():
    kv = PagedKV(NO_MODEL, 12, 1, torch.float32)
    kv.free(run_prompt(kv, make_request(range(10, 16))))
    assert started(kv, range(10, 16)).num_computed_tokens == 5


def test_only_whole_equal_beginnings_are_shared(kv):
    run_prompt(kv, make_request(PROMPT))
    assert started(kv, [10, 11, 12, 13, 99, 15, 16, 17, 18]).num_computed_tokens == 4
    assert started(kv, [99, 11, 12, 13, 14, 15, 16, 17, 18]).num_computed_tokens == 0, "one block, but another beginning"


def test_a_salt_separates(kv):
    run_prompt(kv, make_request(PROMPT, cache_salt="a"))
    assert [started(kv, PROMPT, cache_salt=salt).num_computed_tokens for salt in ("a", "b", None)] == [8, 0, 0]


def test_generated_tokens_are_shared_too(kv):
    request = run_prompt(kv, make_request(PROMPT))
    for token in (50, 51, 52):
        request.token_ids.append(token)
        computed(kv, request, 1)
    follow_up = started(kv, [*PROMPT, 50, 51, 52, 60])
    assert follow_up.num_computed_tokens == 12 and follow_up.block_ids == request.block_ids[:3]


def test_two_requests_of_one_step_share_what_the_first_is_about_to_compute(kv):
    first, second = make_request(PROMPT), make_request(PROMPT)
    assert kv.start(first) and kv.allocate(first, 10)
    assert kv.start(second) and second.num_computed_tokens == 0, "not before the first is sure to be computed"
    give_back(kv, second)
    kv.commit(first, 10)
    assert kv.start(second) and second.num_computed_tokens == 8


def test_two_who_computed_one_prefix_side_by_side_keep_their_own(kv):
    first, second = started(kv, PROMPT), started(kv, PROMPT)
    for request in (first, second):
        computed(kv, request, 10)
    assert not set(first.block_ids) & set(second.block_ids)
    assert started(kv, PROMPT).block_ids == first.block_ids[:2], "the first to be named is found"
    for request in (first, second):
        kv.free(request)
        kv.check_integrity()


def test_blocks_that_are_not_full_have_no_name(kv):
    request = started(kv, PROMPT)
    computed(kv, request, 7)
    assert started(kv, PROMPT).num_computed_tokens == 4
    computed(kv, request, 1)
    assert started(kv, PROMPT).num_computed_tokens == 8


def test_a_preempted_request_finds_its_own_blocks_answer_included(kv):
    request = run_prompt(kv, make_request(PROMPT))
    for token in (50, 51, 52):
        request.token_ids.append(token)
        computed(kv, request, 1)
    request.token_ids.append(53)
    blocks = request.block_ids[:3]
    give_back(kv, request)
    assert kv.start(request) and request.num_computed_tokens == 12 and request.block_ids == blocks


@pytest.mark.parametrize("size", [1, 2, 16])
def test_preempted_one_token_after_a_full_block(size):
    """The fault others shipped: 257 tokens in blocks of 256. The one token that is left must be computed, and only it."""
    kv = PagedKV(NO_MODEL, 40, size, torch.float32)
    request = run_prompt(kv, make_request([5] * size))
    request.token_ids.append(7)
    give_back(kv, request)
    assert kv.start(request) and request.num_computed_tokens == size
    computed(kv, request, 1)
    kv.check_integrity()


def test_blocks_that_others_needed_are_computed_again(kv):
    request = run_prompt(kv, make_request(PROMPT))
    give_back(kv, request)
    run_prompt(kv, make_request(range(40, 40 + 11 * SIZE)))  # 11 of 12 blocks: only the most recently freed one is left
    assert kv.pool.find(request.block_hashes) == [0]
    assert not kv.start(request) and request.block_ids == [] and request.num_computed_tokens == 0


def test_room_is_asked_for_beside_what_is_found_free():
    """Found blocks that stand in the free list are not room as well."""
    kv = PagedKV(NO_MODEL, 4, SIZE, torch.float32)
    kv.free(run_prompt(kv, make_request(range(10, 18))))
    run_prompt(kv, make_request(range(40, 48)))
    assert kv.num_free == 2
    request = make_request(range(10, 22))  # two blocks found, one more needed, and the two found are the two free
    assert not kv.start(request) and kv.num_free == 2 and request.num_computed_tokens == 0
    assert kv.start(make_request(range(10, 18))), "two blocks fit"


def test_shared_blocks_need_no_room():
    kv = PagedKV(NO_MODEL, 4, SIZE, torch.float32)
    run_prompt(kv, make_request(range(10, 22)))
    assert kv.num_free == 1
    request = started(kv, [*range(10, 22), 5])
    assert request.num_computed_tokens == 12 and kv.allocate(request, 1) and kv.num_free == 0


@pytest.mark.parametrize("keep_free, admitted", [(9, True), (10, False), (12, False)])
def test_keep_free(kv, keep_free, admitted):
    assert kv.start(make_request(PROMPT), keep_free=keep_free) is admitted
    assert kv.num_free == 12


def test_fits_alone(kv):
    assert kv.fits_alone(48) and not kv.fits_alone(49) and kv.fits_alone(45) and kv.fits_alone(1)


def test_without_prefix_caching_nothing_is_found():
    kv = PagedKV(NO_MODEL, 12, SIZE, torch.float32, enable_prefix_caching=False)
    run_prompt(kv, make_request(PROMPT))
    again = started(kv, PROMPT)
    assert again.num_computed_tokens == 0 and again.block_ids == [] and again.block_hashes == []
    kv.check_integrity()


def test_a_request_for_prompt_logprobs_computes_its_whole_prompt_and_leaves_it_to_others(kv):
    kv.free(run_prompt(kv, make_request(PROMPT)))
    asking = run_prompt(kv, make_request(PROMPT, prompt_logprobs=1))
    assert kv.num_free == 9 and asking.num_computed_tokens == 10
    assert make_request(PROMPT, prompt_logprobs=1).skip_prefix_cache
    assert started(kv, PROMPT, prompt_logprobs=1).num_computed_tokens == 0
    assert started(kv, PROMPT).num_computed_tokens == 8


def test_the_integrity_check_sees_more_tokens_than_blocks(kv):
    request = run_prompt(kv, make_request(PROMPT))
    request.num_computed_tokens = 13
    with pytest.raises(AssertionError, match="more tokens than its blocks hold"):
        kv.check_integrity()
