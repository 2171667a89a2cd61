"""Mistakes planted in 5.5."""

import itertools
import linecache
from pathlib import Path

from labs.kit.errors import LabError
from labs.kit.subject import load_variant, run_source
from labs.kit.wrong import Mistake, patch, replace

_walks = itertools.count()


def in_the_walk(old, new, why):
    """A mistake in the loop over blocks, which paged_decode imports from paged_walk."""

    def load(exercise):
        from minillm.kernels import paged_walk

        source = Path(paged_walk.__file__).read_text(encoding="utf-8")
        if source.count(old) != 1:
            raise LabError(f"{old!r} occurs {source.count(old)} times in minillm.kernels.paged_walk, it must occur once")
        changed, name = source.replace(old, new), f"minillm.kernels.paged_walk_planted_{next(_walks)}"
        filename = f"<{name}>"
        linecache.cache[filename] = (len(changed), None, changed.splitlines(keepends=True), filename)
        run_source(name, changed, filename)
        imported = "from minillm.kernels.paged_walk import attend_blocks"
        return load_variant(exercise, imported, imported.replace("minillm.kernels.paged_walk", name))

    return Mistake(why, load)


def one_user_on_a_4090(subject):
    """The test one would write first: the case of the notebook."""
    assert subject(8, 32768, 128) == 32


def two_halves(subject):
    """The test one would write first: small scores, two pieces, both with keys."""
    import torch

    scores, v = torch.randn(2, 4, 20), torch.randn(2, 4, 20, 16)
    halves = [(s, x) for s, x in zip(scores.split(10, -1), v.split(10, -2), strict=True)]
    partial = torch.stack([(s.softmax(-1)[..., None] * x).sum(-2) for s, x in halves], -2)
    lse = torch.stack([s.logsumexp(-1) for s, _ in halves], -1)
    torch.testing.assert_close(subject(partial, lse), (scores.softmax(-1)[..., None] * v).sum(-2))


def one_full_sequence(subject):
    """The test one would write first: one head, one sequence that fills its blocks, one piece."""
    import torch

    k, v, q = torch.randn(4, 1, 16, 16), torch.randn(4, 1, 16, 16), torch.randn(1, 1, 16)
    order = torch.tensor([[2, 0, 3, 1]])
    got = subject(q, k, v, order, torch.tensor([64], dtype=torch.int32), 64, num_splits=1)
    keys, values = k[order[0], 0].transpose(1, 2).reshape(1, 64, 16), v[order[0], 0].reshape(1, 64, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1), keys, values)
    torch.testing.assert_close(got[0], expected[:, 0], atol=1e-5, rtol=1e-5)


def splits_of_a_program_for_each_multiprocessor(num_groups, context, sms):
    return max(1, min(sms // max(1, num_groups), context // 256, 128))


def splits_by_length_alone(num_groups, context, sms):
    return max(1, min(context // 1024, 128))


ENOUGH = "enough = 2 * sms // max(1, num_groups)"
PEAK = 'weights = tl.exp(lse - tl.where(peak == float("-inf"), 0.0, peak))'
THERE = "there = (weights > 0)[:, None] & (d[None, :] < HEAD_DIM)"
MERGED = "out = tl.sum(weights[:, None] * partial, 0) / tl.where(total == 0, 1.0, total)"
STORE_MERGED = "tl.store(at, out.to(out_ptr.dtype.element_ty), mask=d < HEAD_DIM)"
EMPTY = '            tl.store(lse_ptr, tl.full([BLOCK_M], float("-inf"), tl.float32), mask=row < GROUP)\n'
STORE_LSE = "        tl.store(lse_ptr, lse, mask=row < GROUP)\n"
RANGE = "    start, full_start, full_end, end = key_range(seq_len - 1, seq_len - 1, seq_len, True, WINDOW, BLOCK_N)\n"
SHARE = "tiles_each = tl.cdiv(tiles, num_pieces)"
SECOND = "acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision=PRECISION)"
HEAD = "head = kv_head * GROUP + row"
BLOCK_HERE = "block = tl.load(table_ptr + index, mask=in_use, other=0).to(tl.int64)"
BLOCK_ANYWHERE = "            block = tl.load(table_ptr + index).to(tl.int64)\n"


def one_program_for_each_query_head(
    q, k_cache, v_cache, block_tables, seq_lens, max_seq_len, *, scale=None, sliding_window=None, num_splits=None, out=None,
    tiles=None,
):  # fmt: skip
    """Right values: each query head alone, on keys and values that it shares with others."""
    import torch
    from minillm.kernels.paged_decode import paged_decode

    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    options = {"scale": scale, "sliding_window": sliding_window, "num_splits": num_splits, "tiles": tiles}
    group = q.shape[1] // k_cache.shape[1]
    for i in range(group):
        heads = slice(i, None, group)
        paged_decode(q[:, heads], k_cache, v_cache, block_tables, seq_lens, max_seq_len, out=out[:, heads], **options)
    return out


WRONG = {
    "choose_num_splits": {
        "rounds_up": patch(ENOUGH, "enough = -(-2 * sms // max(1, num_groups))", "a few programs over are a second round"),
        "one_program_a_multiprocessor": replace(splits_of_a_program_for_each_multiprocessor, "nobody computes while others wait"),
        "by_length_alone": replace(splits_by_length_alone, "32 on this card by luck: neither batch nor card matter"),
        "forgets_the_shortest": patch("min(enough, context // SHORTEST_SPLIT, MAX_SPLITS)", "min(enough, MAX_SPLITS)", "slivers"),
        "forgets_the_most": patch(
            "context // SHORTEST_SPLIT, MAX_SPLITS)", "context // SHORTEST_SPLIT)", "more than a merge takes"
        ),
        "none_for_a_short_one": patch("return max(1, min(", "return max(0, min(", "0 pieces of a short sequence: no attention"),
        "counts_sequences_only": patch(ENOUGH, "enough = 2 * sms // max(1, num_groups // 8)", "a program has one group of heads"),
    },
    "merge_splits": {
        "at_most_32_pieces": patch(
            "triton.next_power_of_2(head_dim), triton.next_power_of_2(pieces)",
            "triton.next_power_of_2(head_dim), 32",
            "as many as one user gets on a 4090",
        ),
        "weights_in_the_dtype_of_out": patch(
            MERGED, MERGED.replace("weights[:, None]", "weights.to(out_ptr.dtype.element_ty).to(tl.float32)[:, None]"), "rounded"
        ),
        "without_the_peak": patch(PEAK, "weights = tl.exp(lse)", "exp(1000) is inf"),
        "averages": patch(MERGED, "out = tl.sum(partial, 0) / num_pieces", "every piece counts the same, however little it saw"),
        "base_two": patch(PEAK, PEAK.replace("tl.exp(", "tl.exp2("), "lse is natural"),
        "empty_pieces_are_read": patch(
            THERE, "there = (piece < num_pieces)[:, None] & (d[None, :] < HEAD_DIM)", "0 · NaN is NaN where nobody has written"
        ),
        "all_empty_is_nan": patch(PEAK, "weights = tl.exp(lse - peak)", "−inf − (−inf)"),
        "zero_by_zero": patch(MERGED, "out = tl.sum(weights[:, None] * partial, 0) / total", "0 / 0 where all pieces are empty"),
        "weights_do_not_sum_to_one": patch(MERGED, "out = tl.sum(weights[:, None] * partial, 0)", "forgets the sum of weights"),
        "padding_is_a_piece": patch(
            'mask=piece < num_pieces, other=float("-inf"))', "mask=piece < num_pieces, other=0.0)", "lanes past the last weigh e⁰"
        ),
        "stores_the_padding": patch(STORE_MERGED, STORE_MERGED.replace(", mask=d < HEAD_DIM", ""), "D 24 in 32 lanes"),
        "heads_of_the_first_sequence": patch(
            "first = (sequence * num_heads + head) * num_pieces", "first = head * num_pieces", "every sequence gets the first's"
        ),
    },
    "paged_decode": {
        "first_piece_does_it_all": patch(SHARE, "tiles_each = tiles", "right values, and one multiprocessor at work as before"),
        "pieces_of_all_tokens": patch(
            SHARE, "tiles_each = tl.cdiv(tl.cdiv(seq_len, BLOCK_N), num_pieces)", "with a window, most pieces are empty"
        ),
        "starts_at_the_first_block": patch(
            RANGE, RANGE + "    if WINDOW > 0:\n        start = start * 0\n", "right values: a window, and all before it is read"
        ),
        "blocks_no_longer_than_a_tile": in_the_walk(
            "index = tokens // BLOCK_SIZE",
            "index = tile * (BLOCK_N // BLOCK_SIZE) + in_tile // BLOCK_SIZE",
            "right where a tile has whole blocks",
        ),
        "sixteen_rows": patch("BLOCK_M=tiles.BLOCK_M", "BLOCK_M=16", "a group may have more heads than that"),
        "values_with_the_strides_of_keys": patch(
            "*v_cache.stride(), block",
            "*k_cache.stride()[:2], *v_cache.stride()[2:], block",
            "right where they lie in the same way",
        ),
        "heads_of_keys_side_by_side": patch(
            "k_ptr + kv_head * stride_kh", "k_ptr + kv_head * HEAD_DIM * BLOCK_SIZE", "a block's heads may lie apart"
        ),
        "queries_side_by_side": patch("(head * stride_qh)", "(head * HEAD_DIM)", "q may be a slice of something wider"),
        "results_side_by_side": patch("(head * stride_oh)", "(head * HEAD_DIM)", "so may out"),
        "result_of_the_next_sequence": patch(
            "at = out_ptr + sequence * stride_ob + (head",
            "at = out_ptr + sequence * tl.num_programs(1) * GROUP * stride_oh + (head",
            "rows of out lie apart",
        ),
        "second_product_in_float32": in_the_walk(
            SECOND, SECOND.replace("weights.to(v.dtype), v,", "weights, v.to(tl.float32),"), "right values, and no tensor cores"
        ),
        "precision_left_out": in_the_walk(
            SECOND, SECOND.replace(", input_precision=PRECISION", ""), "float32 with 10 bits, which the interpreter does not do"
        ),
        "last_block_counts_whole": in_the_walk(
            "visible = tokens[None, :] <= positions[:, None]",
            "visible = (tokens[None, :] <= positions[:, None]) | in_use[None, :]",
            "slots past the end, in a block that is not full",
        ),
        "sees_one_token_less": in_the_walk(
            "tokens[None, :] <= positions", "tokens[None, :] < positions", "not the newest itself"
        ),
        "window_of_one_more": in_the_walk(
            "positions[:, None] - WINDOW)", "positions[:, None] - WINDOW - 1)", "W tokens and the newest"
        ),
        "block_times_stride_in_32_bits": in_the_walk(
            BLOCK_HERE, BLOCK_HERE.replace(".to(tl.int64)", ""), "wraps in a cache of more than 2³¹ numbers"
        ),
        "next_block": in_the_walk(
            BLOCK_HERE, BLOCK_HERE.replace("table_ptr + index", "table_ptr + (index + 1)"), "the table's entries count from 0"
        ),
        "follows_the_table_past_the_end": in_the_walk(
            BLOCK_HERE,
            BLOCK_HERE.replace(", mask=in_use, other=0", ""),
            "entries past the last block are nonsense, if only looked up: no harm, until the load follows them",
        ),
        "blocks_in_a_row": in_the_walk(BLOCK_ANYWHERE, "            block = index.to(tl.int64)\n", "no table for full tiles"),
        "table_for_each_element": in_the_walk(
            "        k_at = k_ptr + (block",
            "        block_of = tl.load(table_ptr + index[None, :] + d[:, None] * 0, mask=(index < tl.cdiv(seq_len, BLOCK_SIZE))"
            "[None, :] & (d[:, None] < HEAD_DIM), other=0)\n        block = tl.max(block_of, 0).to(tl.int64)\n"
            "        k_at = k_ptr + (block",
            "right values; the table is read once for each element of the tile",
        ),
        "masks_keys_by_token": in_the_walk(
            "k = tl.load(k_at, mask=in_use[None, :] & (d[:, None] < HEAD_DIM), other=0.0)",
            "k = tl.load(k_at, mask=(tokens < seq_len)[None, :] & (d[:, None] < HEAD_DIM), other=0.0)",
            "right values; loads fall apart into single numbers",
        ),
        "empty_piece_leaves_no_mark": patch(EMPTY, "", "its lse is whatever the memory held, and weighs"),
        "empty_piece_weighs_one": patch(EMPTY, EMPTY.replace('float("-inf")', "0.0"), "and its output was never written"),
        "all_pieces_weigh_the_same": patch(
            STORE_LSE, STORE_LSE.replace("lse_ptr, lse,", "lse_ptr, lse * 0.0,"), "a mean of pieces"
        ),
        "lse_in_base_two": patch(
            STORE_LSE, STORE_LSE.replace("lse_ptr, lse,", "lse_ptr, lse * 1.4426950408889634,"), "not natural"
        ),
        "heads_interleaved": patch(
            HEAD, "head = kv_head + row * tl.num_programs(1)", "head h on h % KV: right for one group, and for one key-value head"
        ),
        "reads_keys_for_each_query_head": replace(one_program_for_each_query_head, "right values, GROUP times the bytes"),
        "table_of_the_first_sequence": patch(
            "    table_ptr += sequence * stride_table\n", "", "everybody reads the first one's cache"
        ),
    },
}

HAPPY = {"choose_num_splits": one_user_on_a_4090, "merge_splits": two_halves, "paged_decode": one_full_sequence}
