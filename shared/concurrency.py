"""How much must be under way at once to keep a memory busy: Little's law, in bytes, in requests and in warps.

    bytes_in_flight(1.008e12, 500e-9)                          504000.0
    requests_in_flight(1.008e12, 500e-9, request_bytes=128)    3938
    warps_needed(1.008e12, 500e-9, num_multiprocessors=128)    31
    sustained_bandwidth(64, 500e-9, peak=1.008e12)             1.28e8: one line at a time, 0.013 % of the peak

Number under way = rate x time each is under way. J. D. C. Little, "A Proof for the Queuing Formula L = λW", Operations Research
9(3), 1961. It holds for averages, whatever the order and the spread of arrivals and waits.
"""

from __future__ import annotations

import math

from shared.units import positive

LANES = 32  # of a warp
DUST = 1e-9  # what a quotient of floats may be above a whole number that it should be


def bytes_in_flight(bandwidth: float, latency: float) -> float:
    """Bytes that must be asked for and not yet there, at any moment, for a memory to deliver `bandwidth`.

    bandwidth: bytes/s. latency: seconds from a request to its data. Raises ValueError for one that is not above zero.
    """
    positive(bandwidth=bandwidth, latency=latency)
    return bandwidth * latency


def requests_in_flight(bandwidth: float, latency: float, request_bytes: float) -> int:
    """The same in requests of request_bytes each, rounded up. Raises ValueError for a number that is not above zero."""
    positive(request_bytes=request_bytes)
    return _at_least(bytes_in_flight(bandwidth, latency) / request_bytes)


def warps_needed(
    bandwidth: float, latency: float, num_multiprocessors: int, *, bytes_per_lane: float = 4, loads_per_lane: int = 1
) -> int:
    """Warps that every multiprocessor must have waiting on memory at any moment, to draw `bandwidth` from it together.

    bandwidth: bytes/s of the whole card. latency: seconds. A warp's load asks for bytes_per_lane for each of its 32 lanes, and
    loads_per_lane of them are issued before the first result is needed. All bytes are wanted and none is asked for twice.

    Whole warps on each multiprocessor, rounded up; more than a whole number by less than a billionth of it is float rounding, and
    not a warp. It may be more than a multiprocessor has places for: then such loads cannot fill the memory.
    Raises ValueError for a number that is not above zero.
    """
    positive(num_multiprocessors=num_multiprocessors, bytes_per_lane=bytes_per_lane, loads_per_lane=loads_per_lane)
    each = bytes_in_flight(bandwidth, latency) / num_multiprocessors
    return _at_least(each / (LANES * bytes_per_lane * loads_per_lane))


def sustained_bandwidth(in_flight_bytes: float, latency: float, peak: float) -> float:
    """Bytes/s that a memory of `peak` bytes/s delivers to whoever keeps in_flight_bytes under way. ValueError as above."""
    positive(in_flight_bytes=in_flight_bytes, latency=latency, peak=peak)
    return min(peak, in_flight_bytes / latency)


def _at_least(number: float) -> int:
    """Rounded up, but for float rounding; never 0."""
    return max(1, math.ceil(number * (1 - DUST)))
