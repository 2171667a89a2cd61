"""What one warp's load or store asks of memory: sectors of global memory, and conflicts between banks of shared memory.

    sectors_touched(strided(4))            4: 32 lanes side by side, 128 bytes in four sectors of 32
    sectors_touched(strided(32))           32: the same 128 bytes wanted, 1,024 moved
    sectors_touched(strided(32), granule=LINE)      8 lines of 128
    bank_conflicts(strided(4))             0
    bank_conflicts(strided(128))           31: all lanes want bank 0, and it answers one at a time
    bank_conflicts(strided(132))           0: rows of 33 words instead of 32

Addresses are bytes, a list of one for each lane; None: the lane takes no part. Sizes after the CUDA C++ Best Practices Guide 13.1
(coalesced access, shared memory and banks), compute capability 6.0 and later. Phases of wide accesses are not documented there;
Triton's compiler counts the same for 16 bytes a lane (gluon.bank_conflicts in 3.7), which a test checks.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.concurrency import LANES
from shared.units import not_negative, positive

SECTOR = 32  # bytes: the least that moves between global memory and a multiprocessor
LINE = 128  # bytes: what a cache has one label for; its four sectors come and go by themselves
BANKS = 32  # of a multiprocessor's shared memory
WORD = 4  # bytes of a bank, a clock

Addresses = Sequence[int | None]


def strided(stride: int, lanes: int = LANES, start: int = 0) -> list[int]:
    """Byte addresses of lanes that lie `stride` bytes apart, lane 0 at `start`."""
    return [start + lane * stride for lane in range(lanes)]


def sectors_touched(addresses: Addresses, width: int = 4, granule: int = SECTOR) -> int:
    """Pieces of memory, `granule` bytes each, that hold a byte which some lane asks for.

    addresses: of each lane's first byte; any number of lanes. width: bytes a lane asks for. An access may begin in one piece and
    end in another; a GPU refuses those that are not a multiple of their width, a CPU does not.
    granule: 32 for a GPU's sectors, 128 for its lines, 64 for most CPUs' lines. A piece asked for by several lanes counts once.

    Raises ValueError for a negative address, and for a width or granule that is not above zero.
    """
    positive(width=width, granule=granule)
    pieces: set[int] = set()
    for address in _taking_part(addresses):
        pieces.update(range(address // granule, (address + width - 1) // granule + 1))
    return len(pieces)


def bank_conflicts(addresses: Addresses, width: int = 4) -> int:
    """Passes that one access to shared memory takes, beyond those it would take if no two lanes got in each other's way.

    Word w (bytes 4w to 4w + 3) lies in bank w mod 32. In one pass a bank delivers one word, to as many lanes as want it.
    width: bytes a lane asks for. With 1, 2 or 4, all lanes are served together. 32 lanes of 8 or 16 bytes want more than the 128
    that all banks deliver, so they come in phases of 128 bytes: lanes 0-15 and 16-31, or 0-7, 8-15, 16-23 and 24-31. A phase
    takes as many passes as the busiest bank has different words to deliver; one without a lane takes none. Phases share nothing.

    Raises ValueError for more than 32 lanes, another width, and a negative address or one that is no multiple of width.
    """
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"a lane loads 1, 2, 4, 8 or 16 bytes from shared memory, not {width}")
    if len(addresses) > LANES:
        raise ValueError(f"a warp has {LANES} lanes, not {len(addresses)}")
    if odd := [address for address in _taking_part(addresses) if address % width]:
        raise ValueError(f"address {odd[0]} is not a multiple of the width, {width} bytes: the hardware would refuse it")
    at_once = min(LANES, BANKS * WORD // width)
    phases = [_taking_part(addresses[first : first + at_once]) for first in range(0, len(addresses), at_once)]
    return sum(_passes(phase, width) - 1 for phase in phases if phase)


def _passes(addresses: Sequence[int], width: int) -> int:
    """Different words of the busiest bank."""
    words = {word for address in addresses for word in range(address // WORD, (address + width - 1) // WORD + 1)}
    wanted = [0] * BANKS
    for word in words:
        wanted[word % BANKS] += 1
    return max(wanted)


def _taking_part(addresses: Addresses) -> list[int]:
    some = [address for address in addresses if address is not None]
    for address in some:
        not_negative(address=address)
    return some
