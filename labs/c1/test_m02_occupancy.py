"""Checks of occupancy: NVIDIA's own examples, each supply running out by itself, and blocks let in one at a time."""

from dataclasses import fields

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_equal, assert_raises
from shared.occupancy import MULTIPROCESSORS, Occupancy

pytestmark = checks("occupancy")
KIB = 1024


def answer(lab, capability, threads, registers, shared_bytes=0):
    """The subject's answer, and how the call reads. A message instead of a crash where it refuses what is allowed."""
    said = f'occupancy("{capability}", {threads}, {registers}, {shared_bytes:,})'
    try:
        got = lab.occupancy(capability, threads, registers, shared_bytes)
    except (ValueError, ZeroDivisionError) as e:
        raise AssertionError(f"{said}: this is allowed, and was refused: {type(e).__name__}: {e}") from e
    names = [field.name for field in fields(Occupancy)]
    assert all(hasattr(got, name) for name in names), f"{said}: returned {got!r}; an Occupancy({', '.join(names)}) is asked for"
    return Occupancy(*(getattr(got, name) for name in names)), said


def test_the_example_of_the_docstring(lab):
    got, said = answer(lab, "8.9", 256, 37, 32)
    assert_equal(got, Occupancy(6, 48, 1.0, "warps"), said, hint="six blocks of eight warps fill the 48 places")


@pytest.mark.parametrize(
    "threads, registers, blocks, share, why",
    [
        # Best Practices Guide, "Calculating Occupancy": compute capability 7.0, whose registers and places are those of 8.0
        (128, 37, 12, 0.75, "37 · 32 = 1,184 registers of a warp become 1,280; plain division of 65,536 gives 13 blocks"),
        (
            320,
            37,
            4,
            0.625,
            "16,384 // 1,280 = 12 warps a scheduler, 48 in all; without the quarters it would be 51, and 5 blocks",
        ),
        # Programming Guide, "Hardware Multithreading"
        (512, 64, 2, 0.5, "two blocks take 2 · 512 · 64 = 65,536 registers: just all of them"),
        (512, 65, 1, 0.25, "one register more, and the second block is out"),
    ],
    ids=["37_registers_128_threads", "37_registers_320_threads", "64_registers", "one_more"],
)
@pytest.mark.parametrize("capability", ["8.0", "9.0", "10.0"])
def test_nvidias_own_examples(lab, capability, threads, registers, blocks, share, why):
    got, said = answer(lab, capability, threads, registers)
    assert_equal((got.blocks, got.share), (blocks, share), f"{said}: blocks and share", hint=why)
    assert_equal(got.limiter, "registers", f"{said}: limiter", hint="nothing else is short here")


SUPPLIES = [
    ("9.0", 256, 32, 0, Occupancy(8, 64, 1.0, "warps"), "registers let in eight blocks, too: of a tie the first is named"),
    ("8.6", 64, 16, 0, Occupancy(16, 32, 2 / 3, "blocks"), "16 places for blocks, and each block has two warps only"),
    ("9.0", 32, 32, 0, Occupancy(32, 32, 0.5, "blocks"), "32 places for blocks of one warp: half of the warps' places"),
    ("8.9", 64, 16, 0, Occupancy(24, 48, 1.0, "blocks"), "blocks and warps tie, and blocks come first"),
    ("8.0", 33, 16, 0, Occupancy(32, 64, 1.0, "blocks"), "33 threads are two warps"),
    ("8.9", 40, 16, 0, Occupancy(24, 48, 1.0, "blocks"), "share is of warps: a warp of 8 threads has its place all the same"),
    ("8.0", 32, 104, 0, Occupancy(16, 16, 0.25, "registers"), "16,384 // 3,328 = 4 warps a scheduler"),
    ("8.9", 128, 41, 0, Occupancy(10, 40, 40 / 48, "registers"), "41 · 32 = 1,312 become 1,536: ten warps a scheduler"),
    ("8.9", 160, 56, 0, Occupancy(7, 35, 35 / 48, "registers"), "registers for 36 warps; seven blocks of five take 35"),
    ("8.9", 128, 32, 48 * KIB, Occupancy(2, 8, 1 / 6, "shared memory"), "two blocks of 49 KiB in 100"),
    ("8.9", 32, 32, 24 * KIB, Occupancy(4, 4, 1 / 12, "shared memory"), "four times 24 + 1 KiB: just all of it"),
    ("8.9", 32, 32, 24 * KIB + 1, Occupancy(3, 3, 1 / 16, "shared memory"), "one byte more than fits four times"),
    ("8.9", 32, 32, 13_604, Occupancy(6, 6, 0.125, "shared memory"), "14,628 bytes with the reserve, given out as 14,720"),
    ("9.0", 128, 32, 227 * KIB, Occupancy(1, 4, 1 / 16, "shared memory"), "the most that one block may ask for"),
    ("9.0", 1024, 0, 0, Occupancy(2, 64, 1.0, "warps"), "no registers, no limit by registers"),
    ("8.9", 256, 204, 65_536, Occupancy(1, 8, 1 / 6, "registers"), "FlashAttention: registers and shared memory tie"),
    ("8.9", 256, 128, 65_536, Occupancy(1, 8, 1 / 6, "shared memory"), "registers for two, shared memory for one"),
]  # fmt: skip


@pytest.mark.parametrize(
    "capability, threads, registers, shared_bytes, expected, why",
    SUPPLIES,
    ids=["_".join(map(str, case[:4])) for case in SUPPLIES],
)
def test_each_supply_runs_out(lab, capability, threads, registers, shared_bytes, expected, why):
    got, said = answer(lab, capability, threads, registers, shared_bytes)
    assert_equal(got, expected, said, hint=why)


@pytest.mark.parametrize(
    "capability, threads, registers, shared_bytes, limiter",
    [
        ("8.0", 1024, 128, 0, "registers"),
        ("8.0", 1024, 65, 0, "registers"),
        ("8.9", 64, 32, 99 * KIB + 1, "shared memory"),
        ("9.0", 128, 255, 1000 * KIB, "shared memory"),
        ("8.9", 1024, 255, 101_377, "registers"),  # and too much shared memory: the first of the two is named
    ],
    ids=str,
)
def test_a_block_that_fits_nowhere(lab, capability, threads, registers, shared_bytes, limiter):
    got, said = answer(lab, capability, threads, registers, shared_bytes)
    hint = "a launch of this kernel would fail: that is what an Occupancy of no blocks says"
    assert_equal(got, Occupancy(0, 0, 0.0, limiter), said, hint=hint)


def one_at_a_time(capability, threads, registers, shared_bytes):
    """Lets blocks in until a supply is short, each warp to the emptiest scheduler. Slow, and hard to get wrong."""
    chip = MULTIPROCESSORS[capability]
    of_a_warp = next(n for n in range(0, 10_000, 256) if n >= 32 * registers)
    of_a_block = next(n for n in range(0, 2_000_000, 128) if n >= shared_bytes + 1024)
    files, places, memory, blocks = [chip.registers // 4] * 4, chip.max_warps, chip.shared_bytes, 0
    while True:
        short = ["blocks"] if blocks == chip.max_blocks else []
        warps = len(range(0, threads, 32))
        short += ["warps"] if places < warps else []
        left = list(files)
        for _ in range(warps):
            left[left.index(max(left))] -= of_a_warp
        short += ["registers"] if min(left) < 0 else []
        short += ["shared memory"] if memory < of_a_block else []
        if short:
            return Occupancy(blocks, blocks * warps, blocks * warps / chip.max_warps, short[0])
        files, places, memory, blocks = left, places - warps, memory - of_a_block, blocks + 1


@given(
    capability=st.sampled_from(sorted(MULTIPROCESSORS)),
    threads=st.integers(1, 1024),
    registers=st.integers(0, 255),
    shared_bytes=st.one_of(st.just(0), st.integers(0, 32 * KIB), st.integers(0, 227 * KIB)),
)
@example("8.0", 96, 40, 0)
@example("8.9", 1, 255, 1)
@example("12.0", 992, 64, 0)
def test_the_same_as_letting_blocks_in_one_at_a_time(lab, capability, threads, registers, shared_bytes):
    expected = one_at_a_time(capability, threads, registers, shared_bytes)
    got, said = answer(lab, capability, threads, registers, shared_bytes)
    hint = f"after {expected.blocks} blocks, {expected.limiter} would not do for another"
    assert_equal(got, expected, said, hint=hint)


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (("7.5", 128, 32), "no limits are known for 7.5: a ValueError, no KeyError, and not those of another card"),
        (("sm_89", 128, 32), "compute capabilities are written as the keys of MULTIPROCESSORS"),
        (("8.0", 0, 32), "a block has at least one thread"),
        (("8.0", 1025, 32), "no block has more than 1,024 threads"),
        (("8.0", 128, 256), "a thread has up to 255 registers"),
        (("8.0", 128, -1), "a thread has no fewer than 0 registers"),
        (("8.0", 128, 32, -1), "shared memory cannot be negative"),
    ],
    ids=str,
)
def test_what_no_kernel_can_have_is_refused(lab, arguments, hint):
    assert_raises(ValueError, lambda: lab.occupancy(*arguments), f"occupancy{arguments}", hint=hint)
