"""5.3 Matrix multiplication: tiles for many rows, strips for few, and many small products in one launch.

For each exercise write the body of its Triton kernels, and let the function below them call the launcher that is given. Then run
`labs check 5.3` (or `pytest labs/c5/test_m03_matmul.py`). Stuck? `labs hint 5.3` shows one more each time. No GPU is needed:
without one, kernels run in Triton's interpreter, and the checks count the bytes they ask for and compile them for an RTX 4090.

All tensors of one call are bfloat16, float16 or float32, of s bytes an element; sums are float32, rounded once, at the end.
Strides count elements, from one row to the next; neighbours within a row are neighbours in memory, and what lies behind a row's
end is somebody else's, perhaps a NaN. A row number times its stride may pass 2**31, so a tile's first row must be `.to(tl.int64)`
before it is multiplied. Rows and columns that do not exist may be masked or replaced by the last one, but never loaded or stored.
`tl.dot(a, b, acc, input_precision="ieee")` is acc + a·b: a [m, k], b [k, n], acc [m, n] float32, all at least 16 long. Without
"ieee" a GPU rounds float32 to TF32. A name that is a scalar before an `if` or a loop cannot become a block inside it
(`x_ptr += m[:, None] * x_stride`): the interpreter lets it pass, the compiler does not. Kernels do all of the work, on tensors
where they lie: torch copies, adds and rounds nothing.
"""

from __future__ import annotations

import torch
from minillm.kernels.gemm import default_config
from minillm.kernels.gemv import GemvConfig, gemv_config
from minillm.kernels.grouped_gemm import grouped_gemm_blocks, grouped_gemm_warps
from minillm.kernels.linear_tile import tile_of  # noqa: F401  for your kernel
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from torch import Tensor

from labs.kit import exercise

# ------------------------------------------------------------------------------------------------------------------------ gemm


@triton.jit
def gemm_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, out_stride,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Yours. One program, one tile [BLOCK_M, BLOCK_N] of out. Which one, so that programs that run together share strips:
    `tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)`.
    Without HAS_BIAS, bias_ptr is None."""


def launch_gemm(kernel, x, w, bias, out, config) -> Tensor:
    """Given: makes the result and chooses the block sizes where they are None, and starts one program for each tile."""
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device) if out is None else out
    config = config or default_config(m, x.dtype)
    blocks = config.kwargs
    if m and n:
        kernel[(triton.cdiv(m, blocks["BLOCK_M"]) * triton.cdiv(n, blocks["BLOCK_N"]),)](
            x, w, bias, out, m, n, k, x.stride(0), w.stride(0), out.stride(0), HAS_BIAS=bias is not None, **blocks,
            num_warps=config.num_warps, num_stages=config.num_stages,
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.gemm:gemm", part="kernels.gemm")
def gemm(
    x: Tensor, w: Tensor, bias: Tensor | None = None, out: Tensor | None = None, config: triton.Config | None = None
) -> Tensor:
    """Activations times a weight as checkpoints store it, tile by tile.

        out[m, n] = rounded(Σ_k x[m, k] · W[n, k] + bias[n])

    x [M, K], w [N, K], bias [N] or None; any M, N, K, 0 included (a sum over nothing is 0). Returns [M, N], in `out` if given,
    which may be a slice of a wider tensor. x and w may be such slices. config: a triton.Config with BLOCK_M, BLOCK_N, BLOCK_K
    and GROUP_M, which need not divide anything. The sum stays in float32 from the first product to the bias; a result beyond
    float16's 65,504 is infinite, a sum that passes it on the way is not.

    Bytes: a tile asks for BLOCK_M rows of x and BLOCK_N rows of W, once, K elements each, and its part of the bias, and is
    written once; nothing else is loaded. All tiles together ask for at most ⌈M/BLOCK_M⌉ · ⌈N/BLOCK_N⌉ · (BLOCK_M + BLOCK_N) · K ·
    s, so each row of x once for each *column of tiles*, not for each column. With M = N = K = n and square tiles of t: 2·n³·s/t.
    How much of it the L2 cache delivers depends on the order: the first GROUP_M · c programs work on GROUP_M by c tiles.

    On tensor cores: products by tl.dot, on the tensors' own 16-bit numbers, not on copies in float32.

    Body: `return launch_gemm(gemm_kernel, x, w, bias, out, config)`.

    Source: Tillet, Kung & Cox 2019, "Triton: an intermediate language and compiler for tiled neural network computations".
    """
    raise NotImplementedError


# ------------------------------------------------------------------------------------------------------------------------ gemv


@triton.jit
def gemv_rows_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, x_stride, w_stride, part,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Yours. Program (BLOCK_N columns, split): for all M rows, the sum over k from split·part up to (split+1)·part, or up to K if
    that is less, to number `split` of out [S, M, N], which is contiguous. BLOCK_M is 16, whatever M is. A split may be empty:
    its part is 0. Without HAS_BIAS, bias_ptr is None."""


@triton.jit
def sum_parts_kernel(parts_ptr, bias_ptr, out_ptr, N, size, SPLITS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """Yours. Program i: BLOCK of the `size` = M·N results, as if in one row: parts [SPLITS, size] float32 added from the first to
    the last, then bias [N], then rounded into out [M·N]."""


def launch_gemv(kernel, sum_kernel, x, w, bias, config) -> Tensor:
    """Given: chooses the block sizes where they are None; with one split your first kernel writes the result itself, with more
    it writes float32 parts (without bias), which your second adds up."""
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if m == 0 or n == 0:
        return out
    config = config or gemv_config(max(2, m), n, k)
    splits, block_n, block_k = config.splits, max(16, config.block_n), max(16, config.block_k)
    parts = out if splits == 1 else torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    part = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k  # whole blocks, so that the last splits may be empty
    kernel[(triton.cdiv(n, block_n), splits)](
        x, w, bias, parts, m, n, k, x.stride(0), w.stride(0), part, HAS_BIAS=bias is not None and splits == 1,
        BLOCK_M=16, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    if splits > 1:
        sum_kernel[(triton.cdiv(m * n, 1024),)](
            parts, bias, out, n, m * n, SPLITS=splits, HAS_BIAS=bias is not None, BLOCK=1024, num_warps=4
        )
    return out


@exercise(reference="minillm.kernels.gemv:gemv", part="kernels.gemv")
def gemv(x: Tensor, w: Tensor, bias: Tensor | None = None, config: GemvConfig | None = None) -> Tensor:
    """The same product for the few rows of a decode step: strips of W, each read once, whatever the number of rows.

        out[m, n] = rounded(Σ_k x[m, k] · W[n, k] + bias[n])

    x [M, K] with M up to 16, w [N, K], bias [N] or None; any N and K, 0 included. Returns a new contiguous [M, N]. x and w may be
    slices of wider tensors. config: block_n, block_k and splits (block sizes below 16 are taken as 16 here).

    Split-K: with S = config.splits the sum over K is cut into S parts, so that S times as many programs share the reading. The
    parts are float32, and are added in a fixed order: the same input gives the same bits every time, which sums by atomic
    operations do not. A row's result does not depend on the rows beside it, if there are two or more.

    Bytes: each weight is asked for once, N·K·s (the last strip may ask for its last row again in place of those that do not
    exist). Each of the ⌈N/block_n⌉ strips asks for the M rows of x once: M·K·s; not for 16 of them, though the tile has 16. With
    S > 1 parts are written once and read once: 8·S·M·N more, and the result is written once, M·N·s.

    Body: `return launch_gemv(gemv_rows_kernel, sum_parts_kernel, x, w, bias, config)`.

    Source: split-K as in Osama et al. 2023, "Stream-K", arXiv 2301.03598, section 3 (fixed-split), with the ordered sum.
    """
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------- grouped_gemm


@triton.jit
def grouped_gemm_kernel(
    x_ptr, w_ptr, offsets_ptr, out_ptr, G, N, K, x_stride, w_group_stride, w_stride, out_stride,
    ADD: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Yours. Program (row tile, column tile). Row tiles are counted through all groups: those of group 0 come first,
    ⌈rows/BLOCK_M⌉ of them, then those of group 1, and so on; no tile has rows of two groups. There are more programs than tiles:
    those past the last do nothing. BLOCK_G is a power of two, at least G: all offsets fit one block; tl.cumsum adds along it."""


def launch_grouped_gemm(kernel, x, w, offsets, out, add) -> Tensor:
    """Given: makes the result where it is None, and starts as many programs as any offsets could need, since how many these need
    is known only on the GPU: a group may waste at most one tile."""
    (rows, k), (groups, n) = x.shape, w.shape[:2]
    out = torch.zeros(rows, n, dtype=x.dtype, device=x.device) if out is None else out
    blocks = grouped_gemm_blocks(rows, groups)
    row_tiles = min(rows, triton.cdiv(rows, blocks["BLOCK_M"]) + groups)
    if row_tiles and n and groups:
        kernel[(row_tiles, triton.cdiv(n, blocks["BLOCK_N"]))](
            x, w, offsets, out, groups, n, k, x.stride(0), w.stride(0), w.stride(1), out.stride(0),
            ADD=add, BLOCK_G=next_power_of_2(groups), **blocks, num_warps=grouped_gemm_warps(blocks), num_stages=3,
        )  # fmt: skip
    return out


@exercise(reference="minillm.kernels.grouped_gemm:grouped_gemm")
def grouped_gemm(x: Tensor, w: Tensor, offsets: Tensor, out: Tensor | None = None, add: bool = False) -> Tensor:
    """One product for each group of rows, in one launch: the experts of a mixture, or the LoRA adapters of a batch.

        out[t, n] = rounded(Σ_k x[t, k] · W[g, n, k]  (+ out[t, n] if add))          for offsets[g] <= t < offsets[g + 1]

    x [T, K], sorted by group; w [G, N, K]; both may be slices of wider tensors. offsets [G + 1] int32 or int64, ascending, on the
    device: the host must not look at them, it would wait. Groups may be empty. Rows before offsets[0] and from offsets[G] on
    belong to nobody: they are 0 in a new result, and stay as they are in `out`. Returns [T, N], in `out` if given, which may be a
    slice, too. With add=True the products are added, in float32, to what out holds, and rounded together with it: the base
    model's output, plus LoRA.

    Bytes: with τ = Σ ⌈rows of g / BLOCK_M⌉ row tiles, τ · ⌈N/BLOCK_N⌉ · (BLOCK_M + BLOCK_N) · K · s asked for at most, besides
    the offsets, which each program reads (at most twice); N·s written for each row that has a group, and as much read with add.
    The weights of a group without rows are not touched: that is what makes a mixture of experts cheap.

    Body: `return launch_grouped_gemm(grouped_gemm_kernel, x, w, offsets, out, add)`.

    Sources: Gale et al. 2022, "MegaBlocks", arXiv 2211.15841; Chen et al. 2023, "Punica", arXiv 2310.18547.
    """
    raise NotImplementedError
