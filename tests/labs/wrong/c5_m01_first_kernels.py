"""Mistakes planted in 5.1."""

from labs.kit.wrong import patch


def a_whole_block(subject):
    """The test one would write first: a length that fills its blocks."""
    import torch

    x, y = torch.randn(4096), torch.randn(4096)
    assert torch.equal(subject(x, y), x + y)


def a_few_rows(subject):
    """The test one would write first: rows of a power of two."""
    import torch

    x = torch.randn(4, 1024)
    torch.testing.assert_close(subject(x), torch.softmax(x, -1))


ROW = 'tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)'

WRONG = {
    "add": {
        "last_block_forgotten": patch("triton.cdiv(length, BLOCK)", "length // BLOCK", "the last program is not launched"),
        "mask_on_load_only": patch("element_ty), mask=inside)", "element_ty))", "lanes past the end write into the next tensor"),
        "mask_on_store_only": patch(
            "tl.load(y_ptr + index, mask=inside)", "tl.load(y_ptr + index)", "lanes past the end read the next tensor"
        ),
        "last_element_lost": patch("index < length", "index < length - 1", "an off-by-one in the mask"),
        "lanes_far_apart": patch(
            "tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "tl.program_id(0).to(tl.int64) + tl.arange(0, BLOCK) * tl.num_programs(0)",
            "each program takes every so-manieth element: right, and nothing is coalesced",
        ),
        "overwrites_x": patch("torch.empty_like(x) if out is None", "x if out is None", "without out the result lands in x"),
        "in_float16": patch(
            "(x + y).to(", "(x + y).to(tl.float16).to(", "the sum passes through float16, whatever the dtype"
        ),
    },
    "softmax": {
        "padding_is_zero": patch(ROW, ROW.replace('-float("inf")', "0.0"), "lanes past the end count as scores of 0"),
        "mask_on_load_only": patch(
            "tl.store(out_ptr + row * out_stride + column, y.to(out_ptr.dtype.element_ty), mask=inside)",
            "tl.store(out_ptr + row * out_stride + column, y.to(out_ptr.dtype.element_ty))",
            "lanes past the row's end write into the next row",
        ),
        "sum_in_the_rows_dtype": patch(
            "numerator / tl.sum(numerator, axis=0)",
            "numerator / tl.sum(numerator.to(x_ptr.dtype.element_ty), axis=0).to(tl.float32)",
            "exponentials are rounded before they are added",
        ),
        "no_maximum": patch("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)", "exp overflows for large scores"),
        "rows_lie_side_by_side": patch(
            ROW, ROW.replace("row * x_stride", "row * length"), "x is taken to be contiguous: the next row begins where one ends"
        ),
        "strides_confused": patch(
            "x_rows.stride(0), out_rows.stride(0)", "x_rows.stride(0), x_rows.stride(0)", "out is given x's row stride"
        ),
        "always_twice": patch(
            "softmax_kernel if block >= length else softmax_long_kernel",
            "softmax_long_kernel",
            "rows that would fit a program are read twice: right, with half as many bytes again",
        ),
        "loads_again": patch(
            "    y = numerator / tl.sum(numerator, axis=0)\n",
            "    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float(\"inf\")).to(tl.float32)\n"
            "    y = tl.exp(x - tl.max(x, axis=0)) / tl.sum(numerator, axis=0)\n",
            "the row is loaded again for the division, as in the formula",
        ),
        "no_rescaling": patch(
            "total = total * tl.exp(peak - origin) + tl.exp(x - origin)",
            "total = total + tl.exp(x - origin)",
            "the sum so far keeps the scale of an older, smaller maximum",
        ),
        "lanes_of_nothing": patch(
            "origin = tl.where(new_peak == -float(\"inf\"), 0.0, new_peak)",
            "origin = new_peak",
            "a lane that has seen nothing but -inf makes NaN of the row",
        ),
        "a_rows_rest_is_dropped": patch(
            "    for start in range(0, length, BLOCK):\n        inside",
            "    for start in range(0, length // BLOCK * BLOCK, BLOCK):\n        inside",
            "the last, partial block of a long row is never written",
        ),
        "four_warps": patch(
            "BLOCK=block, num_warps=num_warps", "BLOCK=block", "256 elements a thread with Triton's default of four: they spill"
        ),
        "new_tensor_with_xs_gaps": patch(
            "out_rows.stride(0), length", "length, length", "a given out is taken to be contiguous"
        ),
    },
}  # fmt: skip

HAPPY = {"add": a_whole_block, "softmax": a_few_rows}
