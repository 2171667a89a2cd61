"""Blocks on a multiprocessor: NVIDIA's published limits, and its calculator's answers worked out by hand."""

import pytest

from shared import hardware
from shared.occupancy import MULTIPROCESSORS, Occupancy, occupancy

CARDS = {
    "8.0": ["a100-40-sxm", "a100-80-sxm"],
    "8.6": ["rtx-3090", "a10g"],
    "8.9": ["rtx-4090", "l4", "l40s"],
    "9.0": ["h100-sxm", "h200"],
    "10.0": ["b200"],
    "12.0": ["rtx-5090"],
}


@pytest.mark.parametrize(
    "capability, warps, blocks, shared_kib",
    [
        ("8.0", 64, 32, 164),
        ("8.6", 48, 16, 100),
        ("8.9", 48, 24, 100),
        ("9.0", 64, 32, 228),
        ("10.0", 64, 32, 228),
        ("12.0", 48, 24, 100),
    ],
)
def test_limits_are_the_programming_guides(capability, warps, blocks, shared_kib):
    chip = MULTIPROCESSORS[capability]
    assert (chip.max_warps, chip.max_blocks, chip.shared_bytes, chip.registers) == (warps, blocks, shared_kib * 1024, 65_536)
    assert chip.max_block_shared_bytes == (shared_kib - 1) * 1024  # 163, 99 and 227 KiB in the guide


@pytest.mark.parametrize("capability, card", [(capability, card) for capability, cards in CARDS.items() for card in cards])
def test_the_hardware_table_agrees(capability, card):
    fact = hardware.load(card, allow_unverified=True).facts.get("shared_memory")
    assert fact is None or fact.value == MULTIPROCESSORS[capability].shared_bytes


@pytest.mark.parametrize(
    "capability, threads, registers, shared_bytes, expected",
    [
        # NVIDIA's examples: Best Practices Guide, "Calculating Occupancy" (7.0, whose registers and places are 8.0's) and
        # Programming Guide, "Hardware Multithreading"
        ("8.0", 128, 37, 0, Occupancy(12, 48, 0.75, "registers")),
        ("8.0", 320, 37, 0, Occupancy(4, 40, 0.625, "registers")),
        ("8.0", 512, 64, 0, Occupancy(2, 32, 0.5, "registers")),
        ("8.0", 512, 65, 0, Occupancy(1, 16, 0.25, "registers")),
        # each of the four supplies runs out first
        ("9.0", 256, 32, 0, Occupancy(8, 64, 1.0, "warps")),
        ("9.0", 32, 16, 0, Occupancy(32, 32, 0.5, "blocks")),
        ("8.6", 64, 16, 0, Occupancy(16, 32, 2 / 3, "blocks")),
        ("8.9", 64, 16, 0, Occupancy(24, 48, 1.0, "blocks")),
        ("8.0", 256, 64, 0, Occupancy(4, 32, 0.5, "registers")),
        ("8.9", 128, 32, 48 * 1024, Occupancy(2, 8, 1 / 6, "shared memory")),
        # 33 registers are given out as 40: 16,384 // (40 · 32) = 12 warps a scheduler, 48 in all
        ("9.0", 256, 33, 0, Occupancy(6, 48, 0.75, "registers")),
        # 168 · 32 = 5,376 a warp: 3 warps a scheduler. 65,536 // 5,376 would be 12 too; with 104 it is 16 against 19
        ("8.0", 128, 168, 0, Occupancy(3, 12, 12 / 64, "registers")),
        ("8.0", 32, 104, 0, Occupancy(16, 16, 0.25, "registers")),
        # a block of 8 warps with 255 registers just fits
        ("8.0", 256, 255, 0, Occupancy(1, 8, 0.125, "registers")),
        # a partial warp costs a whole one
        ("8.0", 33, 16, 0, Occupancy(32, 64, 1.0, "blocks")),
        # the reserve of 1 KiB a block: 4 · (24 + 1) KiB = 100 KiB fits, 128 bytes more does not
        ("8.9", 32, 32, 24 * 1024, Occupancy(4, 4, 4 / 48, "shared memory")),
        ("8.9", 32, 32, 24 * 1024 + 1, Occupancy(3, 3, 3 / 48, "shared memory")),
        ("9.0", 128, 32, 227 * 1024, Occupancy(1, 4, 4 / 64, "shared memory")),
        # launches that fail
        ("9.0", 128, 32, 227 * 1024 + 1, Occupancy(0, 0, 0.0, "shared memory")),
        ("8.0", 1024, 128, 0, Occupancy(0, 0, 0.0, "registers")),
        # no registers, no limit
        ("12.0", 1024, 0, 0, Occupancy(1, 32, 2 / 3, "warps")),
    ],
)
def test_occupancy_by_hand(capability, threads, registers, shared_bytes, expected):
    assert occupancy(capability, threads, registers, shared_bytes) == expected


def test_more_of_anything_never_helps():
    for capability in MULTIPROCESSORS:
        for threads in (32, 128, 160, 512):
            by_registers = [occupancy(capability, threads, r).blocks for r in range(256)]
            by_shared = [occupancy(capability, threads, 32, kib * 512).blocks for kib in range(500)]
            assert by_registers == sorted(by_registers, reverse=True)
            assert by_shared == sorted(by_shared, reverse=True)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("7.5", 128, 32), "no limits are known for compute capability 7.5; they are for 8.0"),
        (("8.0", 0, 32), "1 to 1024 threads, not 0"),
        (("8.0", 1025, 32), "not 1025"),
        (("8.0", 128, 256), "up to 255 registers, not 256"),
        (("8.0", 128, 32, -1), "shared_bytes is -1"),
    ],
)
def test_impossible_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        occupancy(*arguments)
