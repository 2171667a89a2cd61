"""1.2 Occupancy: how many blocks of a kernel fit on one multiprocessor at once, and what keeps the next one out.

Write the function below, then run `labs check 1.2` (or `pytest labs/c1/test_m02_occupancy.py`). Stuck? `labs hint 1.2` shows one
more each time. Whole numbers only: no model, no GPU.

The words: a kernel is launched as many *blocks* of equally many threads. A block runs on one multiprocessor, and has its places,
registers and shared memory there from its first instruction to its last. Threads run in *warps* of 32.

Yours to use:

    MULTIPROCESSORS["8.9"]      what one multiprocessor has: .max_warps (48), .max_blocks (24), .registers (65,536),
                                .shared_bytes (102,400), .max_block_shared_bytes (101,376: the most that one block may ask for)
    Occupancy(blocks, warps, share, limiter)
    WARP 32, SCHEDULERS 4, REGISTER_UNIT 256, MAX_REGISTERS 255, MAX_THREADS 1024, SHARED_UNIT 128, SHARED_RESERVE 1024
"""

from __future__ import annotations

from labs.kit import exercise
from shared.occupancy import (  # noqa: F401  yours to use
    MAX_REGISTERS,
    MAX_THREADS,
    MULTIPROCESSORS,
    REGISTER_UNIT,
    SCHEDULERS,
    SHARED_RESERVE,
    SHARED_UNIT,
    WARP,
    Occupancy,
)


@exercise(reference="shared.occupancy:occupancy")
def occupancy(compute_capability: str, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Blocks of `threads` threads with `registers` registers each and `shared_bytes` of shared memory a block.

    compute_capability: a key of MULTIPROCESSORS. threads: of a block, 1 to 1,024. registers: of a thread, 0 to 255, each of 32
    bits. shared_bytes: of a block, as its kernel asks for it.

    Only whole blocks count. Each of four supplies lets in so many of them, and the smallest of the four numbers is the answer:

    "blocks"         The places for blocks.
    "warps"          The places for warps. A block takes whole warps: one of 33 threads takes two.
    "registers"      A warp's registers are 32 times a thread's, rounded up to a multiple of REGISTER_UNIT. Each of the SCHEDULERS
                     has an equal part of the registers and feeds whole warps from its own part; the warps of a block may be
                     spread over the schedulers in any way. A kernel of 0 registers is not limited by them.
    "shared memory"  A block takes what it asks for and SHARED_RESERVE bytes more for the system, the sum rounded up to a multiple
                     of SHARED_UNIT. Asking for more than max_block_shared_bytes is refused: no block then.

    Returns Occupancy: blocks, and the warps that these blocks have; share, those warps over the places for warps (0.0 to 1.0, not
    rounded); limiter, the supply that gave the smallest number, by the names above. Of several that tie it is the first in the
    order above. No block at all is an answer, not an error: Occupancy(0, 0, 0.0, limiter).

    Raises ValueError for a compute capability that is not in MULTIPROCESSORS, for threads or registers outside the ranges above,
    and for negative shared_bytes.

    RMSNorm on an RTX 4090: occupancy("8.9", 256, 37, 32) is Occupancy(6, 48, 1.0, "warps").
    Source: CUDA C++ Programming Guide 13.1, table "Technical Specifications per Compute Capability".
    """
    raise NotImplementedError
