"""How many blocks of a kernel fit on one multiprocessor of an NVIDIA GPU at once, and what keeps a further one out.

    occupancy("9.0", threads=256, registers=64, shared_bytes=32 * 1024)
    Occupancy(blocks=4, warps=32, share=0.5, limiter="registers")

Four supplies run out: places for blocks, places for warps, registers, shared memory. Registers are given out a warp at a time, in
units of 256, from a quarter of the register file that belongs to one of four schedulers, so the number of warps they feed is a
multiple of 4. Shared memory is given out in units of 128 bytes, and each block costs 1 KiB more, which the system keeps.

Source: CUDA C++ Programming Guide 13.1, table "Technical Specifications per Compute Capability"; the rounding is that of NVIDIA's
occupancy calculator (cuda_occupancy.h of the CUDA Toolkit).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

WARP = 32  # threads
SCHEDULERS = 4  # of a multiprocessor; each has a quarter of its registers
REGISTER_UNIT = 256  # registers of a warp are given out in these
MAX_REGISTERS = 255  # of a thread
MAX_THREADS = 1024  # of a block
SHARED_UNIT = 128  # bytes
SHARED_RESERVE = 1024  # bytes of each block, for the system


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor has to give. shared_bytes: the most that can be configured."""

    max_warps: int
    max_blocks: int
    shared_bytes: int
    registers: int = 65_536

    @property
    def max_block_shared_bytes(self) -> int:
        """The most that one block can ask for."""
        return self.shared_bytes - SHARED_RESERVE


# by compute capability
MULTIPROCESSORS: Mapping[str, Multiprocessor] = MappingProxyType(
    {
        "8.0": Multiprocessor(64, 32, 164 * 1024),  # A100
        "8.6": Multiprocessor(48, 16, 100 * 1024),  # RTX 30, A10
        "8.9": Multiprocessor(48, 24, 100 * 1024),  # RTX 40, L4, L40S
        "9.0": Multiprocessor(64, 32, 228 * 1024),  # H100, H200
        "10.0": Multiprocessor(64, 32, 228 * 1024),  # B200
        "12.0": Multiprocessor(48, 24, 100 * 1024),  # RTX 50
    }
)


@dataclass(frozen=True)
class Occupancy:
    """blocks, warps: resident on one multiprocessor; share: of the warps it has places for.

    limiter: "blocks", "warps", "registers" or "shared memory"; the first of them in a tie, so that "registers" is said only where
    fewer of them could let another block in.
    """

    blocks: int
    warps: int
    share: float
    limiter: str


def occupancy(compute_capability: str, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Blocks of `threads` threads with `registers` registers each and `shared_bytes` of shared memory a block.

    No blocks means that a launch would fail. Raises ValueError for a compute capability that is not in MULTIPROCESSORS, and for
    numbers that no kernel can have.
    """
    chip = _multiprocessor(compute_capability)
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"a block has 1 to {MAX_THREADS} threads, not {threads}")
    if not 0 <= registers <= MAX_REGISTERS:
        raise ValueError(f"a thread has up to {MAX_REGISTERS} registers, not {registers}")
    if shared_bytes < 0:
        raise ValueError(f"shared_bytes is {shared_bytes}, less than 0")
    warps = -(-threads // WARP)
    fits = {
        "blocks": chip.max_blocks,
        "warps": chip.max_warps // warps,
        "registers": _warps_by_registers(chip, registers) // warps,
        "shared memory": _blocks_by_shared_memory(chip, shared_bytes),
    }
    limiter = min(fits, key=fits.__getitem__)
    blocks = fits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / chip.max_warps, limiter)


def _multiprocessor(compute_capability: str) -> Multiprocessor:
    if compute_capability not in MULTIPROCESSORS:
        known = ", ".join(MULTIPROCESSORS)
        raise ValueError(f"no limits are known for compute capability {compute_capability}; they are for {known}")
    return MULTIPROCESSORS[compute_capability]


def _warps_by_registers(chip: Multiprocessor, registers: int) -> int:
    if registers == 0:
        return chip.max_warps
    of_a_warp = _rounded_up(registers * WARP, REGISTER_UNIT)
    return chip.registers // SCHEDULERS // of_a_warp * SCHEDULERS


def _blocks_by_shared_memory(chip: Multiprocessor, shared_bytes: int) -> int:
    if shared_bytes > chip.max_block_shared_bytes:
        return 0
    return chip.shared_bytes // _rounded_up(shared_bytes + SHARED_RESERVE, SHARED_UNIT)


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
