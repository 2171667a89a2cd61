"""Mistakes planted in the map."""

from labs.kit.wrong import patch


def ridge_of_a_4090(subject):
    assert round(subject(165.2e12, 1.008e12)) == 164


def kv_of_an_8b(subject):
    assert subject(32, 8, 128) == 131_072


def budget_of_a_4090(subject):
    assert subject(21_303_402_496, 16_060_522_496, 131_072) == 40_000


def bill_of_the_bot(subject):
    prices = {"input_price": 0.55, "cached_price": 0.14, "output_price": 2.19}
    assert round(subject(1000, 3200, 3000, 300, **prices), 3) == 1.187


WRONG = {
    "ridge_point": {
        "upside_down": patch("return peak_flops / bandwidth", "return bandwidth / peak_flops", "byte/FLOP, not FLOP/byte"),
        "rounded": patch("return peak_flops / bandwidth", "return round(peak_flops / bandwidth)", "a whole number of FLOPs"),
        "sparse_peak": patch("return peak_flops / bandwidth", "return 2 * peak_flops / bandwidth", "the datasheet's larger one"),
        "two_flops_a_multiply": patch(
            "return peak_flops / bandwidth", "return peak_flops / 2 / bandwidth", "counts multiply-adds; a peak is in FLOPs"
        ),
        "bandwidth_in_gib": patch(
            "return peak_flops / bandwidth", "return peak_flops / (bandwidth / 1e9 * 2**30)", "takes GB/s for GiB/s, 7 % off"
        ),
        "divides_by_zero": patch(
            "    positive(peak_flops=peak_flops, bandwidth=bandwidth)\n    return peak_flops / bandwidth",
            "    return peak_flops / bandwidth",
            "nothing is checked: ZeroDivisionError for no bandwidth, a negative ridge for a negative peak",
        ),
    },
    "kv_bytes_per_token": {
        "keys_only": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return num_layers * num_kv_heads * head_dim * bytes_per_element",
            "the values are forgotten, or the 2 taken for bf16's two bytes",
        ),
        "always_two_bytes": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return 2 * num_layers * num_kv_heads * head_dim * 2",
            "an fp8 cache is counted as bf16",
        ),
        "whole_bytes_only": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return 2 * num_layers * num_kv_heads * head_dim * int(bytes_per_element)",
            "a 4-bit cache takes no memory at all",
        ),
        "whole_bytes_in_the_end": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return int(2 * num_layers * num_kv_heads * head_dim * bytes_per_element)",
            "a part of a byte is cut off",
        ),
        "whole_bytes_a_head": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return 2 * num_layers * num_kv_heads * int(head_dim * bytes_per_element)",
            "an odd head in 4 bit loses half a byte, for each layer and head",
        ),
        "only_the_product_checked": patch(
            "positive(num_layers=num_layers, num_kv_heads=num_kv_heads, head_dim=head_dim, bytes_per_element=bytes_per_element)",
            "positive(product=num_layers * num_kv_heads * head_dim * bytes_per_element)",
            "two negatives make a positive number of bytes",
        ),
        "two_for_every_size": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return bytes_per_element * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "key and value, and bytes of an element: both are 2 in bf16, and only there",
        ),
        "one_layer": patch(
            "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element",
            "return 2 * num_kv_heads * head_dim * bytes_per_element",
            "each layer has a cache of its own",
        ),
        "nothing_checked": patch(
            "    positive(num_layers=num_layers, num_kv_heads=num_kv_heads,",
            "    dict(num_layers=num_layers, num_kv_heads=num_kv_heads,",
            "a model without heads gets a cache of no bytes, and the division by it comes later",
        ),
    },
    "kv_token_budget": {
        "share_of_what_is_left": patch(
            "left = memory_bytes * gpu_memory_utilization - weight_bytes - overhead_bytes",
            "left = (memory_bytes - weight_bytes - overhead_bytes) * gpu_memory_utilization",
            "the share is taken of the free memory, not of the card",
        ),
        "overhead_inside_the_share": patch(
            "left = memory_bytes * gpu_memory_utilization - weight_bytes - overhead_bytes",
            "left = (memory_bytes - overhead_bytes) * gpu_memory_utilization - weight_bytes",
            "the overhead shrinks with the share",
        ),
        "overhead_forgotten": patch(" - weight_bytes - overhead_bytes", " - weight_bytes", "the engine itself needs no memory"),
        "share_forgotten": patch("memory_bytes * gpu_memory_utilization -", "memory_bytes -", "all of the card is the engine's"),
        "rounds_up": patch("math.floor(left / bytes_per_token)", "math.ceil(left / bytes_per_token)", "the last token is a part"),
        "rounds_to_nearest": patch("math.floor(left / bytes_per_token)", "round(left / bytes_per_token)", "half a token is none"),
        "negative_budget": patch(
            "max(0, math.floor(left / bytes_per_token))",
            "math.floor(left / bytes_per_token)",
            "a model that does not fit gets a negative cache",
        ),
        "whole_bytes_a_token": patch(
            "math.floor(left / bytes_per_token)", "math.floor(left / int(bytes_per_token))", "two bytes and a half become two"
        ),
        "any_model_gets_a_token": patch("max(0, math.floor(", "max(1, math.floor(", "no room is no room"),
        "not_whole": patch("max(0, math.floor(left / bytes_per_token))", "max(0, left / bytes_per_token)", "a part of a token"),
        "per_cent": patch(
            "if not 0 < gpu_memory_utilization <= 1:",
            "if not 0 < gpu_memory_utilization <= 100:",
            "92 is taken for a share and gives ninety-two cards",
        ),
    },
    "bot_cost": {
        "prefix_billed_twice": patch(
            "fresh = (input_tokens - cached_tokens) * input_price",
            "fresh = input_tokens * input_price",
            "cached tokens pay both prices",
        ),
        "whole_prompt_is_cached": patch("prefix_tokens * hit_rate, answer", "prompt_tokens * hit_rate, answer", "question too"),
        "prices_per_thousand": patch("PER = 1_000_000", "PER = 1_000", "a thousand times too dear"),
        "reasoning_is_free": patch("answer_tokens + reasoning_tokens, **prices", "answer_tokens, **prices", "unseen, yet billed"),
        "reasoning_is_input": patch(
            "    return num_requests * one",
            "    return num_requests * (one - reasoning_tokens * (output_price - input_price) / PER)",
            "thoughts are billed as prompt",
        ),
        "always_hits": patch("prefix_tokens * hit_rate, answer", "prefix_tokens, answer", "every request finds the prefix"),
        "misses_are_free": patch(
            "one = request_cost(prompt_tokens, prefix_tokens * hit_rate, answer",
            "one = request_cost(prompt_tokens - prefix_tokens * (1 - hit_rate), prefix_tokens * hit_rate, answer",
            "a prefix that was not found is not billed at all",
        ),
        "one_request": patch("return num_requests * one", "return one", "the bill of a single request"),
        "cents": patch("return num_requests * one", "return round(num_requests * one, 6)", "rounded, as if on an invoice"),
        "cached_must_be_cheaper": patch(
            "    prices = {",
            "    if cached_price > input_price:\n        raise ValueError('a cache is a discount')\n    prices = {",
            "a price list is refused because it is unusual",
        ),
        "hit_rate_in_per_cent": patch("if not 0 <= hit_rate <= 1:", "if not 0 <= hit_rate <= 100:", "56 is taken for a share"),
        "prefix_cut_to_fit": patch(
            "if prefix_tokens > prompt_tokens:\n        raise ValueError(",
            "prefix_tokens = min(prefix_tokens, prompt_tokens)\n    str(",
            "nonsense is mended in silence, and the bill looks plausible",
        ),
    },
}  # fmt: skip

HAPPY = {
    "ridge_point": ridge_of_a_4090,
    "kv_bytes_per_token": kv_of_an_8b,
    "kv_token_budget": budget_of_a_4090,
    "bot_cost": bill_of_the_bot,
}
