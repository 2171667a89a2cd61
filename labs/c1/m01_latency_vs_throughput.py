"""1.1 Latency and throughput: how much must be under way, and what a warp does when its lanes disagree.

Write the functions below, then run `labs check 1.1` (or `pytest labs/c1/test_m01_latency_vs_throughput.py`). Stuck?
`labs hint 1.1` shows one more each time. Plain Python: no model, no GPU.

The words: a GPU is a set of *multiprocessors*. A multiprocessor runs *warps*: 32 threads, here called *lanes*, that share one
stream of instructions. An instruction goes to all lanes at once, or to some of them: which ones is the warp's *active mask*.

Yours to use for `run_warp`:

    OPERATIONS                  {"add": function of two whole numbers, ...}: add, sub, mul, mod, less, equal
    Issue(op, lanes)            one instruction sent out: its name, and a tuple of the lanes it is for, in ascending order
    WarpRun(registers, trace)   what run_warp returns: a dictionary of lists, and a sequence of Issue
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labs.kit import exercise
from shared.simt import OPERATIONS, Issue, Program, WarpRun  # noqa: F401  yours to use


@exercise(reference="shared.concurrency:bytes_in_flight")
def bytes_in_flight(bandwidth: float, latency: float) -> float:
    """Bytes that must be asked for and not yet there, at any moment, for a memory to deliver `bandwidth`.

    bandwidth: bytes/s. latency: seconds from a request to its data. Little's law: the number under way is the rate at which they
    come, times the time that each takes. Returns bytes, not rounded.

    Raises ValueError for a number that is not above zero (shared.units.positive does that).

    1,008 GB/s and 500 ns: bytes_in_flight(1008e9, 500e-9) is 504,000.
    """
    raise NotImplementedError


@exercise(reference="shared.concurrency:warps_needed")
def warps_needed(
    bandwidth: float, latency: float, num_multiprocessors: int, *, bytes_per_lane: float = 4, loads_per_lane: int = 1
) -> int:
    """Warps that every multiprocessor must have waiting on memory at any moment, to draw `bandwidth` from it together.

    bandwidth: bytes/s of the whole card. latency: seconds. num_multiprocessors: all of them share the work evenly.
    bytes_per_lane: a load instruction asks for that many bytes for each of a warp's 32 lanes.
    loads_per_lane: so many loads are issued before the first one's result is needed, so they are under way together.
    All bytes are wanted, and none is asked for twice.

    Returns a whole number of warps, the same on each multiprocessor, rounded up. It may be more than any multiprocessor has
    places for; that is the caller's to notice.

    Floats are not exact: 8e9 * (400 * 1e-9) is 3200.0000000000005, and means 3200. What is above a whole number by less than a
    billionth (1e-9) of it counts as that whole number. The result is never less than 1.

    Raises ValueError for a number that is not above zero.

    The RTX 4090, 1,008 GB/s, 500 ns, 128 multiprocessors: 31 warps at 4 bytes a lane, 8 at 16 bytes.
    """
    raise NotImplementedError


@exercise(reference="shared.simt:run_warp")
def run_warp(
    program: Program, inputs: Mapping[str, Sequence[int]] | None = None, threads: int = 32, limit: int = 10_000
) -> WarpRun:
    """Run a program for one warp of 32 lanes, and record every instruction that is issued.

    A program is a list of instructions, each a tuple. A register holds one whole number for each lane; an operand (a, b) is a
    register's name or a number.

        (op, target, a, b)                  target = a op b, with OPERATIONS[op]
        ("if", register, then, otherwise)   two programs: lanes where the register is not 0 run the first, the others the second
        ("while", register, body)           lanes where the register is not 0 run the body, and then are asked again
        ("exit",)                           the lane has finished: it takes part in nothing that follows, wherever that stands

    inputs: registers to begin with, 32 numbers each. The caller's lists are not changed. Beside them there is a register "lane",
    with 0, 1, ... 31. A register that nobody has written holds 0 in every lane.
    threads: lanes 0 to threads - 1 take part, the others never do (the last warp of a block of 40 threads has 8).

    What is issued, and for whom. Each of these is one Issue, whose lanes are those that take part in it:

    - an operation, or an exit. Lanes that do not take part keep all their registers, and nothing is computed for them (their
      operands might not even be valid: a division by zero).
    - an if: one Issue "if" for all lanes that come to it, then everything of `then` for its lanes, then everything of
      `otherwise` for the others; after that the lanes that have not left go on together. Who goes where is settled at the if:
      what `then` writes does not change it.
    - a while: one Issue "while" for each time the register is looked at, for the lanes that look. Lanes that find 0 wait, and go
      on together with the others when no lane is left inside. The look that finds 0 everywhere counts, too.

    Nothing is issued where no lane takes part: a side of an if that nobody takes costs nothing, and neither does a look at the
    register when every lane has left.

    Returns WarpRun(registers, trace): all registers, "lane" and inputs among them, each a list of 32; and the Issues in order.

    Raises ValueError for threads outside 1 to 32, for an input that has not 32 numbers, and for an unknown instruction when it
    is reached; RuntimeError when more than `limit` instructions would be issued (exactly `limit` are fine).

    x = |x| is [("less", "negative", "x", 0), ("if", "negative", [("sub", "x", 0, "x")], [])]. With x = -5 in even lanes and 7 in
    odd ones it issues three instructions: less and if for 32 lanes, sub for the 16 even ones.
    """
    raise NotImplementedError
