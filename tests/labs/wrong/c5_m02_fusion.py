"""Mistakes planted in 5.2."""

from labs.kit.wrong import patch


def one_power_of_two(subject):
    """The test one would write first: a few rows of 64 float32, new tensors."""
    import torch

    x, residual, weight = torch.randn(3, 64), torch.randn(3, 64), torch.randn(64)
    y, total = subject(x, residual, weight, 1e-5)
    torch.testing.assert_close(total, residual + x)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(residual + x, (64,), weight, 1e-5))


def one_row_after_another(subject):
    """The test one would write first: a few contiguous rows of 64 float32."""
    import torch

    x, weight = torch.randn(3, 64), torch.randn(64)
    torch.testing.assert_close(subject(x, weight, 1e-5), torch.nn.functional.rms_norm(x, (64,), weight, 1e-5))


def two_tensors(subject):
    """The test one would write first: gate and up, each contiguous."""
    import torch

    gate, up = torch.randn(3, 64), torch.randn(3, 64)
    torch.testing.assert_close(subject(gate, up), torch.nn.functional.silu(gate) * up)


def new_contiguous_tensors(subject):
    """The test one would write first: q and k contiguous, float32, results in new tensors."""
    import torch

    from minillm.model.ops import rope

    q, k, angle = torch.randn(3, 8, 32), torch.randn(3, 8, 32), torch.randn(3, 16)
    cos, sin = angle.cos(), angle.sin()
    for got, x in zip(subject(q, k, cos, sin), (q, k), strict=True):
        torch.testing.assert_close(got, rope(x, cos, sin))


STORE_NORM = "    tl.store(out_ptr + row * out_stride + column, _scaled(h, inverse_rms, weight, dtype), mask=inside)\n"
STORE_SUM = "        tl.store(sum_ptr + row * sum_stride + column, total, mask=inside)\n"
SEEN = "        h = total.to(tl.float32)  # the norm sees what the next layer will see: the rounded sum\n"
MEAN = "tl.rsqrt(tl.sum(h * h, axis=0) / length + eps)"
STORE_GATED = "    tl.store(out_ptr + row * out_stride + column, (silu * up).to(dtype), mask=inside)\n"
LOAD_UP = "    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)\n"
SILU = "silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)"
STORE_FIRST = "    tl.store(out_ptr, (first_cos - second_sin).to(dtype), mask=inside)\n"
PRODUCTS = "first_cos, second_sin = (first * cos).to(dtype).to(tl.float32), (second * sin).to(dtype).to(tl.float32)"

ROW_OF_X = "    x_ptr += outer * x_stride + inner * x_inner_stride\n    dtype"

WRONG = {
    "rms_norm": {
        "mean_over_the_block": patch(MEAN, "tl.rsqrt(tl.sum(h * h, axis=0) / BLOCK + eps)", "divides by the padded length"),
        "masks_the_load_only": patch(STORE_NORM, STORE_NORM.replace(", mask=inside", ""), "lanes past the end store their zeros"),
        "squares_in_sixteen_bits": patch(
            MEAN,
            "tl.rsqrt(tl.sum((h * h).to(dtype), axis=0).to(tl.float32) / length + eps)",
            "squares of float16 overflow at 256",
        ),
        "eps_outside_the_root": patch(MEAN, "1 / (tl.sqrt(tl.sum(h * h, axis=0) / length) + eps)", "sqrt(mean) + eps"),
        "rows_side_by_side": patch(
            ROW_OF_X, ROW_OF_X.replace("outer * x_stride + inner * x_inner_stride", "row * length"), "right where x is contiguous"
        ),
        "heads_side_by_side": patch(
            ROW_OF_X, ROW_OF_X.replace("x_inner_stride", "length"), "right where nothing lies between heads"
        ),
        "reads_its_row_again": patch(
            STORE_NORM,
            "    h = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)\n" + STORE_NORM,
            "right values, half as many bytes again: x is loaded once for its norm and once to be divided",
        ),
        "quotient_is_not_rounded": patch(
            "(h * inverse_rms).to(dtype).to(tl.float32) *",
            "(h * inverse_rms) *",
            "one rounding less than the model was trained with",
        ),
    },
    "add_rms_norm": {
        "mean_over_the_block": patch(MEAN, "tl.rsqrt(tl.sum(h * h, axis=0) / BLOCK + eps)", "divides by the padded length"),
        "masks_the_load_only": patch(STORE_NORM, STORE_NORM.replace(", mask=inside", ""), "lanes past the end store their zeros"),
        "sum_is_stored_unmasked": patch(STORE_SUM, STORE_SUM.replace(", mask=inside", ""), "the same, of the residual"),
        "squares_in_sixteen_bits": patch(
            MEAN,
            "tl.rsqrt(tl.sum((h * h).to(dtype), axis=0).to(tl.float32) / length + eps)",
            "squares of float16 overflow at 256",
        ),
        "eps_outside_the_root": patch(MEAN, "1 / (tl.sqrt(tl.sum(h * h, axis=0) / length) + eps)", "sqrt(mean) + eps"),
        "norm_of_the_unrounded_sum": patch(SEEN, "        h = residual + h\n", "normalises what no other layer will see"),
        "quotient_is_not_rounded": patch(
            "(h * inverse_rms).to(dtype).to(tl.float32) *",
            "(h * inverse_rms) *",
            "one rounding less than the model was trained with",
        ),
        "reads_the_sum_back": patch(
            SEEN,
            "        h = tl.load(sum_ptr + row * sum_stride + column, mask=inside, other=0.0).to(tl.float32)\n",
            "right values, a fifth more bytes: what was stored is loaded again for its norm",
        ),
        "hands_on_the_old_residual": patch(
            STORE_SUM, STORE_SUM.replace("total", "residual.to(dtype)"), "x never reaches the stream"
        ),
        "ignores_residual_out": patch(
            "residual_out = _new_like(residual=residual) if residual_out is None else residual_out",
            "residual_out = _new_like(residual=residual)",
            "the sum goes to a new tensor, whatever the caller gave",
        ),
    },
    "silu_mul": {
        "last_block_is_left_out": patch(
            "(rows, triton.cdiv(length, block))",
            "(rows, max(1, length // block))",
            "columns past the last full block stay garbage",
        ),
        "masks_the_load_only": patch(STORE_GATED, STORE_GATED.replace(", mask=inside", ""), "the last block stores past the row"),
        "one_stride_for_all": patch(
            "gate_ptr + row * gate_stride", "gate_ptr + row * out_stride", "halves of one tensor lie 2·I apart"
        ),
        "halves_exchanged": patch(
            "return fused[..., :half], fused[..., half:]", "return fused[..., half:], fused[..., :half]", "takes up for the gate"
        ),
        "exp_of_the_gate": patch(
            SILU, "silu = (gate * tl.exp(gate) / (1.0 + tl.exp(gate))).to(dtype).to(tl.float32)", "inf / inf for a gate above 88"
        ),
        "silu_is_not_rounded": patch(
            SILU, SILU.replace(".to(dtype).to(tl.float32)", ""), "one rounding less than two operations have"
        ),
        "stores_before_it_has_loaded": patch(
            LOAD_UP,
            "    tl.store(out_ptr + row * out_stride + column, gate.to(out_ptr.dtype.element_ty), mask=inside)\n" + LOAD_UP,
            "parks the gate in out, which may be up: right for three tensors, and a fourth pass over memory",
        ),
    },
    "rope": {
        "pads_with_the_neighbours": patch(
            "(head < num_heads)[:, None] & (lane < half)", "(head < num_heads)[:, None]", "half is 40, lanes 64"
        ),
        "turns_v_as_well": patch(
            "(group - q_groups) * BLOCK_HEADS + head, num_k_heads, cos",
            "(group - q_groups) * BLOCK_HEADS + head, num_q_heads, cos",
            "the mask of k's heads is q's: what lies behind k is turned with it",
        ),
        "reads_first_after_storing_it": patch(
            STORE_FIRST,
            STORE_FIRST
            + "    first_sin = (tl.load(x_ptr, mask=inside, other=0.0).to(tl.float32) * sin).to(dtype).to(tl.float32)\n",
            "in place, the second result is made from the first one",
        ),
        "products_are_not_rounded": patch(
            PRODUCTS, "first_cos, second_sin = first * cos, second * sin", "differs from torch in the last bit"
        ),
        "tokens_of_the_result": patch(
            "q_ptr + token * q_stride,", "q_ptr + token * q_out_stride,", "a slice's tokens lie further apart than the result's"
        ),
        "turns_the_other_way": patch("(first_cos - second_sin)", "(first_cos + second_sin)", "no rotation: lengths change"),
        "new_tensors_always": patch("(q, k) if inplace else (", "(", "inplace is not looked at"),
    },
}

HAPPY = {
    "rms_norm": one_row_after_another,
    "add_rms_norm": one_power_of_two,
    "silu_mul": two_tensors,
    "rope": new_contiguous_tensors,
}
