"""Mistakes planted in 5.3."""

from itertools import pairwise

import torch
from minillm.kernels.gemm import gemm as right_gemm
from minillm.kernels.gemv import GemvConfig
from minillm.kernels.gemv import gemv as right_gemv
from minillm.kernels.grouped_gemm import grouped_gemm as right_grouped_gemm
from minillm.kernels.runtime import tl, triton

from labs.kit.wrong import patch, replace


def multiples_of_everything(subject):
    """The test one would write first: float32, tiles that fit, no slices."""
    x, w, bias = torch.randn(32, 64), torch.randn(64, 64), torch.randn(64)
    torch.testing.assert_close(subject(x, w, bias), x @ w.T + bias, rtol=1e-4, atol=1e-4)


def one_strip(subject):
    """The test one would write first: as many rows as the tile has, one split."""
    x, w = torch.randn(16, 64), torch.randn(64, 64)
    torch.testing.assert_close(subject(x, w), x @ w.T, rtol=1e-4, atol=1e-4)


def two_full_groups(subject):
    """The test one would write first: groups of as many rows as a tile has."""
    x, w, offsets = torch.randn(32, 64), torch.randn(2, 64, 64), torch.tensor([0, 16, 32])
    expected = torch.cat([x[:16] @ w[0].T, x[16:] @ w[1].T])
    torch.testing.assert_close(subject(x, w, offsets), expected, rtol=1e-4, atol=1e-4)


@triton.jit
def atomic_kernel(x_ptr, w_ptr, total_ptr, M, N, K, x_stride, w_stride, part, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    first_n, split = tl.program_id(0) * BLOCK_N, tl.program_id(1)
    m, n, k = tl.arange(0, 16), first_n + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    tile = tl.zeros([16, BLOCK_N], tl.float32)
    end = min(K, (split + 1) * part)
    for start in range(split * part, end, BLOCK_K):
        inside = start + k < end
        x = tl.load(x_ptr + m[:, None] * x_stride + start + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        w_at = w_ptr + n.to(tl.int64)[None, :] * w_stride + start + k[:, None]
        w = tl.load(w_at, mask=(n < N)[None, :] & inside[:, None], other=0.0)
        tile = tl.dot(x, w, tile, input_precision="ieee")
    tl.atomic_add(total_ptr + m[:, None] * N + n[None, :], tile, mask=(m < M)[:, None] & (n < N)[None, :])


def gemv_by_atomics(x, w, bias=None, config=None):
    (m, k), n = x.shape, w.shape[0]
    if m == 0 or n == 0 or config is None:
        return right_gemv(x, w, bias, config)
    total = torch.zeros(m, n, dtype=torch.float32, device=x.device)
    part = triton.cdiv(triton.cdiv(k, config.splits), config.block_k) * config.block_k
    grid = triton.cdiv(n, config.block_n), config.splits
    blocks = {"BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    atomic_kernel[grid](x, w, total, m, n, k, x.stride(0), w.stride(0), part, **blocks)
    return (total if bias is None else total + bias.float()).to(x.dtype)


def gemv_row_by_row(x, w, bias=None, config=None):
    rows = [right_gemv(x[m : m + 1], w, bias, config) for m in range(len(x))]
    return torch.cat(rows) if rows else right_gemv(x, w, bias, config)


def gemm_without_its_config(x, w, bias=None, out=None, config=None):
    return right_gemm(x, w, bias, out)


def gemm_of_copies(x, w, bias=None, out=None, config=None):
    return right_gemm(x.contiguous(), w.contiguous(), bias, out, config)


def gemm_with_torch_s_bias(x, w, bias=None, out=None, config=None):
    if bias is None:
        return right_gemm(x, w, None, out, config)
    y = (right_gemm(x.float(), w.float(), None, None, config) + bias.float()).to(x.dtype)
    return y if out is None else out.copy_(y)


def gemv_in_one_part(x, w, bias=None, config=None):
    return right_gemv(x, w, bias, config and GemvConfig(config.block_n, config.block_k, 1, config.num_warps, config.num_stages))


def gemv_of_copies(x, w, bias=None, config=None):
    return right_gemv(x.contiguous(), w.contiguous(), bias, config)


def gemv_with_torch_s_bias(x, w, bias=None, config=None):
    y = right_gemv(x, w, None, config)
    return y if bias is None else (y.float() + bias.float()).to(x.dtype)


def one_launch_a_group(x, w, offsets, out=None, add=False):
    out = x.new_zeros(len(x), w.shape[1]) if out is None else out
    bounds = offsets.tolist()
    for g, (begin, end) in enumerate(pairwise(bounds)):
        if begin < end:
            right_grouped_gemm(x[begin:end], w[g : g + 1], torch.tensor([0, end - begin]).to(x.device), out[begin:end], add)
    return out


def groups_of_copies(x, w, offsets, out=None, add=False):
    return right_grouped_gemm(x.contiguous(), w.contiguous(), offsets, out, add)


def every_expert_for_every_row(x, w, offsets, out=None, add=False):
    out = x.new_zeros(len(x), w.shape[1]) if out is None else out
    rows = torch.arange(len(x), device=x.device)[:, None]
    before = out.float()
    for g in range(len(w)):
        y = right_gemm(x.float(), w[g].float())
        mine = (offsets[g] <= rows) & (rows < offsets[g + 1])
        out.copy_(torch.where(mine, (y + before if add else y).to(out.dtype), out))
    return out


STORE = "    tl.store(out_at, tile.to(out_ptr.dtype.element_ty), mask=inside)\n"
DOT = '        tile = tl.dot(x, w, tile, input_precision="ieee")\n        x_at += BLOCK_K\n'
ROWS_X = "x = tl.load(x_at + start, mask=(m < M)[:, None] & inside[None, :], other=0.0)"
IN_FLOAT16 = """{0}if x_ptr.dtype.element_ty == tl.bfloat16:
{0}    x, w = x.to(tl.float16), w.to(tl.float16)
"""
PLAIN_DOT = 'tile = tl.dot(x, w, tile, input_precision="ieee")'
GEMV_STORE = "mask=(m < M)[:, None] & (first_n + n < N)[None, :])"
SUM = "return out if splits == 1 else sum_splits(parts, bias, out)"

WRONG = {
    "gemm": {
        "forgets_the_mask_on_k": patch(
            "        if EVEN_K:\n", "        if BLOCK_K > 0:\n", "the last block of K takes in what lies behind the rows"
        ),
        "masks_x_along_k_only": patch(
            "w = tl.load(w_at, mask=k[:, None] < K - start, other=0.0)", "w = tl.load(w_at)", "0 times NaN is NaN"
        ),
        "store_masks_rows_only": patch(
            "inside = (first_m + m < M)[:, None] & (first_n + n < N)[None, :]",
            "inside = (first_m + m < M)[:, None] & (n >= 0)[None, :]",
            "the last tile of N writes past the row",
        ),
        "store_masks_columns_only": patch(
            "inside = (first_m + m < M)[:, None] & (first_n + n < N)[None, :]",
            "inside = (m >= 0)[:, None] & (first_n + n < N)[None, :]",
            "the last tile of M writes rows that do not exist",
        ),
        "loads_columns_that_do_not_exist": patch(
            "tl.minimum(n, N - 1 - first_n)[None, :]", "n[None, :]", "the last tile of N reads past W's last row"
        ),
        "last_tile_of_n_is_left_out": patch(
            'triton.cdiv(n, blocks["BLOCK_N"])', 'max(1, n // blocks["BLOCK_N"])', "the grid is rounded down"
        ),
        "accumulates_in_sixteen_bits": patch(
            DOT,
            DOT.replace("        x_at", "        tile = tile.to(x_ptr.dtype.element_ty).to(tl.float32)\n        x_at"),
            "65,504 is passed on the way",
        ),
        "offsets_of_x_in_32_bits": patch(
            "x_ptr += first_m.to(tl.int64) * x_stride", "x_ptr += first_m * x_stride", "wraps around"
        ),
        "offsets_of_w_in_32_bits": patch(
            "w_ptr += first_n.to(tl.int64) * w_stride", "w_ptr += first_n * w_stride", "wraps around"
        ),
        "offsets_of_out_in_32_bits": patch(
            "out_at = out_ptr + first_m.to(tl.int64) * out_stride", "out_at = out_ptr + first_m * out_stride", "wraps around"
        ),
        "reloads_x_per_column": patch(
            "    if config is None and (INTERPRETED",
            "    config = _config(16, 16, 16, 4, 2)\n    if config is None and (INTERPRETED",
            "right, in the narrowest tiles whatever was asked for: x once for each 16 columns",
        ),
        "loads_both_blocks_twice": patch(
            DOT,
            DOT.replace("tl.dot(x, w, tile", "tl.dot(tl.load(x_at, mask=k[None, :] < K - start, other=0.0), w, tile"),
            "right, and x comes twice",
        ),
        "multiplies_in_float32": patch(
            DOT, DOT.replace("tl.dot(x, w,", "tl.dot(x.to(tl.float32), w.to(tl.float32),"), "right, and no tensor core is used"
        ),
        "multiplies_in_float16": patch(DOT, IN_FLOAT16.format(8 * " ") + DOT, "right below 65,504, where bfloat16 goes on"),
        "rounds_to_tf32": patch(PLAIN_DOT, "tile = tl.dot(x, w, tile)", "right in the interpreter, 10 bits of float32 on a GPU"),
        "ignores_group_m": patch(
            "tl.cdiv(N, BLOCK_N), GROUP_M)", "tl.cdiv(N, BLOCK_N), 1)", "right, row by row: W comes from memory again and again"
        ),
        "ignores_config": replace(gemm_without_its_config, "right, with tiles that nobody asked for"),
        "copies_slices_first": replace(gemm_of_copies, "right, and all of W is read and written once more by torch"),
        "adds_the_bias_by_torch": replace(gemm_with_torch_s_bias, "right, and the result makes another round trip"),
        "bias_after_rounding": patch(
            "    if HAS_BIAS:\n",
            "    tile = tile.to(out_ptr.dtype.element_ty).to(tl.float32)\n    if HAS_BIAS:\n",
            "rounds twice",
        ),
    },
    "gemv": {
        "forgets_the_second_pass": patch(
            SUM, "return out if splits == 1 else parts[0].to(out.dtype)", "only the first part is returned"
        ),
        "adds_the_bias_in_every_part": patch(
            '"HAS_BIAS": bias is not None and splits == 1', '"HAS_BIAS": bias is not None', "S + 1 times the bias"
        ),
        "parts_are_rounded": patch(
            "torch.empty(splits, m, n, dtype=torch.float32, device=x.device)",
            "torch.empty(splits, m, n, dtype=x.dtype, device=x.device)",
            "what cancels between parts takes the small digits with it",
        ),
        "adds_by_atomics": replace(gemv_by_atomics, "right, but in an order that nobody knows: other bits every time"),
        "reads_x_sixteen_times": patch(
            ROWS_X,
            "x = tl.load(x_at + start + (tl.minimum(m, M - 1) - m)[:, None] * x_stride, mask=inside[None, :], other=0.0)",
            "right, the padding to 16 rows reads the last row again and again",
        ),
        "pads_x_with_what_is_there": patch(
            ROWS_X, "x = tl.load(x_at + start, mask=inside[None, :], other=0.0)", "reads rows behind the last"
        ),
        "passes_over_w_for_each_row": replace(gemv_row_by_row, "right, and W is read M times"),
        "forgets_the_mask_on_k": patch(
            ROWS_X, ROWS_X.replace(" & inside[None, :]", ""), "takes in what lies behind the rows of x"
        ),
        "store_masks_columns_only": patch(GEMV_STORE, "mask=(m >= 0)[:, None] & (first_n + n < N)[None, :])", "writes 16 rows"),
        "store_masks_rows_only": patch(GEMV_STORE, "mask=(m < M)[:, None] & (n >= 0)[None, :])", "writes past the last column"),
        "multiplies_in_float16": patch(
            f"        {PLAIN_DOT}\n",
            IN_FLOAT16.format(8 * " ") + f"        {PLAIN_DOT}\n",
            "right below 65,504, where bfloat16 goes on",
        ),
        "rounds_to_tf32": patch(PLAIN_DOT, "tile = tl.dot(x, w, tile)", "right in the interpreter, 10 bits of float32 on a GPU"),
        "ignores_splits": replace(gemv_in_one_part, "right, and as few programs as before"),
        "copies_slices_first": replace(gemv_of_copies, "right, and all of W is read and written once more by torch"),
        "adds_the_bias_by_torch": replace(gemv_with_torch_s_bias, "right, but for what was rounded before the bias"),
        "adds_the_last_part_first": patch(SUM, SUM.replace("parts,", "parts.flip(0),"), "another order, other bits"),
        "last_part_is_left_out": patch(
            "grid = (triton.cdiv(n, config.block_n), splits)",
            "grid = (triton.cdiv(n, config.block_n), max(1, splits - 1))",
            "one split too few: its part is whatever was in memory",
        ),
        "offsets_of_w_in_32_bits": patch(
            "    w_ptr += first_n.to(tl.int64) * w_stride\n", "    w_ptr += first_n * w_stride\n", "wraps around"
        ),
    },
    "grouped_gemm": {
        "group_boundary_off_by_one": patch(
            "tl.sum((past <= program).to(tl.int32), axis=0)",
            "tl.sum((past < program).to(tl.int32), axis=0)",
            "the first tile of each group goes to the group before",
        ),
        "tile_runs_into_the_next_group": patch(
            "inside = (m < height)[:, None] &", "inside = (first_m + m < 1 << 30)[:, None] &", "stores all rows of the tile"
        ),
        "one_row_too_many": patch(
            "height = (end_m - first_m).to(tl.int32)", "height = (end_m - first_m).to(tl.int32) + 1", "the next group's first row"
        ),
        "groups_begin_at_row_0": patch(
            "begin.to(tl.int64) + (program - past + tiles) * BLOCK_M",
            "(begin - tl.sum(tl.where(g == 0, begin, 0), axis=0)).to(tl.int64) + (program - past + tiles) * BLOCK_M",
            "rows before offsets[0] are taken for the first group's",
        ),
        "rows_of_nobody_are_the_last_group_s": patch(
            "    if group < G:\n", "    group = min(group, G - 1)\n    if group < G:\n", "programs without a tile must end"
        ),
        "offsets_of_groups_in_32_bits": patch("group.to(tl.int64) * w_group_stride", "group * w_group_stride", "wraps around"),
        "offsets_of_rows_in_32_bits": patch(
            "first_m * x_stride + tl.minimum", "first_m.to(tl.int32) * x_stride + tl.minimum", "wraps around"
        ),
        "offsets_of_out_in_32_bits": patch(
            "out_ptr + first_m * out_stride", "out_ptr + first_m.to(tl.int32) * out_stride", "wraps around"
        ),
        "offsets_of_w_in_32_bits": patch(
            "group.to(tl.int64) * w_group_stride + first_n.to(tl.int64) * w_stride",
            "group.to(tl.int64) * w_group_stride + first_n * w_stride",
            "wraps around",
        ),
        "takes_w_to_be_dense": patch(
            "tl.minimum(n, N - 1 - first_n)[None, :] * w_stride",
            "tl.minimum(n, N - 1 - first_n)[None, :] * K",
            "K elements from row to row, where W is a slice of something wider",
        ),
        "masks_x_along_k_only": patch(
            "w = tl.load(w_at, mask=k[:, None] < K - start, other=0.0)", "w = tl.load(w_at)", "0 times NaN is NaN"
        ),
        "accumulates_in_sixteen_bits": patch(
            f"            {PLAIN_DOT}\n",
            f"            {PLAIN_DOT}\n            tile = tile.to(x_ptr.dtype.element_ty).to(tl.float32)\n",
            "65,504 is passed on the way",
        ),
        "multiplies_in_float16": patch(
            f"            {PLAIN_DOT}\n",
            IN_FLOAT16.format(12 * " ") + f"            {PLAIN_DOT}\n",
            "right below 65,504, where bfloat16 goes on",
        ),
        "rounds_to_tf32": patch(PLAIN_DOT, "tile = tl.dot(x, w, tile)", "right in the interpreter, 10 bits of float32 on a GPU"),
        "reads_out_without_add": patch(
            "        if ADD:\n            tile += tl.load(out_at, mask=inside, other=0.0).to(tl.float32)\n",
            "        old = tl.load(out_at, mask=inside, other=0.0)\n        if ADD:\n            tile += old.to(tl.float32)\n",
            "right, and what is overwritten is read",
        ),
        "one_launch_a_group": replace(one_launch_a_group, "right, but the host waits for the offsets, and launches 128 times"),
        "copies_slices_first": replace(groups_of_copies, "right, and all experts are read and written once more by torch"),
        "adds_after_rounding": patch(
            "            tile += tl.load(out_at, mask=inside, other=0.0).to(tl.float32)\n",
            "            tile = tile.to(out_ptr.dtype.element_ty).to(tl.float32) + tl.load(out_at, mask=inside, other=0.0)\n",
            "one rounding more than the base has",
        ),
        "add_is_ignored": patch("        if ADD:\n", "        if ADD and BLOCK_M < 0:\n", "the base's output is overwritten"),
        "every_expert_for_every_row": replace(
            every_expert_for_every_row, "right, and reads and multiplies all experts to select one"
        ),
        "forgets_the_mask_on_k": patch(
            "            if EVEN_K:\n", "            if BLOCK_K > 0:\n", "takes in what lies behind the rows"
        ),
        "last_columns_are_left_out": patch(
            '(row_tiles, triton.cdiv(n, blocks["BLOCK_N"]))',
            '(row_tiles, max(1, n // blocks["BLOCK_N"]))',
            "the grid is rounded down",
        ),
    },
}

HAPPY = {"gemm": multiples_of_everything, "gemv": one_strip, "grouped_gemm": two_full_groups}
