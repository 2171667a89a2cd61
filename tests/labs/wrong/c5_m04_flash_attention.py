"""Mistakes planted in 5.4."""

from labs.kit.wrong import patch


def one_tile_of_each(subject):
    """The test one would write first: one square sequence that fits a tile, as many key-value heads as heads."""
    import torch

    q, k, v = (torch.randn(32, 2, 16) for _ in range(3))
    whole = torch.tensor([0, 32], dtype=torch.int32)
    got, _ = subject(q, k, v, whole, whole, 32)
    expected = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v)), is_causal=True)
    torch.testing.assert_close(got, expected.transpose(0, 1), atol=1e-5, rtol=1e-5)


WALK = "@triton.jit\ndef walk("
SHIFT = '    shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)\n'
TOTAL = "total * correction + tl.sum(weights, 1)"
UPDATE = f"""@triton.jit
def update(scores, scale_log2, peak, total):
    new_peak = tl.maximum(peak, tl.max(scores, 1) * scale_log2)
{SHIFT}    weights = tl.exp2(scores * scale_log2 - shift[:, None])
    correction = tl.exp2(peak - shift)
    return weights, correction, new_peak, {TOTAL}


"""
SEEN = "    seen = tl.where(total == 0, 1.0, total)\n"
LSE = '    return acc / seen[:, None], tl.where(total == 0, float("-inf"), (peak + tl.log2(seen)) * 0.6931471805599453)\n'
FINISH = f"@triton.jit\ndef finish(acc, peak, total):\n{SEEN}{LSE}\n\n"
DIAGONAL = "visible = visible & (keys[None, :] <= positions[:, None])"
RANGE = "    start, full_start, full_end, end = key_range(first, last, num_keys, CAUSAL, WINDOW, BLOCK_N)\n"
SCORES = "        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)\n"
SECOND = "acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)"
SCALE = "(scale or head_dim**-0.5) * LOG2_E,"
HEAD = "head = tl.program_id(1).to(tl.int64)"
K_BASE = "k_ptr += sequence * stride_kb + k_start * stride_kt + kv_head * stride_kh"
STORE = "tl.store(out_ptr + row[:, None] * stride_ot + d[None, :], out.to(out_ptr.dtype.element_ty), mask=there)"


def helper(own, old, new, why):
    """A patch of a function that the reference imports: its own definition of it, with the mistake."""
    assert own.count(old) == 1
    return patch(WALK, own.replace(old, new) + WALK, why)


WRONG = {
    "flash_attention_varlen": {
        "nan_where_nothing_is_seen": helper(UPDATE, SHIFT, "    shift = new_peak\n", "-inf - (-inf) in a row that sees no key"),
        "divides_by_an_empty_sum": helper(FINISH, SEEN, "    seen = total\n", "0 / 0 in a row that sees no key"),
        "sum_is_not_rescaled": helper(UPDATE, TOTAL, "total + tl.sum(weights, 1)", "the sum stays relative to an old maximum"),
        "output_is_not_rescaled": patch(
            SECOND, SECOND.replace("acc * correction[:, None]", "acc"), "the output stays relative to an old maximum"
        ),
        "scale_twice": patch(SCALE, "(scale or head_dim**-0.5) ** 2 * LOG2_E,", "q is scaled, and the scores again"),
        "scale_of_the_caller_is_ignored": patch(SCALE, "head_dim**-0.5 * LOG2_E,", "always D ** -0.5"),
        "skips_the_block_of_the_diagonal": patch(
            RANGE, RANGE + "    if CAUSAL:\n        end = full_end\n", "only tiles that every query of the program sees"
        ),
        "token_does_not_see_itself": patch(DIAGONAL, DIAGONAL.replace("<=", "<"), "the diagonal is masked, too"),
        "causal_aligned_at_the_start": patch(
            "first = first_row + num_keys - num_queries  #", "first = first_row  #", "right for as many keys as queries"
        ),
        "heads_dealt_out_in_turn": patch(
            "kv_head = head // GROUP", "kv_head = head % (tl.num_programs(1) // GROUP)", "h % KV; right for KV = 1 and KV = H"
        ),
        "padding_scores_zero": patch(
            "visible = keys[None, :] < num_keys", "visible = keys[None, :] >= 0", "rows past the last key count as scores of 0"
        ),
        "loads_the_neighbours_values": patch(
            "there = there & (keys[:, None] < num_keys)", "there = there & (keys[:, None] >= 0)", "and relies on weights of 0"
        ),
        "accumulates_in_sixteen_bits": patch(
            SECOND, f"{SECOND.replace('acc = ', 'acc = (')}).to(v.dtype).to(tl.float32)", "rounds the output after each tile"
        ),
        "lse_in_base_two": helper(
            FINISH.replace(" * 0.6931471805599453", ""),
            "(peak + tl.log2(seen))",
            "peak + tl.log2(seen)",
            "what the kernel keeps, unconverted",
        ),
        "window_of_one_more": patch(
            "keys[None, :] > positions[:, None] - WINDOW", "keys[None, :] >= positions[:, None] - WINDOW", "W keys before itself"
        ),
        "stores_past_the_end": patch(STORE, STORE.replace("mask=there", "mask=d[None, :] < HEAD_DIM"), "into the next sequence"),
        "computes_above_the_diagonal": patch(
            RANGE, RANGE + "    end = num_keys\n", "right values: tiles that nobody sees are loaded, and masked away"
        ),
        "loads_keys_for_two_passes": patch(
            SCORES,
            "        k += 0 * tl.load(k_ptr + in_tile[:, None] * stride_kt + d[None, :], mask=there, other=0.0)\n" + SCORES,
            "right values: once for the maximum, once for the sum",
        ),
        "starts_at_the_first_key": patch(
            RANGE,
            RANGE + "    if WINDOW > 0:\n        start = full_end * 0\n",
            "right values: a window, and all tiles before it are loaded",
        ),
        "values_with_the_strides_of_keys": patch(
            "*v.stride()[1:3]", "*k.stride()[1:3]", "right wherever keys and values lie in the same way"
        ),
        "heads_side_by_side": patch(
            K_BASE, K_BASE.replace("kv_head * stride_kh", "kv_head * HEAD_DIM"), "a head's keys need not follow the last one's"
        ),
        "heads_in_32_bits": patch(HEAD, HEAD.replace(".to(tl.int64)", ""), "wraps where heads lie outermost and far apart"),
        "the_callers_tiles_are_ignored": patch("tiles = tiles or flash_", "tiles = flash_", "always what the card is given"),
        "second_product_in_float32": patch(
            SECOND, SECOND.replace("weights.to(v.dtype), v,", "weights, v.to(tl.float32),"), "right values, and no tensor cores"
        ),
        "scores_in_sixteen_bits": patch(
            SCORES, SCORES.replace("PRECISION)", "PRECISION).to(k.dtype).to(tl.float32)"), "rounds the scores before exp"
        ),
        "precision_left_out": patch(
            SECOND, SECOND.replace(", input_precision=PRECISION", ""), "float32 with 10 bits, which the interpreter does not do"
        ),
    },
}

HAPPY = {"flash_attention_varlen": one_tile_of_each}
