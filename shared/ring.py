"""All-reduce around a ring, over nothing but sending to one neighbour and receiving from the other."""

from __future__ import annotations

import numpy as np

from shared.transports import Transport


def ring_all_reduce(values: np.ndarray, transport: Transport) -> np.ndarray:
    """The sum of every rank's values, on every rank, bit for bit the same.

    values: [n], any numeric dtype, n and dtype the same on every rank; not changed. Returns a new array [n] of that dtype.
    Each rank sends to rank + 1 and receives from rank - 1, around the ring, at most 2 (size - 1) messages of at most
    ceil(n / size) elements: the fewest bytes possible. Each part is added up along one way only, and then copied: that is why
    the ranks agree to the last bit, whatever the order of summation does to it.
    Raises PeerLost, within the transport's patience, when a neighbour is gone.
    Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
    """
    rank, size = transport.rank, transport.size
    right, left = (rank + 1) % size, (rank - 1) % size
    result = values.copy()
    parts = np.array_split(result, size)  # views: writing into a part writes into the result
    for step in range(size - 1):  # reduce-scatter: part r sets out from rank r and grows at every stop
        outgoing, growing = parts[(rank - step) % size], parts[(rank - step - 1) % size]
        arrived = np.empty_like(growing)
        sending = transport.isend(outgoing, right)
        transport.recv(arrived, left)
        sending.wait()
        growing += arrived
    for step in range(size - 1):  # all-gather: each finished part goes once around
        sending = transport.isend(parts[(rank + 1 - step) % size], right)
        transport.recv(parts[(rank - step) % size], left)
        sending.wait()
    return result
