"""Mistakes planted in 1.5."""

from labs.kit.wrong import patch, replace
from shared.roofline import attention_intensity


def a_vector(subject):
    """The test one would write first: a matrix times a vector does one FLOP a byte, near enough."""
    assert round(subject(2 * 4096**2, 2 * 4096**2)) == 1


def decode_on_a_4090(subject):
    """The test one would write first: at one FLOP a byte a 4090 reaches its bandwidth."""
    assert subject(1, 165.2e12, 1.008e12) == 1.008e12


def prefill_and_decode(subject):
    """The test one would write first: a vector waits for memory, a large matrix does not."""
    n = 4096
    assert subject(2 * n**2, 2 * n**2, 165.2e12, 1.008e12) == "memory"
    assert subject(2 * n**3, 6 * n**2, 165.2e12, 1.008e12) == "compute"


def one_user(subject):
    """The test one would write first: the 8B's four FLOPs a byte."""
    assert round(subject(1, 1000, num_heads=32, num_kv_heads=8)) == 4


def only_zero_refused(num_seqs, cached_tokens, *, num_heads, num_kv_heads, **options):
    if num_heads < 0 or num_kv_heads < 0:
        return num_heads / num_kv_heads
    return attention_intensity(num_seqs, cached_tokens, num_heads=num_heads, num_kv_heads=num_kv_heads, **options)


DIVIDE, ROOF = "return flops / num_bytes", "return min(peak_flops, intensity * bandwidth)"
BOUND = '"compute" if arithmetic_intensity(flops, num_bytes) >= ridge_point(peak_flops, bandwidth) else "memory"'
PAIRS = "pairs = num_seqs * (new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2)"
KEPT = "kept = num_seqs * (cached_tokens - shared_tokens + new_tokens) + shared_tokens"
QUERIES = " + num_seqs * new_tokens * 2 * num_heads * bytes_per_element"

WRONG = {
    "arithmetic_intensity": {
        "upside_down": patch(DIVIDE, "return num_bytes / flops", "bytes a FLOP; 1 for a vector either way"),
        "whole": patch(DIVIDE, "return flops // num_bytes", "a vector in bf16, just under one FLOP a byte, has none"),
        "rounded": patch(DIVIDE, "return round(flops / num_bytes)", "what is below half a FLOP a byte has none"),
        "bits": patch(DIVIDE, "return flops / (8 * num_bytes)", "a byte taken for a bit"),
        "multiply_adds": patch(DIVIDE, "return flops / 2 / num_bytes", "counts multiply-adds; a peak is in FLOPs"),
        "copies_are_refused": patch(
            "    not_negative(flops=flops)\n    positive(num_bytes=num_bytes)",
            "    positive(flops=flops, num_bytes=num_bytes)",
            "a copy has no FLOPs, and is work",
        ),
        "nothing_checked": patch(
            "    not_negative(flops=flops)\n    positive(num_bytes=num_bytes)\n",
            "",
            "a ZeroDivisionError, or a negative intensity",
        ),
    },
    "attainable": {
        "forgets_the_peak": patch(ROOF, "return intensity * bandwidth", "a line without a roof"),
        "forgets_the_intensity": patch(ROOF, "return min(peak_flops, bandwidth)", "bytes/s for FLOP/s; right at 1 FLOP/byte"),
        "the_higher": patch(ROOF, "return max(peak_flops, intensity * bandwidth)", "whichever is faster instead of slower"),
        "nothing_overlaps": patch(
            ROOF,
            "return 1 / (1 / peak_flops + 1 / (intensity * bandwidth))",
            "adds the times of computing and moving: half of the roof at the ridge",
        ),
        "bytes_over_intensity": patch(ROOF, "return min(peak_flops, bandwidth / intensity)", "divides where it should multiply"),
        "peak_from_the_start": patch(
            ROOF,
            "return peak_flops if intensity > 1 else bandwidth * intensity",
            "more FLOPs than bytes taken for bound by compute",
        ),
        "only_the_product_checked": patch(
            "positive(intensity=intensity, peak_flops=peak_flops, bandwidth=bandwidth)",
            "positive(reached=intensity * bandwidth)",
            "two negatives make a plausible speed, and a peak of zero is fine",
        ),
    },
    "bound_of": {
        "one_flop_a_byte": patch(BOUND, '"compute" if flops > num_bytes else "memory"', "the machine does not matter"),
        "exchanged": patch(
            BOUND,
            '"memory" if arithmetic_intensity(flops, num_bytes) >= ridge_point(peak_flops, bandwidth) else "compute"',
            "what is done quickly is named instead of what is waited for",
        ),
        "memory_at_the_ridge": patch(BOUND, BOUND.replace(">=", ">"), "both take equally long: compute, says the docstring"),
        "ridge_upside_down": patch(
            BOUND,
            '"compute" if arithmetic_intensity(flops, num_bytes) >= ridge_point(bandwidth, peak_flops) else "memory"',
            "compares FLOP/byte with byte/FLOP",
        ),
        "whole_flops_a_byte": patch(
            BOUND,
            BOUND.replace(" if ", " if round(").replace(" >= ", ") >= round(").replace(" else", ") else"),
            "rounds before it compares, and is wrong close to the ridge",
        ),
        "close_is_on_it": patch(
            BOUND,
            BOUND.replace(">= ridge", ">= 0.99999 * ridge"),
            "a tolerance, where one of two times is the longer",
        ),
        "nothing_checked": patch(
            BOUND,
            '"compute" if flops * bandwidth >= num_bytes * peak_flops else "memory"',
            "a chip without a peak gets an answer",
        ),
    },
    "attention_intensity": {
        "batching_lifts_it": patch(
            KEPT, "kept = cached_tokens + new_tokens", "a cache read once for all users, as weights are; right for one user"
        ),
        "every_head_has_keys": patch("kept * 2 * num_kv_heads", "kept * 2 * num_heads", "multi-head attention: no groups"),
        "keys_only": patch("kept * 2 * num_kv_heads", "kept * num_kv_heads", "the values are forgotten"),
        "scores_only": patch("4 * num_heads * pairs", "2 * num_heads * pairs", "the sum over the values is forgotten"),
        "no_mask": patch(PAIRS, "pairs = num_seqs * new_tokens * (cached_tokens + new_tokens)", "tokens see those after them"),
        "strictly_before": patch("(new_tokens + 1) / 2)", "(new_tokens - 1) / 2)", "a token does not see itself"),
        "new_ones_are_free": patch(
            KEPT, "kept = num_seqs * (cached_tokens - shared_tokens) + shared_tokens", "the new tokens' keys and values"
        ),
        "queries_are_free": patch(QUERIES, "", "queries and outputs are not moved: hardly matters in decode, halves a prompt"),
        "one_query_a_sequence": patch(QUERIES, QUERIES.replace(" new_tokens *", ""), "the queries of one token each"),
        "shared_read_by_each": patch(KEPT, "kept = num_seqs * (cached_tokens + new_tokens)", "a prefix kept once, read by each"),
        "shared_not_attended": patch(
            "(new_tokens * cached_tokens +",
            "(new_tokens * (cached_tokens - shared_tokens) +",
            "what is read once still belongs to every sequence's context",
        ),
        "shared_not_read": patch(KEPT, "kept = num_seqs * (cached_tokens - shared_tokens + new_tokens)", "once is not never"),
        "one_width": patch("num_kv_heads * bytes_per_kv", "num_kv_heads * bytes_per_element", "an fp8 cache counted in 16 bit"),
        "only_zero_refused": replace(only_zero_refused, "minus four heads get an intensity"),
        "groups_upside_down": patch(
            "if num_heads % num_kv_heads:", "if num_kv_heads % num_heads:", "accepts 4 heads of queries on 8 of keys"
        ),
        "more_shared_than_cached": patch(
            "    if shared_tokens > cached_tokens:\n        raise ValueError(",
            "    shared_tokens = min(shared_tokens, cached_tokens)\n    str(",
            "nonsense is mended in silence",
        ),
    },
}

HAPPY = {
    "arithmetic_intensity": a_vector,
    "attainable": decode_on_a_4090,
    "bound_of": prefill_and_decode,
    "attention_intensity": one_user,
}
