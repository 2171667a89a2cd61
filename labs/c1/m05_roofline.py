"""1.5 The roofline: what a piece of work can reach on a machine, and which of two ceilings stops it.

Write the functions below, then run `labs check 1.5` (or `pytest labs/c1/test_m05_roofline.py`). Stuck? `labs hint 1.5`.
The first three are a line or two each; the fourth is a count. Plain arithmetic: no model, no GPU.

    shared.units.positive(name=value, ...)          raises the ValueError unless each value is finite and above zero
    shared.units.not_negative(name=value, ...)      the same, and zero is fine
"""

from __future__ import annotations

from labs.kit import exercise


@exercise(reference="shared.roofline:arithmetic_intensity")
def arithmetic_intensity(flops: float, num_bytes: float) -> float:
    """FLOP per byte: how much is computed for each byte that moves between memory and chip.

    flops: floating-point operations, a multiply-add counted as two. Zero is fine: copying computes nothing.
    num_bytes: bytes read and written.
    Returns FLOP/byte, not rounded. Raises ValueError for negative FLOPs, or unless num_bytes is above zero.

    A matrix of 4,096 × 4,096 numbers of two bytes times a vector: 33,554,432 FLOPs, 33,570,816 bytes, 0.9995 FLOP/byte.
    """
    raise NotImplementedError


@exercise(reference="shared.roofline:attainable")
def attainable(intensity: float, peak_flops: float, bandwidth: float) -> float:
    """FLOP/s that work of this intensity can reach at best, if computing and moving overlap perfectly: the roofline itself.

    The machine computes at most peak_flops a second, and at most as much as it has bytes for.

    intensity: FLOP/byte of the work.
    peak_flops: FLOP/s of the machine, dense, for the number format in use.
    bandwidth: bytes/s between memory and chip.
    Returns FLOP/s, not rounded. Raises ValueError unless all three are above zero.

    An RTX 4090 in bf16, 165.2e12 FLOP/s and 1.008e12 bytes/s: 4.032e12 FLOP/s at 4 FLOP/byte, 165.2e12 at 1,000.
    Source: Williams, Waterman, Patterson, "Roofline", 2009.
    """
    raise NotImplementedError


@exercise(reference="shared.roofline:bound_of")
def bound_of(flops: float, num_bytes: float, peak_flops: float, bandwidth: float) -> str:
    """What this work waits for on this machine: "compute" or "memory", whichever takes longer on its own.

    "compute" too where both take equally long. Work of no FLOPs waits for memory. Arguments as above.
    Raises ValueError if flops is negative, or another of the four is not above zero.
    """
    raise NotImplementedError


@exercise(reference="shared.roofline:attention_intensity")
def attention_intensity(
    num_seqs: int,
    cached_tokens: int,
    *,
    num_heads: int,
    num_kv_heads: int,
    new_tokens: int = 1,
    shared_tokens: int = 0,
    bytes_per_kv: float = 2,
    bytes_per_element: float = 2,
) -> float:
    """FLOP per byte of attention in one step of a batch, in any layer of a dense decoder.

    num_seqs: sequences in the step, all alike.
    cached_tokens: tokens of each sequence whose keys and values are in the cache. May be 0.
    num_heads: heads of queries. num_kv_heads: heads of keys, and as many of values; each serves num_heads / num_kv_heads heads
        of queries.
    new_tokens: tokens of each sequence computed in this step. 1 in decode; a whole prompt, or guesses to be checked, otherwise.
    shared_tokens: how many of cached_tokens, from the first on, are the same in all sequences. They are in the cache once, and
        are read once for all sequences together.
    bytes_per_kv: of one element of a key or value, cached or new. bytes_per_element: of one of a query or an output.

    FLOPs: each new token of a sequence attends to all cached tokens, to the new ones before it, and to itself. Each such pair
    takes, for each head of queries, 4 FLOPs for each of the head's elements: 2 for the score, 2 for adding up the value.
    Bytes: the key and the value of every token, cached and new, are read once for each head of keys, however many queries
    use them; the query of each new token is read and its output written, one each for each head of queries. Scores stay on the
    chip. Keys, values, queries and outputs all have head_dim elements a head. (Why is head_dim no argument, then?)

    Returns FLOP/byte, not rounded. Raises ValueError if num_seqs, new_tokens, num_heads, num_kv_heads, bytes_per_kv or
    bytes_per_element is not above zero, cached_tokens or shared_tokens is negative, shared_tokens is above cached_tokens, or
    num_heads is no multiple of num_kv_heads.

    Llama-3.1-8B (32 heads, 8 for keys and values), 1,000 tokens each: 3.984 for one user and for 256; 449.6 if all 1,000 are
    shared by 256. A prompt of 1,024 with nothing cached: 410.
    """
    raise NotImplementedError
