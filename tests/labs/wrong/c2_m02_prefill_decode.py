"""Mistakes planted in 2.2."""

from labs.kit.wrong import patch

LLAMA = {"num_layers": 32, "hidden_size": 4096, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
LLAMA |= {"intermediate_size": 14336, "vocab_size": 128256}


def one_decode(subject):
    """The test one would write first: a single decode step of an 8B, against the docstring's example."""
    assert subject([(1, 1000, 1)], **LLAMA) == (15_534_129_152, 15_140_528_128)


def four_exact_timings(subject):
    timings = [(1e9, 2e9, 0.2), (2e9, 1e9, 0.1), (16e9, 1e9, 0.2), (80e9, 2e9, 1.0)]
    assert all(abs(got / expected - 1) < 1e-9 for got, expected in zip(subject(timings), (80e9, 10e9), strict=True))


SEEN = "seen = sum(new * cached + new * (new + 1) // 2 for new, cached, _ in batch)"
KEPT = "kept = sum(new + cached for new, cached, _ in batch)"
FLOPS = "flops = 2 * rows * layers + 2 * logit_rows * head + 4 * seen * q * num_layers"
WEIGHTS = "weights = layers + (head if logit_rows else 0) + rows * hidden_size"
PROJECTIONS = "projections = hidden_size * (q + 2 * kv) + q * hidden_size"
RETURN = "return flops, weights * bytes_per_weight + kept * 2 * kv * num_layers * bytes_per_kv"
PEAK = "peak = _geometric_mean([f / s for f, _, s in ordered[border:]])"
BANDWIDTH = "bandwidth = _geometric_mean([b / s for _, b, s in ordered[:border]])"
ERROR = "error = sum(math.log(max(f / peak, b / bandwidth) / s) ** 2 for f, b, s in ordered)"
MEAN = "return math.exp(sum(map(math.log, values)) / len(values))"

WRONG = {
    "phase_cost": {
        "no_causal_mask": patch(SEEN, "seen = sum(new * (cached + new) for new, cached, _ in batch)", "all new tokens see all"),
        "does_not_see_itself": patch(
            SEEN, "seen = sum(new * cached + new * (new - 1) // 2 for new, cached, _ in batch)", "the token itself is left out"
        ),
        "one_long_sequence": patch(
            SEEN,
            "seen = rows * sum(c for _, c, _ in batch) + rows * (rows + 1) // 2",
            "sequences of a batch are taken for one, and see one another",
        ),
        "attention_of_kv_heads": patch(
            FLOPS, FLOPS.replace("* q *", "* kv *"), "every query head compares, not only the KV heads"
        ),
        "scores_only": patch(FLOPS, FLOPS.replace("4 * seen", "2 * seen"), "the weighted sum of values is forgotten"),
        "multiply_add_is_one": patch(
            FLOPS, "flops = rows * layers + logit_rows * head + 2 * seen * q * num_layers", "half of all FLOPs"
        ),
        "logits_of_every_token": patch(FLOPS, FLOPS.replace("logit_rows", "rows"), "the head runs over the whole prompt"),
        "head_once": patch(
            FLOPS, FLOPS.replace("2 * logit_rows * head", "2 * bool(logit_rows) * head"), "one row of logits a step"
        ),
        "recomputes_the_cached": patch(
            FLOPS, FLOPS.replace("2 * rows", "2 * kept"), "cached tokens go through the matrices again"
        ),
        "weights_for_each_sequence": patch(
            WEIGHTS, WEIGHTS.replace("layers +", "len(batch) * layers +"), "each request reads the model for itself"
        ),
        "head_always_read": patch(WEIGHTS, "weights = layers + head + rows * hidden_size", "read though nobody wants logits"),
        "embedding_table_read": patch(
            WEIGHTS, WEIGHTS.replace("rows * hidden_size", "head"), "the whole table instead of a row a token"
        ),
        "embedding_forgotten": patch(WEIGHTS, WEIGHTS.replace(" + rows * hidden_size", ""), "its rows are weights read too"),
        "embedding_row_once": patch(
            WEIGHTS, WEIGHTS.replace("rows * hidden_size", "hidden_size"), "one row, whatever the prompt"
        ),
        "two_matrices_in_the_mlp": patch(
            "3 * hidden_size * intermediate_size", "2 * hidden_size * intermediate_size", "the gate is forgotten"
        ),
        "square_projections": patch(
            PROJECTIONS, "projections = 2 * hidden_size * (hidden_size + kv)", "takes heads * head_dim for hidden_size"
        ),
        "no_grouped_queries": patch(PROJECTIONS, PROJECTIONS.replace("2 * kv", "2 * q"), "keys and values as wide as queries"),
        "reads_only_the_old": patch(
            KEPT, "kept = sum(cached for _, cached, _ in batch)", "new keys and values are never written"
        ),
        "keys_only": patch(RETURN, RETURN.replace("kept * 2 *", "kept *"), "the values' bytes are forgotten"),
        "cache_as_wide_as_weights": patch(RETURN, RETURN.replace("bytes_per_kv", "bytes_per_weight"), "one width for both"),
        "whole_bytes": patch(RETURN, RETURN.replace("weights *", "int(weights *").replace("_per_kv", "_per_kv)"), "rounds bytes"),
        "first_sequence_checked": patch("for new, cached, logits in batch:", "for new, cached, logits in batch[:1]:", "only one"),
        "more_logits_than_tokens": patch("if logits > new:", "if False:", "scores tokens that are not in the step"),
    },
    "fit_phase_cost": {
        "fastest_only": patch(MEAN, "return max(values)", "the fastest timing of each kind: right until one is lucky"),
        "arithmetic_mean": patch(MEAN, "return sum(values) / len(values)", "averages speeds"),
        "median": patch(MEAN, "return sorted(values)[len(values) // 2]", "throws timings away"),
        "half_and_half": patch(
            "for border in range(1, len(ordered)):",
            "for border in [max(1, len(ordered) // 2)][: len(ordered) - 1]:",
            "two timings each, whatever they are",
        ),
        "as_given": patch(
            "ordered = sorted(timings, key=lambda t: t[0] / t[1])", "ordered = list(timings)", "trusts the order of the timings"
        ),
        "sorted_by_time": patch("key=lambda t: t[0] / t[1]", "key=lambda t: t[2]", "long work is not the same as intense work"),
        "sorted_by_flops": patch("key=lambda t: t[0] / t[1]", "key=lambda t: t[0]", "much work is not the same as intense work"),
        "errors_in_seconds": patch(
            ERROR, "error = sum((max(f / peak, b / bandwidth) - s) ** 2 for f, b, s in ordered)", "only the longest timing counts"
        ),
        "errors_of_ratios": patch(
            ERROR, "error = sum((max(f / peak, b / bandwidth) / s - 1) ** 2 for f, b, s in ordered)", "too long weighs more"
        ),
        "errors_not_squared": patch(
            ERROR, ERROR.replace("math.log(", "abs(math.log(").replace(") ** 2", "))"), "absolute errors"
        ),
        "errors_cancel": patch(
            ERROR, "error = abs(sum(math.log(max(f / peak, b / bandwidth) / s) for f, b, s in ordered))", "a sum with signs"
        ),
        "worst_error_only": patch(
            ERROR, "error = max(abs(math.log(max(f / peak, b / bandwidth) / s)) for f, b, s in ordered)", "one timing decides"
        ),
        "each_side_by_itself": patch(
            ERROR,
            "error = sum(math.log((f / peak if i >= border else b / bandwidth) / s) ** 2 for i, (f, b, s) in enumerate(ordered))",
            "work above the border is never held against the bandwidth",
        ),
        "computing_then_moving": patch(
            ERROR, ERROR.replace("max(f / peak, b / bandwidth)", "(f / peak + b / bandwidth)"), "a sum"
        ),
        "sorts_the_callers_list": patch(
            "    ordered = sorted(timings, key=lambda t: t[0] / t[1])\n",
            "    ordered = timings = timings if isinstance(timings, list) else list(timings)\n"
            "    ordered.sort(key=lambda t: t[0] / t[1])\n",
            "the caller finds his timings in another order",
        ),
        "slower_is_min": patch(ERROR, ERROR.replace("max(", "min("), "the faster of the two"),
        "sides_exchanged": patch(PEAK, PEAK.replace("[border:]", "[:border]"), "the peak from work that waits for memory"),
        "all_give_bandwidth": patch(BANDWIDTH, BANDWIDTH.replace("[:border]", ""), "also from work that computes"),
        "ties_are_split": patch(
            "if math.isclose(f0 / b0, f1 / b1, rel_tol=1e-12):", "if f0 / b0 > f1 / b1:", "one kind of work on both sides"
        ),
        "guesses_from_one": patch(
            "    if best is None:\n        raise ValueError",
            "    if best is None and timings:\n        f, b, s = timings[0]\n        return f / s, b / s\n"
            "    if best is None:\n        raise ValueError",
            "two ceilings out of one kind of work",
        ),
        "nothing_is_checked": patch(
            "        positive(flops=flops, num_bytes=num_bytes, seconds=seconds)\n", "        pass\n", "zero or negative numbers"
        ),
    },
}

HAPPY = {"phase_cost": one_decode, "fit_phase_cost": four_exact_timings}
