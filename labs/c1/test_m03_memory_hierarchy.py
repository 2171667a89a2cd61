"""Checks of 1.3: known answers, closed forms for strides, and both counts taken the slow way, byte by byte and pass by pass."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_equal, assert_raises


def strided(stride, lanes=32, start=0):
    return [start + stride * lane for lane in range(lanes)]


# ------------------------------------------------------------------------------------------------------------ sectors_touched


def expect_sectors(lab, addresses, expected, hint, width=4, **options):
    said = f"addresses {addresses}, {width} bytes a lane{''.join(f', {k}={v}' for k, v in options.items())}"
    assert_equal(lab.sectors_touched(addresses, width, **options), expected, "pieces touched", inputs=said, hint=hint)


@checks("sectors_touched")
@pytest.mark.parametrize("stride, expected", [(4, 4), (0, 1), (8, 8), (12, 12), (16, 16), (28, 28), (32, 32), (128, 32)])
def test_sectors_of_a_stride(lab, stride, expected):
    expect_sectors(lab, strided(stride), expected, "each sector that holds a wanted byte, once")


@checks("sectors_touched")
@pytest.mark.parametrize("start, expected", [(0, 4), (16, 5), (28, 5), (32, 4), (100, 5), (1_000_000, 4)])
def test_sectors_lie_where_memory_says(lab, start, expected):
    hint = "sectors begin at multiples of 32 of the address, not at the first lane's address"
    expect_sectors(lab, strided(4, start=start), expected, hint)


@checks("sectors_touched")
def test_sectors_that_nobody_asks_for_do_not_count(lab):
    expect_sectors(lab, [0, 4096], 2, "two lanes far apart: what lies between them does not move")
    expect_sectors(lab, [320, 0, 96], 3, "and the order of lanes is no order of addresses")


@checks("sectors_touched")
def test_a_sector_for_several_lanes_counts_once(lab):
    expect_sectors(lab, [64, 0, 68, 4, 64, 0], 2, "sectors 2 and 0, however often and in whatever order they come")
    expect_sectors(lab, [36] * 32, 1, "all lanes want the same word")


@checks("sectors_touched")
def test_lanes_without_an_address_ask_for_nothing(lab):
    expect_sectors(lab, [None, 64, None, 68], 1, "None takes no part; it is not address 0")
    expect_sectors(lab, [0, None, 32], 2, "address 0 does take part")
    expect_sectors(lab, [None] * 32, 0, "nobody asks")
    expect_sectors(lab, [], 0, "nobody is there")


@checks("sectors_touched")
def test_an_access_may_begin_in_one_sector_and_end_in_another(lab):
    expect_sectors(lab, [28], 1, "bytes 28 to 31", width=4)
    expect_sectors(lab, [30], 2, "bytes 30 to 33", width=4)
    expect_sectors(lab, [31], 1, "one byte, 31", width=1)
    expect_sectors(lab, [24], 2, "bytes 24 to 35", width=12)
    expect_sectors(lab, [31], 3, "bytes 31 to 64: the whole sector 32 to 63 lies in between", width=34)
    expect_sectors(lab, strided(16), 16, "512 bytes side by side", width=16)


@checks("sectors_touched")
def test_other_pieces(lab):
    expect_sectors(lab, strided(32), 8, "128-byte lines, four lanes in each", granule=128)
    expect_sectors(lab, strided(4), 2, "64-byte lines of a CPU", granule=64)
    expect_sectors(lab, [47, 95], 3, "pieces need not be a power of two: bytes 47, 48 and 95, 96", width=2, granule=48)
    expect_sectors(lab, [5, 6], 3, "pieces of one byte: 5, 6 and 7", width=2, granule=1)


@checks("sectors_touched")
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 700)), max_size=40),
    st.sampled_from([1, 2, 4, 8, 12, 16, 70]),
    st.sampled_from([1, 32, 64, 128, 48]),
)
def test_byte_by_byte(lab, addresses, width, granule):
    moved = {byte // granule for a in addresses if a is not None for byte in range(a, a + width)}
    hint = f"every wanted byte, divided by {granule}: pieces {sorted(moved)[:12]}"
    expect_sectors(lab, addresses, len(moved), hint, width=width, granule=granule)


@checks("sectors_touched")
def test_the_callers_list_stays(lab):
    addresses = [96, None, 0, 4, 4]
    lab.sectors_touched(addresses)
    assert_equal(addresses, [96, None, 0, 4, 4], "the list that was passed, afterwards", hint="sort or filter a copy")


@checks("sectors_touched")
@pytest.mark.parametrize("arguments", [([0], 0), ([0], -4), ([0], 4, 0), ([], 4, -32), ([0, -4],), ([None, -1], 1)], ids=str)
def test_sectors_touched_refuses_nonsense(lab, arguments):
    assert_raises(ValueError, lambda: lab.sectors_touched(*arguments), f"sectors_touched{arguments}")


# ------------------------------------------------------------------------------------------------------------- bank_conflicts


def expect_conflicts(lab, addresses, expected, hint, width=4):
    said = f"addresses {addresses}, {width} bytes a lane"
    assert_equal(lab.bank_conflicts(addresses, width), expected, "conflicts", inputs=said, hint=hint)


@checks("bank_conflicts")
@pytest.mark.parametrize("words", [1, 2, 3, 4, 8, 12, 16, 31, 32, 33, 48, 64, 100])
def test_conflicts_of_a_stride(lab, words):
    """Lanes i and j meet in a bank where 32 divides words * (i - j): in classes of gcd(words, 32)."""
    hint = f"gcd({words}, 32) = {math.gcd(words, 32)} lanes meet in each bank that is used: so many passes, all but one conflicts"
    expect_conflicts(lab, strided(4 * words), math.gcd(words, 32) - 1, hint)


@checks("bank_conflicts")
@pytest.mark.parametrize("addresses", [[0] * 32, [128] * 31 + [4], [0, 4] * 16, [4 * (i // 8) for i in range(32)]], ids=str)
def test_one_word_for_many_lanes_is_free(lab, addresses):
    expect_conflicts(lab, addresses, 0, "a bank gives the same word to everybody who wants it, in the same pass")


@checks("bank_conflicts")
def test_the_busiest_bank_settles_it(lab):
    hint = "bank 0 has words 0, 32 and 64 to deliver and bank 1 has words 1 and 33: three passes, in which bank 1 is done as well"
    expect_conflicts(lab, [0, 128, 256, 4, 132, 128], 2, hint)
    expect_conflicts(lab, [0, 128, 0, 128], 1, "two words, whatever the number of lanes that want them")
    expect_conflicts(lab, [8, 12, 8 + 128, 12 + 128], 1, "two banks with a conflict each, resolved in the same two passes")


@checks("bank_conflicts")
def test_narrow_lanes_share_words(lab):
    expect_conflicts(lab, strided(1), 0, "four lanes a word", width=1)
    expect_conflicts(lab, strided(2), 0, "two lanes a word", width=2)
    expect_conflicts(lab, [0, 2, 128, 130], 1, "words 0 and 32, two halves of each", width=2)


@checks("bank_conflicts")
@pytest.mark.parametrize("width, at_once", [(8, 16), (16, 8)])
def test_wide_lanes_come_in_phases(lab, width, at_once):
    hint = f"{32 // at_once} phases of {at_once} lanes, each of one pass: that is what the bytes take, and no conflict"
    expect_conflicts(lab, strided(width), 0, hint, width=width)
    for step in (2, 3, 4, at_once, 32):
        each = math.gcd(step, at_once) - 1
        hint = f"{each} beyond one in each of {32 // at_once} phases"
        expect_conflicts(lab, strided(width * step), each * 32 // at_once, hint, width=width)


@checks("bank_conflicts")
def test_phases_share_nothing(lab):
    expect_conflicts(lab, [0] * 16 + [128] * 16, 0, "words 0-1 in the first phase, 32-33 in the second: they never meet", width=8)
    expect_conflicts(lab, [0, 128] * 16, 2, "words 0-1 and 32-33 in both phases: one conflict in each", width=8)
    expect_conflicts(lab, [0, 128], 1, "the second phase has no lane, and its pass is not lent to the first", width=8)
    expect_conflicts(lab, [0, 128] * 4 + [0] * 24, 1, "only the first of four phases has a conflict", width=16)


@checks("bank_conflicts")
def test_a_lane_that_takes_no_part_keeps_its_place(lab):
    addresses = [0, *[None] * 15, 128]
    expect_conflicts(lab, addresses, 0, "lanes 0 and 16 are in different phases, whoever is absent between them", width=8)
    expect_conflicts(lab, addresses, 1, "at 4 bytes there is one phase, and they meet in it", width=4)
    expect_conflicts(lab, [None, 128], 0, "None is not address 0")
    for addresses in ([], [None] * 32, [None] * 31 + [0]):
        expect_conflicts(lab, addresses, 0, "a phase without lanes takes no pass, and saves none either", width=16)


SLOTS = st.one_of(st.none(), st.integers(0, 40).map(lambda n: 32 * n), st.integers(0, 300))


@checks("bank_conflicts")
@pytest.mark.parametrize("width", [1, 4, 8, 16])
@given(st.one_of(st.lists(SLOTS, max_size=32), st.lists(SLOTS, min_size=24, max_size=32)))
def test_pass_by_pass(lab, width, slots):
    """Let the banks work: in each pass each takes one word off its list."""
    addresses = [None if a is None else a // width * width for a in slots]
    at_once = {8: 16, 16: 8}.get(width, 32)
    conflicts = 0
    for first in range(0, 32, at_once):
        todo = {byte // 4 for a in addresses[first : first + at_once] if a is not None for byte in range(a, a + width)}
        passes = 0
        while todo:
            todo -= set({word % 32: word for word in todo}.values())
            passes += 1
        conflicts += max(0, passes - 1)
    expect_conflicts(lab, addresses, conflicts, f"phases of {at_once} lanes, one word of each bank a pass", width=width)


@checks("bank_conflicts")
@pytest.mark.parametrize(
    "arguments",
    [(strided(4, 33),), ([0], 3), ([0], 32), ([0], 0), ([0, 2],), ([4], 8), ([8], 16), ([-4],), ([None] * 33,), ([0, 1], 2)],
    ids=str,
)
def test_bank_conflicts_refuses_nonsense(lab, arguments):
    assert_raises(ValueError, lambda: lab.bank_conflicts(*arguments), f"bank_conflicts{arguments}")
