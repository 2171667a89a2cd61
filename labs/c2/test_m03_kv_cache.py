"""Checks of 2.3: what every cache must do, what a cache of reserved rows must do, and that a model sees no difference."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal
from labs.kit.conformance import checks as suite
from labs.kit.conformance.requests import make_request
from labs.kit.tiny_model import TINY, generate, recompute

pytestmark = checks("ContiguousKV")


def cache(lab, rows=4, size=10, dtype=torch.float32):
    return lab.ContiguousKV(TINY, num_blocks=rows, block_size=size, dtype=dtype)


@pytest.mark.parametrize("check", suite("kv.contiguous"), ids=lambda check: check.__name__.removeprefix("check_"))
def test_any_cache(lab, check):
    check(lab.ContiguousKV)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_allocated_for_all_rows_and_layers(lab, dtype):
    kv = cache(lab, rows=3, size=7, dtype=dtype)
    expected = [(4, 2, TINY.num_kv_heads, TINY.head_dim, 7)] * TINY.num_layers
    assert_equal(
        [tuple(layer.shape) for layer in kv.layers], expected, "the shapes of layers",
        inputs=f"num_blocks=3, block_size=7, a model of {TINY.num_layers} layers",
        hint="allocate_layers adds the row for padding by itself: pass it num_blocks and block_size as they come",
    )  # fmt: skip
    assert_equal({layer.dtype for layer in kv.layers}, {dtype}, "the dtype of layers", inputs=f"dtype={dtype}")


def test_memory_lies_on_the_device_asked_for(lab):
    """The device "meta" is torch's own: it has shapes and no memory, and is there on every machine."""
    kv = lab.ContiguousKV(TINY, num_blocks=2, block_size=4, dtype=torch.float32, device=torch.device("meta"))
    assert_equal(
        {layer.device.type for layer in kv.layers}, {"meta"}, "the device of layers", inputs="device=torch.device('meta')"
    )


def test_a_request_holds_one_row_from_its_first_token_on(lab):
    kv = cache(lab, rows=4)
    request = make_request([5])
    started = kv.start(request)
    said = "4 rows of 10 tokens, a request of 1 token started"
    assert_equal(started, True, "start(request)", inputs="4 free rows of 10 tokens, a request of 1 token")
    assert_equal(len(request.block_ids), 1, "the number of its rows", inputs=said)
    assert_equal(kv.num_free, 3, "num_free", inputs=said)
    assert_equal(kv.usage, 0.25, "usage", inputs=said, hint="a row counts whole as soon as it is reserved, not by its tokens")


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_row_takes_exactly_block_size_tokens(lab, size):
    kv = cache(lab, rows=2, size=size)
    fits, too_long = make_request([5] * size), make_request([5] * (size + 1))
    inputs = f"rows of {size} tokens, all free"
    hint = "a row that would overflow writes into its neighbour's tokens"
    assert_equal(kv.start(too_long), False, f"start of a request of {size + 1} tokens", inputs=inputs, hint=hint)
    assert_equal((too_long.block_ids, kv.num_free), ([], 2), "block_ids and num_free after that refusal", inputs=inputs)
    assert_equal(kv.start(fits), True, f"start of a request of {size} tokens", inputs=inputs, hint="it fills the row: it fits")
    assert_equal(kv.fits_alone(size), True, f"fits_alone({size})", inputs=inputs)
    assert_equal(kv.fits_alone(size + 1), False, f"fits_alone({size + 1})", inputs=inputs)


def test_generated_tokens_count_when_a_request_comes_back(lab):
    kv = cache(lab, rows=1, size=10)
    request = make_request([5] * 6, max_tokens=20)
    request.token_ids += [7] * 5  # it had generated five tokens before it had to give way
    assert_equal(
        kv.start(request), False, "start(request)",
        inputs="a row of 10 tokens; num_prompt_tokens is 6, num_tokens is 11",
        hint="compare num_tokens with the row, not the prompt alone",
    )  # fmt: skip


def test_an_answer_may_end_before_its_limit(lab):
    kv = cache(lab, rows=1, size=10)
    request = make_request([5] * 4, max_tokens=20)
    assert_equal(
        kv.start(request), True, "start(request)", inputs="a free row of 10 tokens; num_tokens is 4, the answer's limit is 20",
        hint="only tokens known so far count here: whether the whole may ever fit is fits_alone's to say, and the engine asks it",
    )  # fmt: skip


def test_allocate_counts_what_is_computed_already(lab):
    for done in range(11):
        for new in range(1, 12):
            kv = cache(lab, rows=1, size=10)
            request = make_request([5] * 10)
            kv.start(request)
            before = list(request.block_ids)
            request.num_computed_tokens = done
            inputs = f"a row of 10 tokens, num_computed_tokens={done}, num_new_tokens={new}"
            hint = "the new tokens come after the computed ones, and the last slot may be used"
            assert_equal(kv.allocate(request, new), done + new <= 10, "allocate", inputs=inputs, hint=hint)
            assert_equal(request.block_ids, before, "block_ids after allocate", inputs=inputs, hint="a row never changes")
            assert_equal(request.num_computed_tokens, done, "num_computed_tokens", inputs=inputs, hint="the engine counts it")


def test_a_request_that_gave_way_may_start_again(lab):
    kv = cache(lab, rows=1)
    request, other = make_request([5] * 3), make_request([6] * 3)
    for turn in range(3):
        for each in (request, other):
            inputs = f"one row, two requests that take turns, turn {turn}"
            assert_equal(kv.start(each), True, "start(request)", inputs=inputs, hint="is its row free again after free()?")
            assert_equal(kv.num_free, 0, "num_free", inputs=inputs)
            kv.free(each)
            assert_equal((each.block_ids, kv.num_free), ([], 1), "block_ids and num_free after free", inputs=inputs)


def test_the_engine_counts_what_is_computed(lab):
    kv, request = cache(lab, rows=1), make_request([5] * 6)
    request.num_computed_tokens = 3
    calls = {"start": (), "allocate": (2,), "commit": (2,), "free": ()}
    for call, arguments in calls.items():
        getattr(kv, call)(request, *arguments)
        inputs = f"it was so before {call}(request{', 2' * bool(arguments)})"
        hint = "nothing is known in advance, and the engine keeps the count"
        assert_equal(request.num_computed_tokens, 3, "num_computed_tokens", inputs=inputs, hint=hint)
        hint = "the tokens are the engine's: one that gives way comes back with what it has generated"
        assert_equal(request.token_ids, [5] * 6, "token_ids", inputs=inputs, hint=hint)


OPERATIONS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 7), st.integers(0, 3)), max_size=40)


@given(rows=st.integers(1, 4), size=st.integers(1, 6), operations=OPERATIONS)
def test_any_order_of_starts_and_frees(lab, rows, size, operations):
    """Each operation names one of seven requests: it starts if it holds nothing, and is freed if it holds a row."""
    kv, held = cache(lab, rows, size), {}
    requests = {}
    for who, tokens, keep_free in operations:
        if who in held:
            kv.free(held.pop(who))
        else:
            request = requests[who] = make_request([5] * tokens, name=f"request-{who}")
            expected = rows - len(held) >= 1 + keep_free and tokens <= size
            inputs = f"{rows} rows of {size} tokens, {len(held)} held; {tokens} tokens, keep_free={keep_free}"
            assert_equal(kv.start(request, keep_free), expected, "start(request, keep_free)", inputs=inputs)
            if expected:
                held[who] = request
        rows_held = sorted(row for request in held.values() for row in request.block_ids)
        inputs = f"{rows} rows, requests {sorted(held)} hold one each"
        assert_equal(len(set(rows_held)), len(held), f"different rows among {rows_held}", inputs=inputs)
        assert all(row in range(rows) for row in rows_held), f"rows {rows_held} are held, expected numbers below {rows}"
        assert_equal(kv.num_free, rows - len(held), "num_free", inputs=inputs)
        assert_close(kv.usage, len(held) / rows, "usage", atol=1e-9, rtol=0, inputs=inputs)
        empty = [name for name, request in requests.items() if name not in held and request.block_ids != []]
        assert_equal(empty, [], "requests that hold nothing and list a row", inputs=inputs, hint="free sets block_ids to []")
        kv.check_integrity()


def rows_in(book):
    """The numbers that a list or set holds, or a dict as its values; none if it keeps anything else."""
    found = list(book.values() if isinstance(book, dict) else book)
    return found if all(type(row) is int for row in found) else []


def with_one_out(book):
    less = copy.copy(book)
    less.popitem() if isinstance(less, dict) else less.pop()
    return less


def with_row(book, row):
    more = copy.copy(book)
    if isinstance(more, dict):
        more["another"] = row
    else:
        more.append(row) if isinstance(more, list) else more.add(row)
    return more


def lost(book, rows):
    return [with_one_out(book)]


def twice(book, rows):
    return [with_row(book, row) for row in rows if rows_in(book) and not (isinstance(book, set) and row in book)]


def one_lost_and_one_twice(book, rows):
    out = [row for row in rows if rows_in(book) and row not in rows_in(with_one_out(book))]
    return [more for row in rows if row not in out for more in twice(with_one_out(book), [row])]


@pytest.mark.parametrize("damage", [lost, twice, one_lost_and_one_twice], ids=lambda damage: damage.__name__)
def test_check_integrity_notices_a_row(lab, damage):
    """Each list, set and dict that the cache keeps is damaged, one after the other: at least one such damage must hurt."""
    kv = cache(lab, rows=4)
    for _ in range(2):
        kv.start(make_request([5]))
    kv.check_integrity()
    books = {n: book for n, book in vars(kv).items() if isinstance(book, list | set | dict) and n != "layers" and book}
    rows = sorted({row for book in books.values() for row in rows_in(book)})
    tried, noticed = [], False
    for name, whole in books.items():
        for damaged in damage(whole, rows):
            tried.append(f"{name} = {damaged}")
            setattr(kv, name, damaged)
            try:
                kv.check_integrity()
            except AssertionError:
                noticed = True
            setattr(kv, name, whole)
    assert noticed or not tried, (
        f"four rows, two are held, and a row was {damage.__name__.replace('_', ' ')}: check_integrity raised no AssertionError "
        f"with {'; with '.join(tried[:3])}"
    )


@pytest.mark.parametrize("num_running, budget", [(1, 100), (3, 100), (3, 4)])
def test_a_model_cannot_tell_it_from_computing_everything_again(lab, num_running, budget):
    """Seven requests share three rows. Every token's logits must be those of the whole text so far, computed without a cache."""
    kv = cache(lab, rows=3, size=24)
    prompts = [[7], [3, 1, 4, 1, 5], [9] * 9, [2, 7], [3, 1, 4, 1, 5, 9, 2, 6], [8, 8, 8], list(range(10, 30))]
    answers = generate(kv, prompts, [6, 9, 3, 22, 16, 1, 4], num_running, budget)
    for number, answer in enumerate(answers):
        for i, logits in enumerate(answer.logits):
            text = answer.token_ids[: answer.num_prompt_tokens + i]
            assert_close(
                logits, recompute(text), f"logits of answer token {i} of request {number}", atol=1e-4, rtol=0,
                inputs=f"3 rows of 24 tokens, {num_running} running; {len(text)} tokens so far, the last {text[-3:]}",
                hint="did two requests hold one row at a time, or a request change its row halfway?",
            )  # fmt: skip
    assert_equal(kv.num_free, 3, "num_free when all requests are done", hint="every free() must give its row back")
