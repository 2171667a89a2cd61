"""1.6 Interconnects: an all-reduce of your own, and a link's two numbers out of timed messages.

Write the functions below, then run `labs check 1.6` (or `pytest labs/c1/test_m06_interconnect.py`). Stuck? `labs hint 1.6`
shows one more each time. No GPU and no network is needed: the ranks of the checks are threads, and once gloo's on this machine.

A *rank* is one of `size` equal partners, numbered from 0, that all run the same function at the same time. It knows the others
only through its transport (`shared.transports.Transport`), which has

    transport.rank, transport.size      ints; 0 <= rank < size
    transport.isend(values, to)         begin to send a one-dimensional array to rank `to`; returns a handle at once. The array
                                        must not change until handle.wait() returns, which it does when the receiver has it.
                                        A message whose handle was not waited for may be lost when its sender is done.
    transport.recv(out, source)         fill the array `out` with the next message from rank `source`, which must have as many
                                        elements and the same dtype. Returns None, and only when the message is there.

`recv` and `wait` hold until the other side does its part, and raise PeerLost (`shared.transports`) if it is gone. If all ranks
wait for each other at once, none goes on: a deadlock, which the checks' transport reports as PeerLost as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labs.kit import exercise
from shared.transports import Transport


@exercise(reference="shared.ring:ring_all_reduce")
def ring_all_reduce(values: np.ndarray, transport: Transport) -> np.ndarray:
    """The element-wise sum of all ranks' values, returned on every rank, bit for bit the same everywhere.

    values: [n], of any numeric dtype, which is kept. n and dtype are the same on every rank; n may be 0, 1, fewer than size, and
        need not be a multiple of it. Not changed. Need not be contiguous.
    Returns a new array [n].

    The ranks stand in a ring: send to (rank + 1) % size and receive from (rank - 1) % size, nobody else. Think of the array as
    cut into `size` parts, none longer than ceil(n / size), cut alike on every rank; some may be empty.

    - Reduce-scatter, size - 1 steps: in each, send a part to the right and receive another from the left, which you add to your
      own copy of that part. What you send next is what you have just added to. In the end each rank holds one part of the sum.
    - All-gather, size - 1 steps: the finished parts go once around. They are copied and never added to again.

    So a rank sends at most 2 (size - 1) messages of at most ceil(n / size) elements each, in the dtype of values. An empty part
    may be sent or left out, as long as sender and receiver do alike. Each part is added up in one order only: in floating point
    (a + b) + c is not a + (b + c), so ranks that add up in different orders differ in the last bit, and sooner or later choose
    different tokens.

    In each step both directions are under way at once: begin to send, then receive, then wait for what you sent. Ranks that take
    turns, one sending while the other receives, get there too, in twice the time. Wait for every handle. One rank alone sends
    nothing and returns a copy.

    PeerLost is the caller's to deal with: let it through. No retry, and no result from a sum that lacks somebody.
    Source: P. Patarasuk, X. Yuan, JPDC 69 (2009).
    """
    raise NotImplementedError


@exercise(reference="shared.collectives:alpha_beta_fit")
def alpha_beta_fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Latency and seconds a byte of a link: the line t = alpha + size * beta that explains timed messages best.

    sizes: bytes, at least two different ones, in any order, some perhaps more than once; 0 is allowed.
    seconds: above zero, one for each size.

    Best is the least sum of squared *relative* errors, ((alpha + size * beta - t) / t) ** 2, over all alpha >= 0 and beta >= 0.
    Relative, because sizes span four orders of magnitude: in squared seconds the largest message would decide alone, and alpha
    would be whatever its noise says.

    Returns (alpha, beta): seconds, and seconds a byte (1 / beta is a bandwidth in bytes/s). Where the best line without the two
    limits has a negative alpha, the answer is alpha = 0 with the best beta for that; where it has a negative beta, it is beta = 0
    with the best alpha for that. Only one of the two can be negative.
    Raises ValueError unless there is one time for each size, for fewer than two different sizes, for a negative size, or for
    a time that is not above zero.

    alpha_beta_fit([0, 1000], [1e-6, 3e-6]) is (1e-6, 2e-9), up to rounding.
    """
    raise NotImplementedError
