"""5.2 Fusion: what stands between a layer's matrices, as four kernels that read each byte once.

For each exercise write the body of its Triton kernel, and let the function below it call the launcher that is given. Then run
`labs check 5.2` (or `pytest labs/c5/test_m02_fusion.py`). Stuck? `labs hint 5.2` shows one more each time. No GPU is needed:
without one, kernels run in Triton's interpreter, and the checks count the bytes they ask for and compile them for an RTX 4090.

All tensors are bfloat16, float16 or float32, those of one call of one dtype, of s bytes an element. "Rounded" means rounded to
that dtype. `x_stride` and the like count elements, from one row to the next; neighbours within a row are neighbours in memory.
A lane that is masked must neither load nor store: what lies there is somebody else's. Offsets of rows may pass 2**31 elements,
so begin with `row = tl.program_id(0).to(tl.int64)`.
"""

from __future__ import annotations

import torch
from minillm.kernels.rows import as_rows, next_power_of_2, row_block
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# -------------------------------------------------------------------------------------------------------------------- rms_norm


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, x_stride, x_inner_stride, out_stride, length, eps, BLOCK: tl.constexpr):
    """Yours. Program (i, j): the row of x that begins i·x_stride + j·x_inner_stride elements behind x_ptr; the result is row
    i·tl.num_programs(1) + j of out. The row has `length` elements, all of it at once, in BLOCK lanes (a power of two, at least
    length)."""


def launch_rms_norm(kernel, x, weight, eps, out) -> Tensor:
    """Given: makes the result where it is None, and starts one program a row: (T, heads) of them for x [T, heads, H], whose rows
    lie at two strides, else (rows, 1). ValueError for rows too long for a program."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    out_rows, length = as_rows(out=out), x.shape[-1]
    block, num_warps = row_block(length, x.dtype)
    if block < length:
        raise ValueError(f"rows of {length} elements do not fit a program of {block}")
    if x.numel():
        x_rows = x if x.ndim == 3 else as_rows(x=x)[:, None]
        kernel[x_rows.shape[:2]](
            x_rows, weight, out_rows, *x_rows.stride()[:2], out_rows.stride(0), length, eps, BLOCK=block, num_warps=num_warps
        )
    return out


@exercise(reference="minillm.kernels.rms_norm:rms_norm", part="kernels.rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """The norm that begins a layer, and in Qwen3 that of every head of q and k: a warm-up for the next one.

        y = rounded(rounded(x / sqrt(mean(x²) + eps)) * weight)          mean over the last dimension

    x [..., H], weight [H]; H is any number up to 16,384. x [T, heads, H] may be a slice of a fused tensor, as q and k are: from
    head to head it is one stride then, and from token to token another. Returns [..., H], in `out` if given: a view of another
    tensor, perhaps, or x itself. Everything is computed in float32, squares and their sum included; roundings are where the
    formula has them. Without `out`, x stays as it is.

    Bytes, T rows: x is read and y is written, each byte once: 2·T·H·s. In float32, with square (2 passes), mean (1), quotient (2)
    and weight (2) as operations of their own, it is 7·T·H·s. Every row asks for the weight, once.

    Body: `return launch_rms_norm(rms_norm_kernel, x, weight, eps, out)`.

    Source: Zhang & Sennrich 2019, arXiv 1910.07467, equation 4.
    """
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------- add_rms_norm


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr,
    x_stride, residual_stride, out_stride, sum_stride, length, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Yours. Program `row`: one row of `length` elements, all of it at once, in BLOCK lanes (a power of two, at least length)."""


def launch_add_rms_norm(kernel, x, residual, weight, eps, out, residual_out) -> tuple[Tensor, Tensor]:
    """Given: makes the results where they are None, and starts one program a row. ValueError for rows too long for a program."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    residual_out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if residual_out is None else residual_out
    rows = as_rows(x=x), as_rows(residual=residual), as_rows(out=out), as_rows(residual_out=residual_out)
    count, length = rows[0].shape
    block, num_warps = row_block(length, x.dtype)
    if block < length:
        raise ValueError(f"rows of {length} elements do not fit a program of {block}")
    if x.numel():
        x_rows, residual_rows, out_rows, sum_rows = rows
        kernel[(count,)](
            x_rows, residual_rows, weight, out_rows, sum_rows, *(each.stride(0) for each in rows), length, eps,
            BLOCK=block, num_warps=num_warps,
        )  # fmt: skip
    return out, residual_out


@exercise(reference="minillm.kernels.rms_norm:add_rms_norm", part="kernels.add_rms_norm")
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, residual_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What ends one half of a layer and begins the next: the sum goes on as the residual, its norm into the next matrix.

        sum = rounded(residual + x)
        y = rounded(rounded(sum / sqrt(mean(sum²) + eps)) * weight)          mean over the last dimension

    x, residual [..., H], weight [H]; H is any number up to 16,384. Returns (y, sum), both [..., H], in `out` and `residual_out`
    if those are given: views of other tensors, perhaps, or the inputs themselves (out=x and residual_out=residual at once).
    Everything is computed in float32, squares and their sum included; roundings are where the formula has them, and the norm is
    of the *rounded* sum, which is what the next layer will see. Inputs that are not results stay as they are.

    Bytes, T rows: x and the residual are read, sum and y are written, each byte once: 4·T·H·s; reading the sum back for its norm
    would make it 5. Every row asks for the weight, once.

    Body: `return launch_add_rms_norm(add_rms_norm_kernel, x, residual, weight, eps, out, residual_out)`.

    Source: Zhang & Sennrich 2019, arXiv 1910.07467, equation 4.
    """
    raise NotImplementedError


# -------------------------------------------------------------------------------------------------------------------- silu_mul


@triton.jit
def silu_mul_kernel(gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, out_stride, length, BLOCK: tl.constexpr):
    """Yours. Program (row, block): BLOCK columns of a row of `length`, the last block of which may be partly outside."""


def launch_silu_mul(kernel, gate, up, out) -> Tensor:
    """Given: makes the result where it is None, and starts programs of up to 1,024 columns."""
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    gate_rows, up_rows, out_rows = as_rows(gate=gate), as_rows(up=up), as_rows(out=out)
    count, length = gate_rows.shape
    block = min(1024, next_power_of_2(length))
    if gate.numel():
        kernel[(count, triton.cdiv(length, block))](
            gate_rows, up_rows, out_rows, gate_rows.stride(0), up_rows.stride(0), out_rows.stride(0), length,
            BLOCK=block, num_warps=max(1, block // 256),
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.silu_mul:silu_mul", part="kernels.silu_mul")
def silu_mul(gate: Tensor, up: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The gate of a feed-forward layer: silu(gate) * up, elementwise.

        y = rounded(rounded(gate / (1 + exp(-gate))) * up)          the quotient in float32

    gate, up [..., I], any I. Without up, gate is [..., 2·I], as a matrix for both leaves it, and up is its second half: views
    of it do, a copy is not needed. Returns [..., I], in `out` if given, which may be gate or up, or one of the halves.
    A gate of any finite size gives a finite result: at -1000 it is -0, at 1000 it is 1000 times up.

    Bytes, T rows: gate and up are read, y is written, each byte once: 3·T·I·s. As two operations it is 5·T·I·s.

    Body: two lines for `up is None`, then `return launch_silu_mul(silu_mul_kernel, gate, up, out)`.

    Source: Shazeer 2020, arXiv 2002.05202, equation 6.
    """
    raise NotImplementedError


# ------------------------------------------------------------------------------------------------------------------------ rope


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr,
    q_stride, q_head_stride, k_stride, k_head_stride,
    q_out_stride, q_out_head_stride, k_out_stride, k_out_head_stride,
    cos_stride, sin_stride, num_q_heads, half,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Yours. Program (token, head): heads below num_q_heads are q's, the others k's. BLOCK lanes: a power of two, >= half."""


def launch_rope(kernel, q, k, cos, sin, q_out, k_out) -> None:
    """Given: starts one program for each token and each head of q and of k, all in one launch. Strides are (token, head)."""
    (tokens, num_q_heads, head_dim), num_k_heads = q.shape, k.shape[1]
    if tokens and num_q_heads + num_k_heads and head_dim:
        strides = [stride for each in (q, k, q_out, k_out) for stride in each.stride()[:2]]
        kernel[(tokens, num_q_heads + num_k_heads)](
            q, k, cos, sin, q_out, k_out, *strides, cos.stride(0), sin.stride(0), num_q_heads, head_dim // 2,
            BLOCK=next_power_of_2(head_dim // 2), num_warps=1,
        )  # fmt: skip


@exercise(reference="minillm.kernels.rope:rope", part="kernels.rope")
def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, inplace: bool = False) -> tuple[Tensor, Tensor]:
    """Rotary positions: turn each pair (i, i + D/2) of every head of q and k by its token's angle, in one launch.

        first'  = rounded(rounded(first * cos) - rounded(second * sin))
        second' = rounded(rounded(second * cos) + rounded(first * sin))

    q [T, Hq, D], k [T, Hk, D], D even, any number of heads (k may have none); cos and sin [T, D/2]. q and k may be slices of one
    fused tensor [T, Hq + 2·Hk, D]: their tokens then lie further apart than their own heads are long. Returns (q', k'): new
    contiguous tensors; or with inplace=True q and k themselves, overwritten, and nothing around them touched.

    Bytes: q and k are read and written, each byte once: 2·T·(Hq + Hk)·D·s. Every head asks for its token's cos and sin, at most
    once: T·D·s of different bytes.

    Body: choose q_out and k_out (torch.empty, or q and k), `launch_rope(rope_kernel, q, k, cos, sin, q_out, k_out)`, return them.

    Source: Su et al. 2021, arXiv 2104.09864, section 3.2; the pairs are those of Hugging Face's checkpoints.
    """
    raise NotImplementedError
