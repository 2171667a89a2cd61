"""Mistakes planted in 1.7."""

from labs.kit.wrong import patch


def the_8b_at_20k(subject):
    """The test one would write first: the docstring's example."""
    shape = {"hidden_size": 4096, "intermediate_size": 14336, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    assert subject(20_000, 1, **shape, vocab_size=128256) == 2_211_840_000


def the_8b_in_bf16(subject):
    """The test one would write first: weights of 16 GB, and what is left of a 24 GB card."""
    budget = subject(24e9, 6_979_321_856, 1_050_939_392, runtime_bytes=1e9)
    assert round(budget.weights / 1e9, 2) == 16.06 and round(budget.kv_cache / 1e9, 2) == 5.02


def nine_users(subject):
    """The test one would write first: the docstring's example."""
    from shared.layers import Heads

    assert subject([Heads(8, 128)] * 32, 6.41e9, 5_000) == 9


WRONG = {
    "activation_bytes": {
        "adds_the_moments": patch(
            "layer = num_tokens * max(widths) * bytes_per_element",
            "layer = num_tokens * sum(widths) * bytes_per_element",
            "attention and MLP are added up, though the one's memory is free again when the other runs",
        ),
        "logits_on_top": patch(
            "return max(layer, (num_tokens + num_seqs) * hidden_size * bytes_per_element + logits)",
            "return layer + (num_tokens + num_seqs) * hidden_size * bytes_per_element + logits",
            "the head's tensors are added to a layer's",
        ),
        "mlp_only": patch(
            "widths = (3 * hidden_size + 2 * q + 2 * kv, 3 * hidden_size + 3 * intermediate_size)",
            "widths = (3 * hidden_size + 3 * intermediate_size,)",
            "the MLP is usually the widest, and taken to be so always",
        ),
        "no_logits": patch(
            "return max(layer, (num_tokens + num_seqs) * hidden_size * bytes_per_element + logits)",
            "return layer",
            "the head is forgotten: wrong as soon as many requests decode",
        ),
        "logits_once": patch("(bytes_per_element + 4)", "bytes_per_element", "the float32 copy for the sampler is forgotten"),
        "logits_of_every_token": patch(
            "logits = num_seqs * vocab_size",
            "logits = num_tokens * vocab_size",
            "logits for all tokens instead of the last of each",
        ),
        "no_residual": patch(
            "3 * hidden_size + 3 * intermediate_size)", "2 * hidden_size + 3 * intermediate_size)", "the residual is not counted"
        ),
        "no_product": patch(
            "3 * hidden_size + 3 * intermediate_size)",
            "3 * hidden_size + 2 * intermediate_size)",
            "gate times up is thought to be written in place",
        ),
        "keys_for_every_head": patch(
            "q, kv = num_heads * head_dim, num_kv_heads * head_dim\n    widths",
            "q, kv = num_heads * head_dim, num_heads * head_dim\n    widths",
            "grouped-query attention is not looked at",
        ),
        "attention_output_forgotten": patch(
            "3 * hidden_size + 2 * q + 2 * kv,", "3 * hidden_size + q + 2 * kv,", "queries and output are as wide: one is missing"
        ),
        "queries_as_wide_as_the_model": patch(
            "q, kv = num_heads * head_dim, num_kv_heads * head_dim\n    widths",
            "q, kv = hidden_size, num_kv_heads * head_dim\n    widths",
            "heads times their size is taken to be the model's width",
        ),
        "final_states_forgotten": patch(
            "(num_tokens + num_seqs) * hidden_size * bytes_per_element + logits",
            "num_seqs * hidden_size * bytes_per_element + logits",
            "the hidden states of the tokens without logits are still there",
        ),
        "always_two_bytes": patch(
            "layer = num_tokens * max(widths) * bytes_per_element", "layer = num_tokens * max(widths) * 2", "float32 takes four"
        ),
        "logits_in_two_bytes_at_least": patch(
            "(bytes_per_element + 4)", "(max(2, bytes_per_element) + 4)", "8-bit logits are taken to have 16 bits"
        ),
        "a_byte_at_least": patch(
            "layer = num_tokens * max(widths) * bytes_per_element",
            "layer = num_tokens * max(widths) * max(1, bytes_per_element)",
            "half a byte an element is rounded up",
        ),
        "nonsense_accepted": patch(
            "    positive(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, vocab_size=vocab_size)\n",
            "",
            "a model of no heads gets a number",
        ),
    },
    "memory_budget": {
        "everything_in_four_bits": patch(
            "other_parameters * max(weight_bits, 16)",
            "other_parameters * weight_bits",
            "the 4 GB mistake: embedding and head are not quantized",
        ),
        "others_always_16": patch(
            "other_parameters * max(weight_bits, 16)", "other_parameters * 16", "wrong in float32, right everywhere else"
        ),
        "share_of_what_is_left": patch(
            "left = allowed - weights - adapter_bytes - activation_bytes - runtime_bytes",
            "left = (memory_bytes - weights - adapter_bytes - activation_bytes - runtime_bytes) * gpu_memory_utilization",
            "the share is taken of what the weights leave, as TensorRT-LLM's knob does; the sum no longer holds",
        ),
        "whole_bytes_of_cache": patch(
            "left = allowed - weights - adapter_bytes - activation_bytes - runtime_bytes",
            "left = int(allowed - weights - adapter_bytes - activation_bytes - runtime_bytes)",
            "rounded, though the caller divides it by a request's bytes and rounds then",
        ),
        "cut_off_at_zero": patch(
            "activation_bytes, runtime_bytes, left, memory_bytes - allowed)",
            "activation_bytes, runtime_bytes, max(0.0, left), memory_bytes - allowed)",
            "a budget that is short of memory looks merely full",
        ),
        "runtime_outside_the_share": patch(
            "left = allowed - weights - adapter_bytes - activation_bytes - runtime_bytes",
            "left = allowed - weights - adapter_bytes - activation_bytes",
            "what torch does not allocate is not counted",
        ),
        "adapters_are_free": patch(
            "left = allowed - weights - adapter_bytes - activation_bytes - runtime_bytes",
            "left = allowed - weights - activation_bytes - runtime_bytes",
            "adapters are named, and not subtracted",
        ),
        "bits_for_bytes": patch(
            "max(weight_bits, 16)) / 8", "max(weight_bits, 16)) // 8", "whole bytes: a fraction of a byte is cut off"
        ),
        "outside_is_what_is_free": patch(
            "left, memory_bytes - allowed)",
            "left, max(0.0, memory_bytes - allowed - max(0.0, -left)))",
            "overflow eats others' part",
        ),
        "share_of_more_than_all": patch(
            "    if not 0 < gpu_memory_utilization <= 1:\n        raise ValueError",
            "    if not 0 < gpu_memory_utilization:\n        raise ValueError",
            "a share given in percent, 92, becomes 92 cards",
        ),
        "share_in_whole_percent": patch(
            "    allowed = memory_bytes * gpu_memory_utilization",
            "    allowed = memory_bytes * round(gpu_memory_utilization, 2)",
            "a share of 0.875 becomes 0.88",
        ),
        "negative_bits": patch(
            "weight_bits=weight_bits)\n    not_negative(other",
            "weight_bits=abs(weight_bits))\n    not_negative(other",
            "only zero is refused: minus four bits make the cache larger than the card",
        ),
        "one_is_refused": patch(
            "if not 0 < gpu_memory_utilization <= 1:", "if not 0 < gpu_memory_utilization < 1:", "a share of 1 is allowed"
        ),
    },
    "max_concurrency": {
        "no_blocks": patch(
            "every = math.ceil(context / block_size)", "every = context / block_size", "tokens are counted singly, not in blocks"
        ),
        "blocks_rounded_down": patch(
            "every = math.ceil(context / block_size)", "every = context // block_size", "the last block is not counted"
        ),
        "one_block_too_many": patch(
            "every = math.ceil(context / block_size)",
            "every = context // block_size + 1",
            "wrong where blocks are filled exactly",
        ),
        "window_ignored": patch(
            "window = layer.window if isinstance(layer, Heads) else None",
            "window = None",
            "every layer is taken to keep everything: six times too much for Gemma",
        ),
        "window_in_aligned_blocks": patch(
            "math.ceil((window - 1) / block_size) + 1)",
            "math.ceil(window / block_size))",
            "a window is taken to begin where a block does",
        ),
        "window_a_block_too_many": patch(
            "math.ceil((window - 1) / block_size) + 1)",
            "math.ceil(window / block_size) + 1)",
            "safe, and wrong for most windows that end a token behind a border",
        ),
        "window_of_a_short_context": patch(
            "return every if window is None else min(every, ",
            "return every if window is None else max(0, ",
            "a request shorter than the window pays for all of it",
        ),
        "states_forgotten": patch(
            "taken = caches.state_bytes(layers, bytes_per_element)",
            "taken = 0 * caches.state_bytes(layers, bytes_per_element)",
            "linear attention is thought to keep nothing",
        ),
        "block_of_sixteen": patch(
            "_blocks(layer, context, block_size) * block_size *",
            "_blocks(layer, context, 16) * 16 *",
            "the default block size is the only one that works",
        ),
        "keys_only": patch(
            "caches.kv_elements(layer) * bytes_per_element",
            "caches.kv_elements(layer) / (2 if isinstance(layer, Heads) else 1) * bytes_per_element",
            "keys without values",
        ),
        "first_layer_stands_for_all": patch(
            "    for layer in layers:\n        if not isinstance(layer, State):",
            "    for layer in [layers[0]] * len(layers):\n        if not isinstance(layer, State):",
            "one layer's cost times their number: wrong for every hybrid",
        ),
        "rounds_to_the_nearest": patch(
            "math.floor(kv_cache_bytes / request_bytes(", "round(kv_cache_bytes / request_bytes(", "half a request is none"
        ),
        "negative_users": patch(
            "return max(0, math.floor(kv_cache_bytes",
            "return max(-10**9, math.floor(kv_cache_bytes",
            "a card that is short of memory has a negative number of users",
        ),
        "context_of_none": patch(
            "    positive(context=context, block_size=block_size)\n", "", "a context of 0 or -5 tokens gets a number"
        ),
    },
}

HAPPY = {"activation_bytes": the_8b_at_20k, "memory_budget": the_8b_in_bf16, "max_concurrency": nine_users}
