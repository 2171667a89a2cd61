"""2.1 One token: the four operators of a decoder that are not a matrix multiplication.

Write the four functions below, then run `labs check 2.1` (or `pytest labs/c2/test_m01_one_token.py`). Stuck? `labs hint 2.1`.
They do not need one another. When they pass, the engine can run them, all thirty layers of the real model:
`minillm generate --attention torch --mine --no-chat --prompt "The capital of France is"`. (Without `--attention torch` the
other three run, with torch's fused attention.)

Tensors are flat: T tokens, one after another, without a batch dimension. A head is head_dim numbers, D for short. The engine
hands you pieces of larger tensors, which need not be contiguous in memory: `.reshape` works on these and `.view` may not. Never
write into an argument; others still need it.
"""

from __future__ import annotations

from torch import Tensor

from labs.kit import exercise


@exercise(reference="minillm.model.ops:rms_norm", part="ops.rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of one, then each of its elements by the weight (Zhang & Sennrich 2019, arXiv
    1910.07467):

        x / sqrt(mean(x²) + eps) * weight

    The mean is over the last dimension only: every token, and every head where heads are normalised, by itself. No mean is
    subtracted. eps is added under the root, so a row of zeros stays zeros.

    x [..., H] of any number of dimensions, perhaps of no rows at all; weight [H] of the same dtype: float32, bfloat16 or
    float16. Returns [..., H] in that dtype. Squares, mean, root and quotient are computed in float32 whatever the dtype (1000²
    is too large for float16); the quotient is rounded to the dtype before it meets the weight.
    """
    raise NotImplementedError


@exercise(reference="minillm.model.ops:rope", part="ops.rope")
def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of numbers of each head by an angle that belongs to the token's position (Su et al. 2021, arXiv
    2104.09864, section 3.2).

    Pair i of a head is its elements i and i + D/2, for i from 0 to D/2 - 1: the order of Hugging Face's checkpoints. (The paper
    pairs neighbours, 2i and 2i + 1; for these weights that is wrong.) With c and s the cosine and sine for token and pair, the
    pair (a, b) becomes

        (a*c - b*s, b*c + a*s)

    x [T, heads, D], queries or keys, D even; cos, sin [T, D/2], x's dtype, the same for all heads of a token. T may be 0.
    Returns [T, heads, D] in x's dtype.
    """
    raise NotImplementedError


@exercise(reference="minillm.model.ops:gqa_attention", part="ops.gqa_attention")
def gqa_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, sliding_window: int | None = None) -> Tensor:
    """Causal attention of one sequence, several query heads sharing each key-value head (Ainslie et al. 2023, arXiv
    2305.13245).

    q [T, num_heads, D] are the queries of the sequence's last T tokens; k, v [S, num_kv_heads, D] are the keys and values of all
    of its S >= T tokens. So query t stands at position p = S - T + t. It sees the tokens 0 to p, itself included, and with a
    sliding window only the last `sliding_window` of these: those at positions above p - sliding_window.

    num_heads is a multiple of num_kv_heads. Query head h reads key-value head h // (num_heads / num_kv_heads): with six query
    heads and two key-value heads, heads 0, 1, 2 read the first and 3, 4, 5 the second. For each query and head,

        score[s] = scale * (q · k[s])    for the tokens s it sees
        out      = sum over s of softmax(score)[s] * v[s]

    scale is whatever the model says, not always D ** -0.5. Returns [T, num_heads, D] in q's dtype; scores, softmax and sums are
    float32 (in float16 a score of two ordinary vectors may overflow). T may be 0, 1 or S.
    """
    raise NotImplementedError


@exercise(reference="minillm.model.ops:swiglu", part="ops.swiglu")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The gate of the feed-forward layer, element by element (Shazeer 2020, arXiv 2002.05202, eq. 6):

        silu(gate) * up,    silu(x) = x * sigmoid(x) = x / (1 + exp(-x))

    It stands between the layer's matrices: w_down(swiglu(w_gate(x), w_up(x))). Only the gate goes through silu.

    gate, up [..., I], one shape and dtype (float32, bfloat16 or float16), perhaps of no rows. Returns the same. Any finite gate
    gives a finite silu: 1000 gives 1000, -1000 gives 0. torch's own functions are yours to use.
    """
    raise NotImplementedError
