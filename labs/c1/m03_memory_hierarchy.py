"""1.3 The memory hierarchy: how much of memory an access moves, and where lanes get in each other's way.

Write the functions below, then run `labs check 1.3` (or `pytest labs/c1/test_m03_memory_hierarchy.py`). Stuck?
`labs hint 1.3` shows one more each time. Plain Python: no model, no GPU.

The words: a GPU runs 32 threads, here called *lanes*, in step: a *warp*. One load or store instruction therefore has up to 32
addresses. Both functions take them as a sequence with a byte address for each lane, or None for a lane that takes no part.
"""

from __future__ import annotations

from labs.kit import exercise
from shared.memory_access import SECTOR, Addresses


@exercise(reference="shared.memory_access:sectors_touched")
def sectors_touched(addresses: Addresses, width: int = 4, granule: int = SECTOR) -> int:
    """Pieces of memory that must move for one access: those that hold a byte which some lane asks for.

    Memory is cut into pieces of `granule` bytes: bytes 0 to granule - 1 are the first, the next granule the second, and so on.
    addresses: of each lane's first byte; a lane that is None asks for nothing. Any number of lanes, also none.
    width: bytes a lane asks for, from its address on. They may begin in one piece and end in another, or even a third.
    granule: 32, the default, for a GPU's sectors; 128 for its lines, 64 for most CPUs' lines; any size above zero.

    A piece counts once, whoever asks for it. One that lies between two others and that nobody asks for does not count.
    Addresses may be anything but negative: in any order, equal, far apart, not multiples of the width.

    Raises ValueError for a negative address, and for a width or granule that is not above zero (shared.units has `positive` and
    `not_negative` for that).

    32 lanes of 4 bytes side by side, from address 0, touch 4 sectors; from address 16 on, 5; with 128 bytes from one to the
    next, 32.
    """
    raise NotImplementedError


@exercise(reference="shared.memory_access:bank_conflicts")
def bank_conflicts(addresses: Addresses, width: int = 4) -> int:
    """Passes that one access to shared memory takes, beyond those it would take if no two lanes got in each other's way.

    Shared memory is a row of 4-byte words, dealt out to 32 *banks*: word w (bytes 4w to 4w + 3) lies in bank w mod 32. In one
    pass every bank delivers one word, and delivers it to as many lanes as want that word (or part of it).

    addresses: byte address for each lane, lane 0 first; None: the lane takes no part, but keeps its place. At most 32; if fewer
    are given, the others take no part.
    width: bytes a lane asks for: 1, 2, 4, 8 or 16.

    With a width of 1, 2 or 4 all lanes are served together, in one *phase*. All banks together deliver 128 bytes a pass, and 32
    lanes of 8 or 16 bytes want more, so those come in phases of 128 bytes: two of 16 lanes (0-15, 16-31) for 8 bytes, four of 8
    lanes (0-7, 8-15, 16-23, 24-31) for 16. Phases share nothing, not even a word that both want.

    A phase takes as many passes as the busiest bank has different words to deliver in it; one pass would be free of conflicts.
    The conflicts of the access are the passes beyond one, added up over its phases. A phase in which no lane takes part takes
    none and has none.

    Raises ValueError for more than 32 lanes, for another width, and for an address that is negative or not a multiple of width.

    Lane i at word i: 0. All at one word: 0. Lane i at word 2i: 1. At word 32i: 31. At word 33i: 0.
    """
    raise NotImplementedError
