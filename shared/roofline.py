"""How fast work can go at best: the slower of computing it and moving its bytes (Williams, Waterman, Patterson 2009).

Plain numbers in, plain numbers out; `shared.operators` says what FLOPs and bytes a model's step takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.hardware import Ceilings
from shared.models import Model
from shared.operators import Operator, Step, operators
from shared.units import not_negative, positive


def ridge_point(peak_flops: float, bandwidth: float) -> float:
    """The arithmetic intensity, in FLOP per byte, at which a machine's computing and its memory take equally long.

    Work with fewer FLOPs per byte than this waits for memory; work with more waits for the arithmetic units. The ridge belongs
    to a number format, not to a machine: a peak that doubles with FP8 doubles the ridge.

    peak_flops: FLOP/s, dense, for the format and the accumulate format in use (a datasheet's sparse figure is twice as much).
    bandwidth: bytes/s between memory and chip.
    Raises ValueError unless both are above zero.
    """
    positive(peak_flops=peak_flops, bandwidth=bandwidth)
    return peak_flops / bandwidth


def arithmetic_intensity(flops: float, num_bytes: float) -> float:
    """FLOP per byte moved. Raises ValueError for negative FLOPs, or unless num_bytes is above zero."""
    not_negative(flops=flops)
    positive(num_bytes=num_bytes)
    return flops / num_bytes


def attainable(intensity: float, peak_flops: float, bandwidth: float) -> float:
    """FLOP/s that work of this intensity (FLOP/byte) can reach: peak_flops, or what the bandwidth feeds, if that is less.

    Raises ValueError unless all three are above zero.
    """
    positive(intensity=intensity, peak_flops=peak_flops, bandwidth=bandwidth)
    return min(peak_flops, intensity * bandwidth)


def bound_of(flops: float, num_bytes: float, peak_flops: float, bandwidth: float) -> str:
    """ "compute" or "memory": which of the two takes longer for this work; "compute" exactly at the ridge.

    Raises ValueError as ridge_point and arithmetic_intensity do.
    """
    return "compute" if arithmetic_intensity(flops, num_bytes) >= ridge_point(peak_flops, bandwidth) else "memory"


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
    """FLOP per byte of attention in one step over the cache. The same in every layer, and head_dim cancels.

    Each of num_seqs sequences computes new_tokens tokens (decode: one) after cached_tokens that are in the cache. The first
    shared_tokens of these are the same for all sequences, kept once and, by a kernel that can, read once for all of them. Each
    new token attends to all cached ones, to the new ones before it in its sequence and to itself. Counted as in
    shared.operators: 4 FLOPs an element of a query head and pair; keys and values, queries and outputs moved once; no scores.
    bytes_per_kv: an element of the cache; bytes_per_element: of queries and outputs.
    Raises ValueError for a count or size that is not above zero (cached_tokens and shared_tokens may be zero), more shared tokens
    than cached ones, or num_heads that are no multiple of num_kv_heads.
    """
    positive(num_seqs=num_seqs, new_tokens=new_tokens, num_heads=num_heads, num_kv_heads=num_kv_heads)
    positive(bytes_per_kv=bytes_per_kv, bytes_per_element=bytes_per_element)
    not_negative(cached_tokens=cached_tokens, shared_tokens=shared_tokens)
    if shared_tokens > cached_tokens:
        raise ValueError(f"shared_tokens ({shared_tokens}) cannot be more than cached_tokens ({cached_tokens})")
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads ({num_heads}) must be a multiple of num_kv_heads ({num_kv_heads})")
    pairs = num_seqs * (new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2)
    kept = num_seqs * (cached_tokens - shared_tokens + new_tokens) + shared_tokens
    moved = kept * 2 * num_kv_heads * bytes_per_kv + num_seqs * new_tokens * 2 * num_heads * bytes_per_element
    return arithmetic_intensity(4 * num_heads * pairs, moved)


def operator_seconds(operator: Operator, machine: Ceilings) -> float:
    """Seconds one operator takes at best, computing and moving overlapped perfectly."""
    return max(operator.flops / machine.peak_flops, operator.bytes / machine.bandwidth)


def total_seconds(work: Iterable[Operator], machine: Ceilings, *, efficiency: float = 1.0) -> float:
    """Seconds for operators one after another, each at its own roof.

    efficiency: the share of both ceilings that real kernels reach; 1 gives the floor that nothing gets under.
    Raises ValueError unless it is above 0 and at most 1.
    """
    if not 0 < efficiency <= 1:
        raise ValueError(f"efficiency is a share of the ceiling, above 0 and at most 1; got {efficiency}")
    return sum(operator_seconds(operator, machine) for operator in work) / efficiency


def prefill_seconds(
    model: Model, machine: Ceilings, tokens: int, *, efficiency: float = 1.0, cached: int = 0, weight_bits: float = 16
) -> float:
    """Seconds to prefill one prompt of `tokens` tokens, after `cached` tokens that are in the cache already.

    machine: `hardware.load("rtx-4090").ceilings("bf16")`, or two ceilings measured here. weight_bits: of the layers' linear
    weights; everything else has 16 bit (operators() and total_seconds() take any other step). Raises ValueError as these do.
    """
    return total_seconds(operators(model, Step(1, tokens, cached, weight_bits=weight_bits)), machine, efficiency=efficiency)


def decode_seconds(
    model: Model, machine: Ceilings, context: int, *, num_seqs: int = 1, efficiency: float = 1.0, weight_bits: float = 16
) -> float:
    """Seconds of one decode step: each of num_seqs sequences adds one token to the `context` tokens it has in the cache.

    num_seqs / decode_seconds(...) is tokens/s. The embedding table lies in memory, but a step reads one row a token of it, so a
    step takes less than reading all weights would. Arguments and errors as in prefill_seconds.
    """
    step = Step(num_seqs, new_tokens=1, cached_tokens=context, weight_bits=weight_bits)
    return total_seconds(operators(model, step), machine, efficiency=efficiency)


def decode_ceiling(weight_bytes: float, bandwidth: float, kv_bytes: float = 0) -> float:
    """The usual rule of thumb for one sequence: tokens/s if each step reads all weights and the cache once, and nothing else.

    It charges the whole input embedding, of which a token reads one row: too low by its share of the weights where the output
    head has a table of its own (7 % for Llama-3.1-8B). decode_seconds counts what a step reads.
    weight_bytes, kv_bytes: bytes; bandwidth: bytes/s. Raises ValueError unless the first and last are above zero.
    """
    positive(weight_bytes=weight_bytes, bandwidth=bandwidth)
    not_negative(kv_bytes=kv_bytes)
    return bandwidth / (weight_bytes + kv_bytes)
