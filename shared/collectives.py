"""What it costs when several devices must agree on one array: the alpha-beta model of messages and collectives.

    message_seconds(8192, alpha=3e-6, beta=1 / 450e9)           3.02e-06
    ring_all_reduce_seconds(8192, 2, 3e-6, 1 / 450e9)           6.02e-06: two messages, and hardly any bytes

A message of n bytes takes alpha + n * beta seconds: alpha is the latency that each message pays, however small, beta the seconds
a byte takes in one direction, so 1 / beta is a bandwidth "each way". Adding up and waiting for a late rank are not in it.

Sources: R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994); R. Thakur, R. Rabenseifner,
W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005).
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.models import Model
from shared.units import not_negative, positive

# Attention's output projection and the MLP's down projection: after each, every rank holds a part of the sum.
ALL_REDUCES_PER_LAYER = 2


def message_seconds(num_bytes: float, alpha: float, beta: float) -> float:
    """Seconds of one message. alpha: seconds; beta: seconds a byte, one way.

    Raises ValueError, as all functions here do, for a number that is below zero.
    """
    not_negative(num_bytes=num_bytes, alpha=alpha, beta=beta)
    return alpha + num_bytes * beta


def half_speed_bytes(alpha: float, beta: float) -> float:
    """The message of which latency takes one half and bytes the other (Hockney's n 1/2). Raises ValueError if beta is zero."""
    not_negative(alpha=alpha)
    positive(beta=beta)
    return alpha / beta


def reduce_scatter_seconds(num_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Around a ring: each rank ends with one of `ranks` parts of the sum of everyone's num_bytes."""
    positive(ranks=ranks)
    return (ranks - 1) * message_seconds(num_bytes / ranks, alpha, beta)


def all_gather_seconds(num_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Around a ring: each rank begins with one of `ranks` parts of num_bytes and ends with all."""
    return reduce_scatter_seconds(num_bytes, ranks, alpha, beta)


def ring_all_reduce_seconds(num_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Reduce-scatter, then all-gather: 2 (p - 1) messages of a p-th. The fewest bytes that an all-reduce of arrays can send."""
    return reduce_scatter_seconds(num_bytes, ranks, alpha, beta) + all_gather_seconds(num_bytes, ranks, alpha, beta)


def tree_all_reduce_seconds(num_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Up a binomial tree and down again, whole arrays, not pipelined: 2 ceil(log2 p) messages of everything."""
    positive(ranks=ranks)
    return 2 * (ranks - 1).bit_length() * message_seconds(num_bytes, alpha, beta)


def direct_all_reduce_seconds(num_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Everyone sends its whole array to everyone at once ("one-shot") and adds up: one latency, p - 1 arrays of bytes."""
    positive(ranks=ranks)
    return message_seconds((ranks - 1) * num_bytes, alpha, beta) if ranks > 1 else 0.0


def tensor_parallel_all_reduces(model: Model) -> int:
    """All-reduces of one forward pass of a dense decoder whose layers are split between ranks; embedding and head left out."""
    return ALL_REDUCES_PER_LAYER * model.num_layers


def tensor_parallel_message(model: Model, tokens: int, bytes_per_element: float = 2) -> float:
    """Bytes that one of these all-reduces adds up: a hidden state for each of the step's `tokens` tokens."""
    positive(tokens=tokens, bytes_per_element=bytes_per_element)
    return tokens * model.hidden_size * bytes_per_element


def tensor_parallel_bytes(model: Model, tokens: int, bytes_per_element: float = 2) -> float:
    """Bytes all-reduced in a step of `tokens` tokens, over all layers. With two ranks and a ring each rank sends as many."""
    return tensor_parallel_all_reduces(model) * tensor_parallel_message(model, tokens, bytes_per_element)


def alpha_beta_fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha (seconds) and beta (seconds a byte) of the line alpha + size * beta that explains timed messages best.

    Best is what makes the sum of squared *relative* errors, ((alpha + size * beta - t) / t) ** 2, least among alpha, beta >= 0:
    an error of a tenth counts alike at 1 KB and at 16 MB. Squared seconds would let the largest message decide alone.
    sizes: bytes, not negative, at least two different ones; seconds: above zero, one for each. Else ValueError.
    """
    if len(sizes) != len(seconds):
        raise ValueError(f"one time for each size is needed; there are {len(sizes)} sizes and {len(seconds)} times")
    for size, t in zip(sizes, seconds, strict=True):
        not_negative(size=size)
        positive(seconds=t)
    if len(set(sizes)) < 2:
        raise ValueError("at least two different sizes are needed to tell latency from bandwidth")
    unit = max(sizes)  # sizes as shares of the largest, so that the sums below are of like magnitude
    a = [1 / t for t in seconds]
    b = [size / unit / t for size, t in zip(sizes, seconds, strict=True)]
    aa, ab, bb = _dot(a, a), _dot(a, b), _dot(b, b)
    determinant = aa * bb - ab * ab
    alpha = (sum(a) * bb - sum(b) * ab) / determinant
    beta = (sum(b) * aa - sum(a) * ab) / determinant
    if alpha < 0:
        alpha, beta = 0.0, sum(b) / bb
    elif beta < 0:
        alpha, beta = sum(a) / aa, 0.0
    return alpha, beta / unit


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
