"""One token for each row of logits, drawn after temperature, top-k, min-p and top-p: no sort, one kernel, nothing for the host
to do.

logits [B, V] in bfloat16, float16 or float32 -> tokens [B] int64. With w_i = exp((l_i − max l) / temperature) in float32,
candidates are, in this order,

1. top-k: logits not below the k-th largest (what ties with it stays);
2. min-p: w_i ≥ min_p;
3. top-p: the likeliest of these until they have the share top_p of their mass; of equal ones, the first.

A number u in [0, 1) then picks the first candidate, in the vocabulary's order, at which the cumulative weight exceeds u times
its total. u has 53 bits and is Philox-4x32-10's for the key `seed` and the counter (position, index): it depends on what is
drawn only. These are minillm.sampling's rules and numbers, so that a request gets the same tokens with either.

When the two differ: exp's last bits and the order of sums are not the same. On a GPU, with z = (l_i − max l) / temperature, a
weight is off by a factor of 1 ± 2^-22·(1 + |z|) (exp2 by approximation; z rounded three times) and a block's sum by up to
40·2^-24 (the depth of its tree). Weighted by probability, |z| is less than the entropy, so less than ln V: the border between
two tokens moves by 10^-5 of the total at the very most, usually by some 10^-7. Another token can come out only if u lies that
close to a border, or if the candidates differ: w_i that close to min_p, top_p · mass to the mass ahead of a candidate, or two
weights at the nucleus' edge to each other (all relatively). Equal logits have equal weights in both.

A row with NaN or +inf, or with nothing above −inf, has no distribution. Its token is argmax's, as is that of a row with
temperature 0; an engine that wants to end such a request must look at the logits, as minillm.sampling.bad_logits does.

One program a row: rows of a batch run side by side. Bytes, s of the logits' dtype: a draw without filters reads it for the
maximum, for the total, up to the end of the block where u falls, and that block once more: **2·s·V to 3·s·V** and a block for
each row. A filter adds a pass of s·V for each step of its bisection (minillm.kernels.sample_search: some 10 to 20, 32 at most),
top-p three more; all but the first find the row in the L2 cache.

Sources: Holtzman et al. 2020, arXiv 1904.09751 (top-p); Nguyen et al. 2024, arXiv 2407.01082 (min-p); Salmon et al. 2011,
"Parallel Random Numbers: As Easy as 1, 2, 3" (Philox).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minillm.kernels.argmax import block_for, check_logits, warps_for
from minillm.kernels.checks import FLOATS, INDICES, check_last_dim_contiguous, check_shape, check_tensors
from minillm.kernels.philox import uniform, uniform_torch
from minillm.kernels.runtime import tl, triton
from minillm.kernels.sample_search import (
    MINUS_INF,
    PLUS_INF,
    first_passing,
    kth_largest,
    largest,
    nucleus_edge,
    number,
    weights_at,
)
from minillm.kernels.shipped import Shipped
from torch import Tensor


@triton.jit
def draw(x_ptr, length, top, temperature, k, min_p, top_p, u, BLOCK: tl.constexpr):
    """The token at u. top: the order of the largest logit, which is finite."""
    peak = number(top)
    # further out nothing changes any more, but float32 would turn the temperature into 0 or infinity
    inverse = 1.0 / tl.minimum(tl.maximum(temperature, 1e-30), 1e30)
    kth = MINUS_INF + 0 * top
    if (k > 0) & (k < length):
        kth = kth_largest(x_ptr, length, k, top, BLOCK)
    edge, last = 0.0 * peak, length
    if top_p < 1:
        edge, last = nucleus_edge(x_ptr, length, peak, inverse, kth, min_p, top_p, BLOCK)
    # The same sums of the same blocks as first_passing's: some block must pass a target below their total.
    total = tl.cast(0.0, tl.float64)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(weights_at(x_ptr, i, length, peak, inverse, kth, min_p, edge, last), axis=0).to(tl.float64)
    target = tl.minimum(u * total, total * 0.9999999999999998)  # a u next to 1 may round to the total itself
    return first_passing(x_ptr, length, peak, inverse, kth, min_p, edge, last, target, BLOCK, False)


@triton.jit
def sample_kernel(
    logits_ptr, token_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seed_ptr, position_ptr, index_ptr, stride, length,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    top, token = largest(logits_ptr, length, BLOCK)
    temperature = tl.load(temperature_ptr + row)
    if (temperature > 0) & (top > MINUS_INF) & (top < PLUS_INF):
        u = uniform(tl.load(seed_ptr + row), tl.load(position_ptr + row), tl.load(index_ptr + row))
        k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)
        min_p = tl.minimum(tl.load(min_p_ptr + row), 1.0)  # above 1, nothing would be left
        token = draw(logits_ptr, length, top, temperature, k, min_p, top_p, u, BLOCK)
    tl.store(token_ptr + row, token.to(tl.int64))


def sample(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    index: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
) -> Tensor:
    """logits [B, V] -> tokens [B] int64. All else [B], a value for each row:

    temperature float32, 0 for argmax; seed int64, the 64 bits of an unsigned one; position int64, of the token in its sequence;
    index int64, which of n samples (0); top_k int64, 0 keeps all; top_p float64, 1 keeps all; min_p float32, 0 keeps all.
    To look at the values would make the host wait for the GPU, so nothing refuses bad ones; the likeliest token always stays in.
    """
    check_logits(logits)
    rows, length = logits.shape
    index, top_k, top_p, min_p = _defaults(rows, logits.device, index, top_k, top_p, min_p)
    integers = {"seed": seed, "position": position, "index": index, "top_k": top_k}
    check_tensors(
        (*FLOATS, torch.float64, *INDICES), logits=logits, temperature=temperature, top_p=top_p, min_p=min_p, **integers
    )
    check_tensors((torch.float32,), temperature=temperature, min_p=min_p)
    check_tensors((torch.float64,), top_p=top_p)
    check_tensors((torch.int64,), **integers)
    check_shape((rows,), temperature=temperature, top_p=top_p, min_p=min_p, **integers)
    check_last_dim_contiguous(temperature=temperature, top_p=top_p, min_p=min_p, **integers)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        block = block_for(length, logits.dtype)
        sample_kernel[(rows,)](
            logits, tokens, temperature, top_k, top_p, min_p, seed, position, index, logits.stride(0), length,
            BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
    return tokens


def _defaults(
    rows: int, device: torch.device, index: Tensor | None, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values that filter nothing for what is None."""
    zeros = torch.zeros(rows, dtype=torch.int64, device=device) if index is None or top_k is None else None
    return (
        zeros if index is None else index,
        zeros if top_k is None else top_k,
        torch.ones(rows, dtype=torch.float64, device=device) if top_p is None else top_p,
        torch.zeros(rows, dtype=torch.float32, device=device) if min_p is None else min_p,
    )


def sample_torch(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    index: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
) -> Tensor:
    """The same in plain torch, by sorting, a row at a time."""
    rows, length = logits.shape
    index, top_k, top_p, min_p = _defaults(rows, logits.device, index, top_k, top_p, min_p)
    u = uniform_torch(seed, position, index)
    tokens = logits.argmax(-1)
    for row in range(rows):
        x = logits[row].float()
        if not (temperature[row] > 0 and x.amax().isfinite()):
            continue
        weight = ((x - x.amax()) / temperature[row].clamp(1e-30, 1e30)).exp()
        if 0 < top_k[row] < length:
            weight[x < x.topk(int(top_k[row])).values[-1]] = 0
        weight[weight < min_p[row]] = 0
        if top_p[row] < 1:
            descending, order = weight.double().sort(descending=True, stable=True)
            cumulative = descending.cumsum(0)
            weight[order[cumulative - descending >= top_p[row] * cumulative[-1]]] = 0
        cumulative = weight.double().cumsum(0)
        tokens[row] = torch.searchsorted(cumulative, u[row] * cumulative[-1], right=True).clamp_max(length - 1)
    return tokens


def sample_bytes(tokens: Sequence[int], length: int, dtype: torch.dtype) -> int:
    """Bytes that the draws of these tokens without filters request: logits, 48 of parameters for each row, 8 of its token."""
    block, total = block_for(length, dtype), 0
    for token in tokens:
        first = token // block * block
        end = min(first + block, length)
        total += (2 * length + end + (end - first)) * dtype.itemsize + 48 + 8
    return total


def _shipped(name: str, length: int, dtype: torch.dtype) -> Shipped:
    block = block_for(length, dtype)
    signature = {"logits_ptr": {torch.bfloat16: "*bf16", torch.float32: "*fp32"}[dtype], "token_ptr": "*i64"}
    signature |= {"temperature_ptr": "*fp32", "top_k_ptr": "*i64", "top_p_ptr": "*fp64", "min_p_ptr": "*fp32"}
    signature |= {"seed_ptr": "*i64", "position_ptr": "*i64", "index_ptr": "*i64", "stride": "i32", "length": "i32"}
    return Shipped(name, "minillm.kernels.sample:sample_kernel", signature, {"BLOCK": block}, tuple(signature), warps_for(block))


SHIPPED = (
    _shipped("sample.bf16.128256", 128256, torch.bfloat16),  # Llama 3's vocabulary
    _shipped("sample.fp32.49152", 49152, torch.float32),  # SmolLM2's
)
