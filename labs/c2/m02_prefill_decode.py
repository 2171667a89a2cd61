"""2.2 Prefill and decode: what a step costs, whoever is in it, and how fast a machine is, told by its timings.

Write the two functions below, then run `labs check 2.2` (or `pytest labs/c2/test_m02_prefill_decode.py`). Stuck? `labs hint 2.2`.
Plain numbers in, plain numbers out: no model, no torch, no GPU. About 20 lines each, checks of the arguments included. The
sequences are the caller's: lists or tuples, and only read.
"""

from __future__ import annotations

from collections.abc import Sequence

from labs.kit import exercise


@exercise(reference="shared.phases:phase_cost")
def phase_cost(
    batch: Sequence[tuple[int, int, int]],
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    bytes_per_weight: float = 2,
    bytes_per_kv: float = 2,
) -> tuple[float, float]:
    """FLOPs and bytes of one forward pass of a dense decoder over any batch: prefills, decodes, or both in one step.

    batch: for each sequence (new_tokens, cached_tokens, logit_tokens).
        new_tokens     computed in this step: each is a row of every matrix of the layers. A decode has 1, a prefill its prompt.
        cached_tokens  before them, computed in earlier steps: attention reads their keys and values, and that is all.
        logit_tokens   how many of the new ones get logits: 1 for a decode or a whole prompt, 0 for a part of a prompt or an
                       embedding, new_tokens to score a text.

    Matrices of each layer, as inputs x outputs, q = num_heads * head_dim and kv = num_kv_heads * head_dim:
        queries hidden_size x q, keys hidden_size x kv, values hidden_size x kv, output q x hidden_size,
        gate and up hidden_size x intermediate_size each, down intermediate_size x hidden_size.
    After the last layer the head, hidden_size x vocab_size, over the rows that get logits. q need not equal hidden_size.

    FLOPs: a multiply-add is two.
        each matrix                2 * rows * inputs * outputs
        attention, in each layer   4 * q for each pair of a new token and a token it sees: a score, and a share of the sum of
                                   values. A token sees all cached tokens of its own sequence, the new ones before it, and itself.
    Norms, rotations, activations, softmax and the embedding's look-up are not counted.

    Bytes: moved once each, however many rows use them.
        weights   of the layers' matrices; of the head if anybody gets logits, else not; and of the embedding table one row,
                  hidden_size numbers, for each new token (two tokens alike are two rows). bytes_per_weight each.
        KV cache  a key and a value, kv numbers each, in each layer for each cached token (read) and each new one (written).
                  bytes_per_kv for each number.
    Activations are not counted.

    Returns (flops, bytes), exact.
    Raises ValueError for an empty batch; new_tokens below 1; cached_tokens or logit_tokens below 0; logit_tokens above
    new_tokens; or a size, width or count of the shape that is not above zero.

    Llama-3.1-8B (32 layers, 4096, 32 heads, 8 key-value heads of 128, 14336, 128256) in 16 bit: a decode after 1,000 tokens,
    [(1, 1000, 1)], is 15,534,129,152 FLOPs and 15,140,528,128 bytes.
    Source: Kaplan et al. 2020, section 2.1 (2 FLOPs a parameter); Pope et al. 2022 (what decode reads).
    """
    raise NotImplementedError


@exercise(reference="shared.phases:fit_phase_cost")
def fit_phase_cost(timings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The two ceilings of a machine, (peak in FLOP/s, bandwidth in bytes/s), recovered from timings of work done on it.

    timings: (flops, num_bytes, seconds) of two or more pieces of work, in any order; four is usual.

    The roofline says that work takes max(flops / peak, num_bytes / bandwidth) seconds. Nobody says which timing was bound by
    what, but work of low *intensity* (flops / num_bytes) is bound by memory and work of high intensity by arithmetic. So:

        Sort by intensity. Try each border between two neighbours of different intensity (equal ones stay on one side).
        peak       is the geometric mean of flops / seconds over the timings above the border,
        bandwidth  is the geometric mean of num_bytes / seconds over those below it.
        The error of a border is the sum, over ALL timings, of log(predicted seconds / seconds) ** 2, where the prediction is the
        roofline with this peak and this bandwidth.
    Return the peak and bandwidth of the border with the least error.

    The geometric mean of n numbers is the n-th root of their product, exp(mean(log(x))). It is what minimises squared errors of
    logarithms: a timing 10 % too long and one 10 % too short weigh the same, and so do a second and a millisecond.

    If all timings lie on one side of the machine's ridge, they cannot tell the other ceiling: what is returned for it is then
    only a lower bound. No error.
    Raises ValueError for fewer than two different intensities (also for no timings), or a number that is not above zero.

    On a machine of 80e9 FLOP/s and 10e9 bytes/s these four give exactly (80e9, 10e9):
    [(1e9, 2e9, 0.2), (2e9, 1e9, 0.1), (16e9, 1e9, 0.2), (80e9, 2e9, 1.0)].
    Source: Williams, Waterman, Patterson, "Roofline", 2009.
    """
    raise NotImplementedError
