from dataclasses import replace

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from shared import budget, hardware, models
from shared.hardware import Ceilings
from shared.operators import Operator, Step, attended, experts_read, operators, total
from shared.roofline import (
    arithmetic_intensity,
    attainable,
    attention_intensity,
    bound_of,
    decode_ceiling,
    decode_seconds,
    prefill_seconds,
    ridge_point,
    total_seconds,
)

LLAMA = models.load("llama-3.1-8b")
RTX_4090 = hardware.load("rtx-4090").ceilings("bf16")


def by_name(model, step):
    return {o.name: o for o in operators(model, step)}


def linear_flops(model, step):
    return sum(o.flops for o in operators(model, step) if o.name != "attention")


# Plain numbers


def test_ridge_point_of_the_4090():
    assert ridge_point(165.2e12, 1008e9) == pytest.approx(163.9, abs=0.05)
    assert ridge_point(330.3e12, 1008e9) == pytest.approx(327.7, abs=0.05)


@pytest.mark.parametrize("arguments", [(0, 1e12), (-1, 1e12), (1e12, 0), (1e12, -5), (float("nan"), 1)])
def test_ridge_point_refuses_nonsense(arguments):
    with pytest.raises(ValueError, match="must be above zero"):
        ridge_point(*arguments)


def test_attainable():
    assert attainable(1, 165.2e12, 1008e9) == 1008e9
    assert attainable(164, 165.2e12, 1008e9) == attainable(5000, 165.2e12, 1008e9) == 165.2e12
    with pytest.raises(ValueError, match="intensity"):
        attainable(0, 1, 1)


def test_bound_of():
    assert bound_of(2 * 4096**2, 2 * 4096**2, 165.2e12, 1008e9) == "memory"  # a matrix times a vector, in bf16
    n = 4096
    assert bound_of(2 * n**3, 3 * 2 * n**2, 165.2e12, 1008e9) == "compute"
    assert bound_of(10, 1, 10, 1) == "compute"
    assert bound_of(0, 1, 10, 1) == "memory"
    with pytest.raises(ValueError, match="num_bytes"):
        arithmetic_intensity(1, 0)


@pytest.mark.parametrize("name", ["smollm2-135m", "llama-3.1-8b", "qwen3-0.6b"])
@pytest.mark.parametrize("seqs, new, cached", [(1, 1, 0), (1, 1, 1000), (256, 1, 1000), (3, 5, 17), (1, 2048, 0), (2, 7, 0)])
def test_attention_intensity_is_what_the_operator_has(name, seqs, new, cached):
    model = models.load(name)
    heads = {"num_heads": model.num_heads, "num_kv_heads": model.num_kv_heads}
    for kv_bits, bits in ((16, 16), (8, 16), (32, 32)):
        operator = by_name(model, Step(seqs, new, cached, kv_bits=kv_bits, other_bits=bits))["attention"]
        sizes = {"bytes_per_kv": kv_bits / 8, "bytes_per_element": bits / 8}
        assert attention_intensity(seqs, cached, new_tokens=new, **heads, **sizes) == pytest.approx(operator.intensity, rel=1e-12)


def test_attention_intensity_grows_only_with_what_sequences_share():
    def of(seqs, shared):
        return attention_intensity(seqs, 4000, num_heads=32, num_kv_heads=8, shared_tokens=shared)

    assert of(1, 0) == of(1, 4000) == of(256, 0) == pytest.approx(4, abs=0.02)
    assert of(256, 4000) / of(256, 0) == pytest.approx(4001 / (1 + 4000 / 256), rel=0.25)
    assert of(64, 2000) < of(64, 3000) < of(64, 4000) < 64 * of(1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_seqs": 0},
        {"cached_tokens": -1},
        {"new_tokens": 0},
        {"shared_tokens": -1},
        {"shared_tokens": 11},
        {"num_heads": 0},
        {"num_kv_heads": 3},
        {"bytes_per_kv": 0},
        {"bytes_per_element": -2},
    ],
    ids=str,
)
def test_attention_intensity_refuses_nonsense(wrong):
    good = {"num_seqs": 2, "cached_tokens": 10, "num_heads": 4, "num_kv_heads": 2}
    assert attention_intensity(**good) > 0
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}|num_heads"):
        attention_intensity(**good | wrong)


# FLOPs, against what others count


def test_flops_of_a_ten_thousand_token_prompt():
    work = by_name(LLAMA, Step(1, 10_000, logit_tokens=10_000))
    assert total(list(work.values())).flops / 1e12 == pytest.approx(176, abs=0.5)  # 150 of linear layers, 26 of attention
    assert work["attention"].flops / 1e12 == pytest.approx(26, abs=0.3)


def test_linear_flops_are_two_a_parameter_and_token():
    for name in ("smollm2-135m", "llama-3.1-8b", "qwen3-0.6b", "gemma-3-27b"):
        model = models.load(name)
        matrices = budget.linear_parameters(model) + model.vocab_size * model.hidden_size
        assert linear_flops(model, Step(7, 1, cached_tokens=100)) == 2 * 7 * matrices


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "kimi-k2"])
def test_linear_flops_of_mixtures_are_two_an_active_parameter(name):
    model = models.load(name)
    count = budget.parameters(model)
    active = budget.active_parameters(model) - count["embedding"] - count["norms"]
    biases = model.num_moe_layers * model.moe.num_experts * model.moe.router_bias
    assert linear_flops(model, Step(3, 1)) == 2 * 3 * (active - biases)


def test_flops_equal_torchs_own_count():
    """transformers' Llama, counted by torch as it runs; it computes the whole square of attention, we the causal half."""
    model = replace(models.load("smollm2-135m"), num_layers=2, vocab_size=1000)
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    config = transformers.LlamaConfig(vocab_size=1000, num_hidden_layers=2, attn_implementation="eager", **shape)
    tokens = 64
    module = transformers.LlamaForCausalLM(config)
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(2, tokens, dtype=torch.long), use_cache=False)
    step = Step(2, tokens, logit_tokens=tokens)
    square = by_name(model, step)["attention"].flops * 2 * tokens / (tokens + 1)
    assert counter.get_total_flops() == linear_flops(model, step) + square


def test_attended_pairs_equal_a_counted_mask():
    for cached in (0, 1, 5, 20):
        for new in (1, 2, 7):
            for window in (None, 1, 4, 6, 100):
                queries = torch.arange(cached, cached + new)[:, None]
                keys = torch.arange(cached + new)
                mask = (keys <= queries) & (keys > queries - (window or 10**9))
                assert attended(Step(1, new, cached), window) == int(mask.sum()), (cached, new, window)


def test_experts_read_in_a_simulation():
    model = models.load("mixtral-8x7b")
    assert experts_read(model, 1) == pytest.approx(2)
    assert experts_read(model, 10_000) == pytest.approx(8)
    draws = torch.rand(20_000, 3, 8).topk(2).indices.flatten(1)  # 3 tokens, 2 of 8 experts each
    distinct = torch.nn.functional.one_hot(draws, 8).amax(1).sum(1).float().mean()
    assert experts_read(model, 3) == pytest.approx(distinct.item(), abs=0.03)
    with pytest.raises(ValueError, match="no experts"):
        experts_read(LLAMA, 1)


# Bytes


def test_bytes_of_decode_are_the_weights_and_the_cache():
    context = 4096
    work = total(operators(LLAMA, Step(1, 1, cached_tokens=context)))
    read = budget.weight_bytes(LLAMA) - 2 * budget.parameters(LLAMA)["embedding"]
    assert work.bytes == pytest.approx(read + budget.kv_bytes(LLAMA, context + 1), rel=1e-3)


@pytest.mark.parametrize("name", models.names())
def test_a_large_batch_reads_every_weight_once(name):
    """All experts, all layers: 16 more bits a weight are that many more bytes, whatever the model's kind."""
    model = models.load(name, allow_unverified=True)
    step = {"num_seqs": 5000, "new_tokens": 1}
    more = total(operators(model, Step(**step, weight_bits=32))).bytes - total(operators(model, Step(**step))).bytes
    biases = budget.linear_parameters(model) - more / 2
    assert 0 <= biases < 0.002 * budget.linear_parameters(model)


def test_cache_bytes_follow_its_precision_and_windows():
    def cache(model, context, bits):
        return by_name(model, Step(1, 1, context, kv_bits=bits))["attention"].bytes

    for name in ("llama-3.1-8b", "deepseek-v3"):
        model = models.load(name)
        assert cache(model, 999, 16) - cache(model, 999, 8) == budget.kv_bytes(model, 1000) / 2
    gemma = models.load("gemma-3-1b")
    assert cache(gemma, 9999, 16) - cache(gemma, 9999, 8) == budget.kv_bytes(gemma, 10_000) / 2


def test_batching_lifts_linear_layers_and_not_attention():
    for seqs in (1, 64, 256):
        work = by_name(LLAMA, Step(seqs, 1, cached_tokens=4096))
        assert work["attention"].intensity == pytest.approx(4, rel=0.01)  # heads / KV heads
        assert work["down_proj"].intensity == pytest.approx(seqs, rel=0.1)
    assert by_name(models.load("llama-3.1-70b"), Step(8, 1, 4096))["attention"].intensity == pytest.approx(8, rel=0.01)
    assert by_name(models.load("deepseek-v3"), Step(8, 1, 4096))["attention"].intensity > 200  # latents are shared by all heads


def test_mla_prefill_attends_over_heads_and_decode_over_latents():
    model = models.load("deepseek-v3")
    prefill = by_name(model, Step(1, 100))["attention"].flops
    assert prefill == 61 * 128 * 2 * (192 + 128) * 5050
    decode = by_name(model, Step(1, 1, 99))["attention"].flops
    assert decode == 61 * 128 * 2 * (576 + 512) * 100


# Seconds


def test_decode_ceilings_of_the_rule_of_thumb():
    weights = budget.weight_bytes(LLAMA)
    found = [decode_ceiling(weights, hardware.load(n).bandwidth) for n in ("rtx-4090", "a100-80-sxm", "h100-sxm", "m3-ultra")]
    assert found == pytest.approx([62.8, 127, 208.6, 51], abs=0.06)
    assert decode_ceiling(1e9, 1e12, kv_bytes=1e9) == 500


def test_decode_seconds_is_the_floor_of_what_a_step_reads():
    reads = budget.weight_bytes(LLAMA) - 2 * budget.parameters(LLAMA)["embedding"]
    assert decode_seconds(LLAMA, RTX_4090, 0) == pytest.approx(reads / 1008e9, rel=1e-3)
    assert decode_seconds(LLAMA, RTX_4090, 0, efficiency=0.5) == pytest.approx(2 * decode_seconds(LLAMA, RTX_4090, 0))
    with_cache = decode_seconds(LLAMA, RTX_4090, 32_000) - decode_seconds(LLAMA, RTX_4090, 0)
    assert with_cache == pytest.approx(32_000 * 131_072 / 1008e9, rel=1e-6)
    assert decode_seconds(LLAMA, RTX_4090, 0, weight_bits=4) < decode_seconds(LLAMA, RTX_4090, 0) / 2.5
    # sixteen sequences for hardly more than one: what batching is for
    assert decode_seconds(LLAMA, RTX_4090, 0, num_seqs=16) < 1.02 * decode_seconds(LLAMA, RTX_4090, 0)


def test_prefill_seconds():
    assert prefill_seconds(LLAMA, RTX_4090, 4096, efficiency=0.6) == pytest.approx(0.62, abs=0.01)
    h100 = hardware.load("h100-sxm").ceilings()
    assert prefill_seconds(models.load("llama-3.1-70b"), h100, 10_000) == pytest.approx(1.5, abs=0.06)
    whole = prefill_seconds(LLAMA, RTX_4090, 4096)
    halves = prefill_seconds(LLAMA, RTX_4090, 2048) + prefill_seconds(LLAMA, RTX_4090, 2048, cached=2048)
    assert whole == pytest.approx(halves, rel=0.01)  # chunks do the same work, and read the weights once more


def test_seconds_refuse_nonsense():
    work = [Operator("x", 1, 1)]
    for efficiency in (0, -1, 1.01, float("nan")):
        with pytest.raises(ValueError, match="efficiency"):
            total_seconds(work, Ceilings(1, 1), efficiency=efficiency)
    for step in ({"num_seqs": 0}, {"new_tokens": 0}, {"cached_tokens": -1}, {"weight_bits": 0}, {"logit_tokens": 5}):
        with pytest.raises(ValueError, match=next(iter(step))):
            Step(**{"num_seqs": 1, "new_tokens": 1} | step)
