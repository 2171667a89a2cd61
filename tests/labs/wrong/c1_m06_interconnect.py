"""Mistakes planted in 1.6."""

import numpy as np

from labs.kit.wrong import patch, replace
from shared.collectives import alpha_beta_fit
from shared.ring import ring_all_reduce
from shared.transports import PeerLost, run_ranks


def two_ranks_of_four(subject):
    """The test one would write first: two ranks, a length that divides, whole numbers."""
    results = run_ranks(lambda t: subject(np.arange(4.0) + t.rank, t), 2)
    assert [r.tolist() for r in results] == [[1, 3, 5, 7]] * 2


def a_clean_line(subject):
    """The test one would write first: times without noise."""
    sizes = [1024.0, 65536.0, 1048576.0]
    alpha, beta = subject(sizes, [1e-5 + n * 1e-9 for n in sizes])
    assert abs(alpha / 1e-5 - 1) < 1e-3 and abs(beta / 1e-9 - 1) < 1e-3


def whole_arrays_around(values, transport):
    """Everybody's array goes around, and each rank adds them up as they come: as many orders as ranks."""
    rank, size = transport.rank, transport.size
    result, travelling = values.copy(), values.copy()
    for _ in range(size - 1):
        arrived = np.empty_like(values)
        sending = transport.isend(travelling, (rank + 1) % size)
        transport.recv(arrived, (rank - 1) % size)
        sending.wait()
        result += arrived
        travelling = arrived
    return result


def scatter_then_direct(values, transport):
    """A reduce-scatter around the ring, and then every owner sends its part to everybody: right, but not a ring."""
    rank, size = transport.rank, transport.size
    result = values.copy()
    parts = np.array_split(result, size)
    for step in range(size - 1):
        growing = parts[(rank - step - 1) % size]
        arrived = np.empty_like(growing)
        sending = transport.isend(parts[(rank - step) % size], (rank + 1) % size)
        transport.recv(arrived, (rank - 1) % size)
        sending.wait()
        growing += arrived
    for distance in range(1, size):
        sending = transport.isend(parts[(rank + 1) % size], (rank + distance) % size)
        source = (rank - distance) % size
        transport.recv(parts[(source + 1) % size], source)
        sending.wait()
    return result


def to_rank_zero_and_back(values, transport):
    """Rank 0 collects, adds up and hands out: bit-equal, and rank 0's link carries everything."""
    result = values.copy()
    if transport.rank == 0:
        for source in range(1, transport.size):
            arrived = np.empty_like(result)
            transport.recv(arrived, source)
            result += arrived
        for sending in [transport.isend(result, to) for to in range(1, transport.size)]:
            sending.wait()
        return result
    transport.isend(values.copy(), 0).wait()
    transport.recv(result, 0)
    return result


def one_way_at_a_time(values, transport):
    rank, size = transport.rank, transport.size
    result = values.copy()
    parts = np.array_split(result, size)

    def swap(outgoing, incoming):
        if rank % 2 == 0:
            transport.isend(outgoing, (rank + 1) % size).wait()
        transport.recv(incoming, (rank - 1) % size)
        if rank % 2:
            transport.isend(outgoing, (rank + 1) % size).wait()

    for step in range(size - 1):
        arrived = np.empty_like(parts[(rank - step - 1) % size])
        swap(parts[(rank - step) % size], arrived)
        parts[(rank - step - 1) % size] += arrived
    for step in range(size - 1):
        swap(parts[(rank + 1 - step) % size], parts[(rank - step) % size])
    return result


def gives_what_it_has(values, transport):
    try:
        return ring_all_reduce(values, transport)
    except PeerLost:
        return values.copy()


def tries_again(values, transport):
    while True:
        try:
            return ring_all_reduce(values, transport)
        except PeerLost:
            continue


def through_float64(values, transport):
    """Exact for float32, and twice the bytes."""
    return ring_all_reduce(values.astype(np.float64), transport).astype(values.dtype)


def integers_through_int64(values, transport):
    """Right, and up to eight times the bytes."""
    wide = values.astype(np.int64) if values.dtype.kind in "iu" else values
    return ring_all_reduce(wide, transport).astype(values.dtype)


def real_part(values, transport):
    return ring_all_reduce(values.real.astype(values.dtype), transport)


def one_element_is_no_ring(values, transport):
    return (to_rank_zero_and_back if len(values) <= 1 else ring_all_reduce)(values, transport)


def parts_rounded_down(values, transport):
    """n // size elements a part; what is left over stays unsummed."""
    n = len(values) // transport.size * transport.size
    return np.concatenate([ring_all_reduce(values[:n], transport), values[n:]])


def padded(values, transport):
    """Padded to a multiple, and the padding returned."""
    size = transport.size
    return ring_all_reduce(np.concatenate([values, np.zeros(-len(values) % size, values.dtype)]), transport)


def squared_seconds(sizes, seconds):
    if len(sizes) != len(seconds) or len(set(sizes)) < 2 or min(sizes) < 0 or min(seconds) <= 0:
        raise ValueError("nonsense")
    beta, alpha = np.polyfit(np.asarray(sizes), np.asarray(seconds), 1)
    return max(0.0, float(alpha)), max(0.0, float(beta))


def sorts_in_place(sizes, seconds):
    if len(sizes) == len(seconds):
        pairs = sorted(zip(sizes, seconds, strict=True))
        sizes[:], seconds[:] = [n for n, _ in pairs], [t for _, t in pairs]
    return alpha_beta_fit(sizes, seconds)


def lists_only(sizes, seconds):
    sizes, seconds = sizes.copy(), seconds.copy()
    return alpha_beta_fit(sizes, seconds)


def only_zero_refused(sizes, seconds):
    if len(sizes) == len(seconds) > 0 and min(seconds) < 0:
        return 0.0, 0.0
    return alpha_beta_fit(sizes, seconds)


def one_size_will_do(sizes, seconds):
    if sizes and len(set(sizes)) == 1 and len(sizes) == len(seconds):
        return 0.0, min(seconds) / sizes[0]
    return alpha_beta_fit(sizes, seconds)


def slope_of_the_ends(sizes, seconds):
    """A line through the smallest and the largest message."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2 or min(sizes) < 0 or min(seconds) <= 0:
        raise ValueError("nonsense")
    (n0, t0), *_, (n1, t1) = sorted(zip(sizes, seconds, strict=True))
    beta = max(0.0, (t1 - t0) / (n1 - n0))
    return max(0.0, t0 - n0 * beta), beta


REDUCE = """        sending = transport.isend(outgoing, right)
        transport.recv(arrived, left)
        sending.wait()
"""

WRONG = {
    "ring_all_reduce": {
        "whole_arrays_around": replace(whole_arrays_around, "right to rounding; every rank sums in its own order"),
        "scatter_then_direct": replace(scatter_then_direct, "finished parts go to everybody directly, past the neighbours"),
        "to_rank_zero_and_back": replace(to_rank_zero_and_back, "one rank does all the work and its link carries all bytes"),
        "all_send_first": patch(
            REDUCE,
            "        transport.isend(outgoing, right).wait()\n        transport.recv(arrived, left)\n",
            "everybody waits for its own message to be taken before it takes one: a deadlock",
        ),
        "all_receive_first": patch(
            REDUCE,
            "        transport.recv(arrived, left)\n        transport.isend(outgoing, right).wait()\n",
            "everybody waits for a message that nobody has sent",
        ),
        "one_way_at_a_time": replace(one_way_at_a_time, "even ranks send while odd ones receive: half of every link stands idle"),
        "handle_forgotten": patch(
            "        transport.recv(parts[(rank - step) % size], left)\n        sending.wait()\n",
            "        transport.recv(parts[(rank - step) % size], left)\n",
            "the last message may be lost when its sender is done",
        ),
        "adds_when_it_should_copy": patch(
            "        transport.recv(parts[(rank - step) % size], left)\n",
            "        arrived = np.empty_like(parts[(rank - step) % size])\n        transport.recv(arrived, left)\n"
            "        parts[(rank - step) % size][:] += arrived\n",
            "finished parts are added to once more",
        ),
        "gathers_from_the_wrong_part": patch(
            "sending = transport.isend(parts[(rank + 1 - step) % size], right)",
            "sending = transport.isend(parts[(rank - step) % size].copy(), right)",
            "after the first half a rank owns the part of its right neighbour, not its own",
        ),
        "a_step_short": patch(
            "    for step in range(size - 1):  # all-gather",
            "    for step in range(size - 2):  # all-gather",
            "the last part is never copied",
        ),
        "receives_into_its_own_part": patch(
            "        arrived = np.empty_like(growing)\n",
            "        arrived = outgoing\n",
            "the buffer that is being sent is received into: what the neighbour reads depends on who is first",
        ),
        "works_in_place": patch("    result = values.copy()\n", "    result = values\n", "the caller's array is overwritten"),
        "parts_rounded_down": replace(parts_rounded_down, "a length that is no multiple of the ranks"),
        "padded": replace(padded, "the padding comes back with the result"),
        "through_float64": replace(
            through_float64, "twice the bytes for float32, and integers above 2**53 lose their last digits"
        ),
        "integers_through_int64": replace(integers_through_int64, "the sum is right, and the messages are wider than values"),
        "real_part": replace(real_part, "complex numbers are numeric, too"),
        "one_element_is_no_ring": replace(one_element_is_no_ring, "short arrays take another way, past the neighbours"),
        "gives_what_it_has": replace(gives_what_it_has, "a peer is gone, and the sum lacks it silently"),
        "tries_again": replace(tries_again, "retries for ever: a hang with a busy core"),
    },
    "alpha_beta_fit": {
        "squared_seconds": replace(squared_seconds, "ordinary least squares: the largest message decides, alpha is its noise"),
        "slope_of_the_ends": replace(slope_of_the_ends, "two of the timings are used, the others thrown away"),
        "bandwidth_for_beta": patch(
            "    return alpha, beta / unit\n",
            "    return alpha, unit / beta if beta else 0.0\n",
            "bytes a second, not seconds a byte",
        ),
        "negative_latency": patch("    if alpha < 0:\n", "    if alpha < -1:\n", "messages that arrive before they are sent"),
        "cut_off_at_zero": patch(
            "        alpha, beta = 0.0, sum(b) / bb\n",
            "        alpha = 0.0\n",
            "alpha is cut off and beta left as it was: no longer the best line",
        ),
        "negative_bandwidth": patch("    elif beta < 0:\n", "    elif beta < -1:\n", "larger messages are faster"),
        "flat_keeps_its_slope": patch(
            "        alpha, beta = sum(a) / aa, 0.0\n", "        beta = 0.0\n", "beta is cut off and alpha left as it was"
        ),
        "mean_of_rates": patch(
            "    beta = (sum(b) * aa - sum(a) * ab) / determinant\n",
            "    beta = sum(t / s for s, t in zip(sizes, seconds, strict=True) if s) / len(sizes) * unit\n",
            "seconds per byte averaged over all sizes, latency and all",
        ),
        "sorts_in_place": replace(sorts_in_place, "the caller's lists come back in another order"),
        "lists_only": replace(lists_only, "a tuple of times is a sequence as well"),
        "only_zero_refused": replace(only_zero_refused, "a negative time gets a line"),
        "one_size_will_do": replace(one_size_will_do, "a single size cannot tell latency from bandwidth"),
        "zero_time_accepted": patch(
            "        positive(seconds=t)\n", "", "a time of zero divides by zero, a negative one makes a line"
        ),
    },
}

HAPPY = {"ring_all_reduce": two_ranks_of_four, "alpha_beta_fit": a_clean_line}
