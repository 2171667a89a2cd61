"""Mistakes planted in 5.6."""

from labs.kit.wrong import patch


def one_group(subject):
    """The test one would write first: one channel, one group, taken apart again."""
    import torch

    q = torch.arange(32, dtype=torch.uint8)[None] % 16
    packed = subject(q, torch.ones(1, 1), torch.zeros(1, 1)).packed
    assert torch.equal(torch.cat([packed & 15, packed >> 4], 1), q)


def one_group_a_row(subject):
    """The test one would write first: float32, round sizes, one group, scale 1, against torch."""
    import torch
    from minillm.kernels.int4_packing import pack_int4

    q = torch.randint(0, 8, (16, 64), dtype=torch.uint8)
    for rows in (1, 16):
        x, one = torch.randn(rows, 64), torch.ones(16, 1)
        torch.testing.assert_close(subject(x, pack_int4(q, one, 0 * one)), x @ q.float().T, atol=1e-3, rtol=1e-4)


PRODUCTS = "products = sixteenths(byte & 15) * x_low[None, :, :] + sixteenths(byte >> 4) * x_high[None, :, :]"
PLACE = "place = group[None, :] * N + n[:, None]\n"
ONE_ROW, TILE = PLACE + "        a = 16", PLACE + "        both"
MINIMUM = "b = tl.load(minimum_ptr + place, mask=both, other=0.0).to(tl.float32) - a\n"
LOW, HIGH = "low = (sixteenths(byte & 15) * a + b).to(x_low.dtype)\n", "high = (sixteenths(byte >> 4) * a + b).to(x_low.dtype)\n"
DOT_LOW = '        acc = tl.dot(low, tl.trans(x_low), acc, input_precision="ieee")\n'
DOT_HIGH = '        acc = tl.dot(high, tl.trans(x_high), acc, input_precision="ieee")\n'

WRONG = {
    "pack_int4": {
        "neighbours_share_a_byte": patch(
            "q.unflatten(1, (groups, 2, group_size // 2)).unbind(2)",
            "q.unflatten(1, (groups, group_size // 2, 2)).unbind(3)",
            "inputs 2j and 2j + 1, as most formats on disk have it",
        ),
        "halves_exchanged": patch("(low | high << 4)", "(high | low << 4)", "the first half sits in the high four bits"),
        "halves_of_the_row": patch(
            "q.unflatten(1, (groups, 2, group_size // 2)).unbind(2)",
            "q.unflatten(1, (1, 2, inputs // 2)).unbind(2)",
            "input j and j + K / 2: right for one group, and no byte stays within its group otherwise",
        ),
        "scale_is_a_view": patch(
            "scale.T.contiguous(), minimum.T.contiguous()",
            "scale.T, minimum.T",
            "transposed in name only: neighbours in memory are still groups",
        ),
        "packed_is_a_view": patch(
            "(low | high << 4).flatten(1).contiguous()",
            "(low | high << 4).flatten(1).T.contiguous().T",
            "neighbouring bytes of a channel are not neighbours in memory",
        ),
        "scale_as_it_came": patch("scale.T.contiguous()", "scale.contiguous()", "[N, K / G] instead of [K / G, N]"),
        "counts_from_eight": patch("(low | high << 4)", "(low ^ 8 | (high ^ 8) << 4)", "signed four bits, which others use"),
        "lets_16_pass": patch(
            "int(q.max()) < 16", "int(q.max()) <= 16", "an off-by-one: 16 becomes 0 and a neighbour's lowest bit"
        ),
        "any_group_goes": patch(
            "group_size in GROUP_SIZES,",
            "group_size > 0 or group_size in GROUP_SIZES,",
            "groups of 16 or 256, for which there is no kernel",
        ),
    },
    "w4a16": {
        "nibbles_exchanged_one_row": patch(
            PRODUCTS,
            PRODUCTS.replace("byte & 15", "BYTE").replace("byte >> 4", "byte & 15").replace("BYTE", "byte >> 4"),
            "high and low",
        ),
        "minimum_forgotten": patch(
            MINIMUM + "        if GROUPS", "b = -a\n        if GROUPS", "symmetric: right while minima are 0"
        ),
        "zero_point_with_the_wrong_sign": patch(
            MINIMUM + "        total +=",
            MINIMUM.replace("tl.load", "-tl.load") + "        total +=",
            "subtracts what is to be added",
        ),
        "scale_of_the_neighbour_group": patch(
            ONE_ROW,
            ONE_ROW.replace("group[None, :]", "tl.minimum(group + 1, groups - 1)[None, :]"),
            "the group's edge off by one: right for one group",
        ),
        "scale_in_the_other_layout": patch(
            TILE, "place = n[:, None] * groups + group[None, :]\n        both", "as if scale were [N, K / G]"
        ),
        "tile_not_rounded": patch(
            LOW + "        " + HIGH + DOT_LOW + DOT_HIGH,
            LOW.replace(".to(x_low.dtype)", "")
            + "        "
            + HIGH.replace(".to(x_low.dtype)", "")
            + DOT_LOW.replace("tl.trans(x_low)", "tl.trans(x_low.to(tl.float32))")
            + DOT_HIGH.replace("tl.trans(x_high)", "tl.trans(x_high.to(tl.float32))"),
            "float32 operands: slower by far, and other numbers than the docstring's",
        ),
        "scale_rounded_in_one_row": patch(
            "total += a * tl.sum(products, axis=2)",
            "total += a.to(x_ptr.dtype.element_ty).to(tl.float32) * tl.sum(products, axis=2)",
            "the scale in x's sixteen bits, whatever it came in",
        ),
        "sum_in_sixteen_bits": patch(
            DOT_HIGH, DOT_HIGH + "        acc = acc.to(x_low.dtype).to(tl.float32)\n", "rounds the running sum in every step"
        ),
        "high_four_bits_have_a_sign": patch(
            HIGH,
            "high = (((byte << 24 >> 28).to(tl.float32) / 16 + 1) * a + b).to(x_low.dtype)\n",
            "loads int8 and shifts: right for q below 8",
        ),
        "last_channels_not_masked": patch(
            "mask=both[:, :, None],\n", "mask=inside[None, :, None],\n", "the last program loads channels that are not there"
        ),
        "store_not_masked": patch(
            "tl.store(out_ptr + n, out.to(out_ptr.dtype.element_ty), mask=n < N)",
            "tl.store(out_ptr + n, out.to(out_ptr.dtype.element_ty))",
            "and stores them",
        ),
        "last_groups_left_out": patch(
            "last = groups * HALF  #",
            "last = groups * HALF // STEP * STEP  #",
            "a step of several groups: what is left over is lost",
        ),
        "bias_forgotten_in_one_row": patch("HAS_BIAS=has_bias, G", "HAS_BIAS=False, G", "only the tile adds it"),
        "expands_the_weight_first": patch(
            "    tile = w4a16_tile(rows, out_features, in_features, x.dtype)\n",
            "    from minillm.kernels.gemm import gemm\n\n    return gemm(x, dequantize_int4(weight).to(x.dtype), bias)\n"
            "    tile = w4a16_tile(rows, out_features, in_features, x.dtype)\n",
            "right values, and all the bytes that four bits were to save",
        ),
        "one_scale_a_weight": patch(
            ONE_ROW + " * tl.load(scale_ptr + place, mask=both, other=0.0).to(tl.float32)\n",
            ONE_ROW
            + " * tl.max(tl.load(scale_ptr + (place[:, :, None] + 0 * j[None, None, :]), mask=both[:, :, None], other=0.0), 2)"
            ".to(tl.float32)\n",
            "right values; loads as many bytes of scales as bf16 weights would have",
        ),
        "packed_twice": patch(
            "        byte = tl.load(packed_ptr + start, mask=inside_n, other=0).to(tl.int32)\n",
            "        byte = tl.load(packed_ptr + start, mask=inside_n, other=0).to(tl.int32) & 15\n"
            "        byte |= tl.load(packed_ptr + start, mask=inside_n, other=0).to(tl.int32) & 240\n",
            "a load for the low halves and one for the high: a cache would hide it",
        ),
        "x_twice_in_one_row": patch(
            ONE_ROW,
            "x_low = tl.load(x_low_ptr, mask=inside[:, None], other=0.0).to(tl.float32)\n"
            "        x_high = tl.load(x_low_ptr + HALF, mask=inside[:, None], other=0.0).to(tl.float32)\n        " + ONE_ROW,
            "loads x again for its sum",
        ),
        "x_twice_in_a_tile": patch(
            DOT_HIGH,
            "        x_high = tl.load(x_ptr + k + HALF, mask=inside_m, other=0.0)\n" + DOT_HIGH,
            "loads the high half's x again",
        ),
        "tf32": patch(
            DOT_LOW + DOT_HIGH,
            (DOT_LOW + DOT_HIGH).replace(', input_precision="ieee"', ""),
            "Triton's default: float32 loses 13 of its 24 bits on a card, and none in the interpreter",
        ),
        "bias_by_torch": patch(
            "HAS_BIAS=has_bias, G=group_size, BLOCK_N=GEMV_BLOCK_N, BLOCK_G=gemv_block_g(groups, group_size), num_warps=4,\n"
            "        )  # fmt: skip\n        return out\n",
            "HAS_BIAS=False, G=group_size, BLOCK_N=GEMV_BLOCK_N, BLOCK_G=gemv_block_g(groups, group_size), num_warps=4,\n"
            "        )  # fmt: skip\n        return out if bias is None else out + bias\n",
            "a launch more, and the product is rounded before the bias comes",
        ),
        "weight_rounded_twice": patch(
            LOW + "        " + HIGH,
            (LOW + "        " + HIGH).replace(" * a + b).to(x_low.dtype)", " * a).to(x_low.dtype) + b.to(x_low.dtype)"),
            "a product and a sum, both in 16 bits",
        ),
        "converts_integers": patch(
            "(bits << 19 | 0x3F800000).to(tl.float32, bitcast=True)",
            "bits.to(tl.float32) / 16 + 1",
            "right values, a conversion a weight",
        ),
    },
}

HAPPY = {"pack_int4": one_group, "w4a16": one_group_a_row}
