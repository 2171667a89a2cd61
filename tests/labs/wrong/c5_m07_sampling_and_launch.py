"""Mistakes planted in 5.7. Most of what the kernels do stands in minillm.kernels.sample_search: `planted` changes it there."""

import itertools
from pathlib import Path

from labs.kit.errors import LabError
from labs.kit.subject import run_source
from labs.kit.wrong import Mistake, patch, replace

SEARCH = "minillm.kernels.sample_search"
_numbers = itertools.count()


def planted(why, *changes):
    """The reference, with texts replaced in its module and in sample_search, which it imports; each must occur exactly once."""

    def load(exercise):
        import linecache
        from importlib import import_module

        module, attribute = exercise.reference.split(":")
        number, sources = next(_numbers), {}
        for name in (SEARCH, module):
            sources[name] = Path(import_module(name).__file__).read_text(encoding="utf-8")
        for old, new in changes:
            if sum(source.count(old) for source in sources.values()) != 1:
                raise LabError(f"{old!r} must occur once in {SEARCH} and {module} together")
            sources = {name: source.replace(old, new) for name, source in sources.items()}
        search = f"{SEARCH}_planted_{number}"
        sources[module] = sources[module].replace(f"from {SEARCH} import", f"from {search} import")
        made = None
        for name, source in ((search, sources[SEARCH]), (f"{module}_of_planted_{number}", sources[module])):
            filename = f"<{name}>"
            linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
            made = run_source(name, source, filename)
        return getattr(made, attribute)

    return Mistake(why, load)


def a_few_random_rows(subject):
    """The test one would write first: no ties, positive maxima, rows of a power of two."""
    import torch

    logits = torch.randn(3, 64)
    torch.testing.assert_close(subject(logits), logits.argmax(-1))


def one_draw_without_filters(subject):
    """The test one would write first: a row, a seed, no filters, against the same in torch."""
    import torch
    from minillm.kernels.sample import sample_torch

    logits, one = torch.randn(1, 64, generator=torch.Generator().manual_seed(1)), torch.ones(1)
    key = {"seed": torch.tensor([5]), "position": torch.tensor([3])}
    torch.testing.assert_close(subject(logits, one, **key), sample_torch(logits, one, **key))


def twice(logits):
    """Right tokens: the maximum first, its place in a second pass."""
    import torch
    from minillm.kernels.argmax import block_for, check_logits
    from minillm.kernels.runtime import tl, triton
    from minillm.kernels.sample_search import order

    @triton.jit
    def kernel(x_ptr, token_ptr, stride, length, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        best = tl.full([BLOCK], -(2**31), tl.int32)
        for start in range(0, length, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride + i, mask=i < length, other=-float("inf")).to(tl.float32)
            best = tl.maximum(best, order(x))
        top, first = tl.max(best, axis=0), length
        for start in range(0, length, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride + i, mask=i < length, other=-float("inf")).to(tl.float32)
            first = tl.minimum(first, tl.min(tl.where((order(x) == top) & (i < length), i, length), axis=0))
        tl.store(token_ptr + row, first.to(tl.int64))

    kernel.fn.__globals__.update(tl=tl, order=order)
    check_logits(logits)
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if len(tokens):
        kernel[(len(tokens),)](logits, tokens, logits.stride(0), logits.shape[1], BLOCK=block_for(logits.shape[1], logits.dtype))
    return tokens


def by_sorting(logits, temperature, seed, position, index=None, top_k=None, top_p=None, min_p=None):
    """Right tokens, of torch's sort."""
    from minillm.kernels.sample import sample_torch

    return sample_torch(logits, temperature, seed, position, index, top_k, top_p, min_p)


def float32_first(logits, temperature, seed, position, index=None, top_k=None, top_p=None, min_p=None):
    """Right tokens, of a copy of the logits."""
    from minillm.kernels.sample import sample

    return sample(logits.float() + 0, temperature, seed, position, index, top_k, top_p, min_p)


LOAD = """        key = order(tl.load(x_ptr + i, mask=i < length, other=-float("inf")).to(tl.float32))
        better = (key > best) & (i < length)
"""
ROW = "row = tl.program_id(0).to(tl.int64)"
FOUND = "    return top, tl.min(tl.where(best == top, place, length), axis=0)\n"
ENDS = "high = tl.where(enough, high, highest_below + 1)"
JUMPS = "        enough = reached >= wanted\n        low = tl.where(enough, lowest_above, low)\n        " + ENDS
NO_JUMPS = JUMPS.replace("lowest_above, low", "middle(low, high), low").replace("highest_below + 1", "middle(low, high)")
EDGE = "edge, last = nucleus_edge(x_ptr, length, peak, inverse, kth, min_p, top_p, BLOCK)"
INVERSE = "inverse = 1.0 / tl.minimum(tl.maximum(temperature, 1e-30), 1e30)"
LAST = "    last = first_passing(x_ptr, length, peak, inverse_temperature, kth, min_p, edge, length, needed - 0.5, BLOCK, True)\n"
TOTAL = "total += tl.sum(weights_at(x_ptr, i, length, peak, inverse, kth, min_p, edge, last), axis=0).to(tl.float64)"
MIN_P = "min_p = tl.minimum(tl.load(min_p_ptr + row), 1.0)"
KEYED = "uniform(tl.load(seed_ptr + row), tl.load(position_ptr + row), tl.load(index_ptr + row))"

WRONG = {
    "argmax": {
        "pads_with_zeros": planted(
            "other=0 is larger than a row of negative logits",
            (LOAD, LOAD.replace('-float("inf")', "0.0").replace(" & (i < length)", "")),
        ),
        "takes_the_last_of_equals": planted("an equal logit replaces the best", ("(key > best) & (i", "(key >= best) & (i")),
        "takes_the_first_lane": planted(
            "of equal lanes the lowest lane wins, not the lowest index",
            (FOUND, "    return top, tl.sum(tl.where(tl.arange(0, BLOCK) == tl.argmax(best, axis=0), place, 0), axis=0)\n"),
        ),
        "forgets_the_block": planted(
            "gives the lane",
            ("        place = tl.where(better, i, place)\n", "        place = tl.where(better, i - start, place)\n"),
        ),
        "loses_to_nan": planted("NaN is not on top", ("    return tl.where(x != x, 0x7FFFFFFF, key)\n", "    return key\n")),
        "two_zeros": planted(
            "−0 is below 0", ("tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)", "x.to(tl.int32, bitcast=True)")
        ),
        "loads_without_a_mask": planted(
            "reads the next row, or what lies behind the last",
            (LOAD, LOAD.replace("mask=i < length, other=", "mask=i < length + BLOCK, other=")),
        ),
        "row_in_32_bits": patch(ROW, "row = tl.program_id(0)", "row · stride passes 2**31"),
        "reads_twice": replace(twice, "finds the maximum, then looks for it: right tokens, twice the bytes"),
        "argmax_of_torch": replace(lambda logits: logits.argmax(-1), "no kernel at all"),
    },
    "sample": {
        "one_seed_for_all_rows": patch(
            "tl.load(seed_ptr + row)", "tl.load(seed_ptr)", "the row is missing from the seed's address"
        ),
        "place_in_the_batch_in_the_key": patch(
            "tl.load(index_ptr + row))", "tl.load(index_ptr + row) + row)", "another batch, another token"
        ),
        "half_a_seed": patch(
            KEYED, KEYED.replace("tl.load(seed_ptr + row)", "tl.load(seed_ptr + row).to(tl.uint32)"), "32 bits of 64"
        ),
        "nucleus_without_the_border_token": planted(
            "what crosses top_p is left out", (EDGE, EDGE.replace("edge, last", "edge, _") + "\n        last = -1 + 0 * length")
        ),
        "all_that_tie_at_the_edge": planted("keeps every weight equal to the edge", (LAST, "    last = length + 0 * length\n")),
        "stops_one_short": planted(
            "stops a few units in the last place early: the edge is no weight that occurs, and all that tie are in",
            (
                "    while low + 1 < high:\n        reached, lowest_above",
                "    while low + 4096 < high:\n        reached, lowest_above",
            ),
            (JUMPS, NO_JUMPS),
        ),
        "bisects_every_bit": planted("right tokens, one pass for each bit", (JUMPS, NO_JUMPS)),
        "top_p_before_top_k": planted(
            "a share of the whole vocabulary's mass",
            (
                EDGE,
                "all_of_them = MINUS_INF + 0 * top\n        "
                + EDGE.replace("kth, min_p, top_p", "all_of_them, 0.0 * peak, top_p"),
            ),
        ),
        "temperature_twice": patch(
            INVERSE, INVERSE + "\n    inverse = inverse * inverse", "divides the logits, then the weights"
        ),
        "no_min_p": patch(MIN_P, MIN_P + " * 0.0", "forgotten"),
        "0_where_there_is_no_distribution": patch(
            "    temperature = tl.load(temperature_ptr + row)\n",
            "    temperature = tl.load(temperature_ptr + row)\n    token = 0 * token\n",
            "greedy rows, NaN and inf get token 0",
        ),
        "sums_in_float32": planted(
            "a running float32 sum of a vocabulary loses what is small",
            ("before = tl.cast(0.0, tl.float64)", "before = tl.cast(0.0, tl.float32)"),
            ("block_sum = tl.sum(value, axis=0).to(tl.float64)", "block_sum = tl.sum(value, axis=0)"),
            ("    total = tl.cast(0.0, tl.float64)\n", "    total = tl.cast(0.0, tl.float32)\n"),
            (TOTAL, TOTAL.replace(".to(tl.float64)", "")),
            ("tl.cumsum(value.to(tl.float64), axis=0)", "tl.cumsum(value, axis=0)"),
        ),
        "looks_for_filters_that_are_off": planted(
            "right tokens, passes for a top_p that keeps all", ("    if top_p < 1:\n", "    if top_p <= 1:\n")
        ),
        "rows_side_by_side": patch(
            "logits_ptr += row * stride", "logits_ptr += row * length", "rows of a slice lie further apart"
        ),
        "searches_from_zero": planted(
            "right tokens, steps through weights that can have no edge among them",
            ("(0.99 * (mass - wanted) / length).to(tl.float32).to(tl.int32, bitcast=True)", "(0 * mass).to(tl.int32)"),
        ),
        "block_in_float32": planted(
            "the cumulative weights of the last block lose what is small beside the first",
            ("tl.cumsum(value.to(tl.float64), axis=0)", "tl.cumsum(value, axis=0).to(tl.float64)"),
        ),
        "draws_for_greedy_rows": patch(
            "    if (temperature > 0) & (top",
            "    if (temperature == 0) & (top > MINUS_INF) & (top < PLUS_INF):\n"
            "        k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)\n"
            "        token = draw(logits_ptr, length, top, temperature, k, 0.0 * temperature, top_p, 0.0 * top_p, BLOCK)\n"
            "    if (temperature > 0) & (top",
            "right tokens, and all the passes of a draw for a maximum that is known",
        ),
        "min_p_above_1": patch(MIN_P, "min_p = tl.load(min_p_ptr + row)", "no token is left: 0, whatever the logits"),
        "temperature_near_0": patch(INVERSE, "inverse = 1.0 / temperature", "1 / 1e-40 is inf in float32, and 0 · inf is NaN"),
        "row_in_32_bits": patch(ROW, "row = tl.program_id(0)", "row · stride passes 2**31"),
        "sorts": replace(by_sorting, "right tokens, by torch's sort"),
        "copies_first": replace(float32_first, "right tokens, from a float32 copy of the logits"),
    },
}

HAPPY = {"argmax": a_few_random_rows, "sample": one_draw_without_filters}
