"""The calculators behind `minillm plan`, against published logs, an executed layer, and the other calculators."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from shared import budget, hardware, models
from shared.caches import kv_bytes
from shared.layers import layers_of
from shared.memory_plan import (
    RUNTIME_BYTES,
    activation_bytes,
    adapter_bytes,
    max_concurrency,
    memory_budget,
    request_bytes,
    step_bytes,
)

LLAMA = models.load("llama-3.1-8b")
CARD = hardware.load("rtx-4090").memory_bytes
GIB = 2**30


def of_card(model, weights="bf16", card=CARD, tokens=2048, requests=256):
    linear = budget.linear_parameters(model)
    others = budget.num_parameters(model) - linear
    step = step_bytes(model, tokens, requests)
    bits = budget.WEIGHT_BITS[weights]
    return memory_budget(card, linear, others, weight_bits=bits, activation_bytes=step, runtime_bytes=RUNTIME_BYTES)


def test_llama_on_24_gb_lies_in_the_band_of_the_first_module():
    """39,000 to 51,000 tokens in bf16, about three times that in int4; 8 requests of 5,000 or one of 40,000."""
    bf16, int4 = of_card(LLAMA), of_card(LLAMA, "int4-g128")
    assert bf16.weights == budget.weight_bytes(LLAMA) and int4.weights == budget.weight_bytes(LLAMA, "int4-g128")
    assert int4.weights == pytest.approx(5.73e9, abs=5e6)
    tokens = [b.kv_cache / 131_072 for b in (bf16, int4)]
    assert 39_000 < tokens[0] < 51_000 and 2.5 < tokens[1] / tokens[0] < 3.2
    layers = layers_of(LLAMA)
    assert [max_concurrency(layers, bf16.kv_cache, n) for n in (5_000, 40_000, 131_072)] == [9, 1, 0]
    assert max_concurrency(layers, int4.kv_cache, 5_000) == 25


@pytest.mark.parametrize("weights", budget.WEIGHT_BITS)
@pytest.mark.parametrize("name", models.names())
def test_every_model_in_every_format(name, weights):
    model = models.load(name, allow_unverified=True)
    b = of_card(model, weights, card=hardware.load("mi355x").memory_bytes)
    assert b.weights == pytest.approx(budget.weight_bytes(model, weights))
    assert sum(b) == pytest.approx(288e9)
    assert 0 < b.activations < 3e9


@pytest.mark.parametrize("longest, step, peak, tokens", [(20_000, 20_000, 17.06, 31_232), (29_000, 29_000, 17.98, 23_648)])
def test_what_vllm_logged_on_an_rtx_3090(longest, step, peak, tokens):
    """vLLM issue 10517, comment of 2024-12-02: 20k starts, 29k refuses."""
    needed = step_bytes(LLAMA, step, 1)
    assert needed / GIB == pytest.approx(peak - 14.9888, rel=0.01)
    left = (0.90 * 23.58 - 14.9888 - 0.35) * GIB - needed
    assert left / 131_072 == pytest.approx(tokens, rel=0.005)
    assert (left / 131_072 >= longest) == (longest == 20_000)


def test_35k_starts_because_its_prompts_are_cut_into_chunks():
    left = (0.90 * 23.58 - 14.9888 - 0.35) * GIB - step_bytes(LLAMA, 512, 1)
    assert left / 131_072 == pytest.approx(47_700, rel=0.005)
    assert step_bytes(LLAMA, 512, 1) / GIB == pytest.approx(15.05 - 14.9888, abs=0.01)


def test_adapters():
    assert adapter_bytes(LLAMA, 16) == 83_886_080 == 640 * 131_072
    assert adapter_bytes(LLAMA, 64, 3) == 12 * adapter_bytes(LLAMA, 16)
    assert adapter_bytes(LLAMA, 16, 0) == 0
    for name in ("mixtral-8x7b", "deepseek-v3"):
        with pytest.raises(ValueError, match="experts or latents"):
            adapter_bytes(models.load(name), 16)
    with pytest.raises(ValueError, match="rank must be above zero"):
        adapter_bytes(LLAMA, 0)


def test_a_dense_models_step_is_the_exercises_formula():
    for name in ("smollm2-135m", "qwen3-0.6b", "llama-3.1-405b", "gemma-3-27b"):
        m = models.load(name)
        shape = {"hidden_size": m.hidden_size, "intermediate_size": m.intermediate_size, "vocab_size": m.vocab_size}
        shape |= {"num_heads": m.num_heads, "num_kv_heads": m.num_kv_heads, "head_dim": m.head_dim}
        for tokens, seqs, size in ((1, 1, 2), (256, 256, 2), (2048, 3, 4)):
            assert step_bytes(m, tokens, seqs, size) == activation_bytes(tokens, seqs, **shape, bytes_per_element=size)


def test_experts_and_latents_by_hand():
    mixtral, v3 = models.load("mixtral-8x7b"), models.load("deepseek-v3")
    assert step_bytes(mixtral, 4096, 1) == 4096 * 2 * (3 * 4096 + 2 * (3 * 14336 + 4096) + 8)
    attention = 128 * (192 + 192 + 256 + 128) + 1536 + 576  # queries, keys, keys and values before, output; latents
    experts = 8 * (3 * 2048 + 7168) + 256
    assert step_bytes(v3, 4096, 1) == 4096 * 2 * (3 * 7168 + max(attention, experts, 3 * 18432))


class Alive(TorchDispatchMode):
    """The most bytes of tensors alive at once, those in `known` left out."""

    def __init__(self, known):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in known}
        self.now = self.most = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        storage = out.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.now += storage.nbytes()
            weakref.finalize(storage, self.release, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return out

    def release(self, key, num_bytes):
        self.known.discard(key)
        self.now -= num_bytes


@torch.inference_mode()
@pytest.mark.parametrize("layers", [1, 5])
def test_an_executed_mlp_needs_what_is_computed_however_many_layers(layers):
    tokens, hidden, inner = 64, 16, 56
    x = torch.ones(tokens, hidden)
    gate_up, down = torch.ones(2 * inner, hidden), torch.ones(hidden, inner)
    with Alive([gate_up, down]) as alive:
        residual = x + 0
        for _ in range(layers):
            normed = residual * 0.5
            both = torch.nn.functional.linear(normed, gate_up)
            product = both[:, :inner] * both[:, inner:]
            output = torch.nn.functional.linear(product, down)
            residual.add_(output)
            del normed, both, product, output
    shape = {"hidden_size": hidden, "intermediate_size": inner, "num_heads": 1, "num_kv_heads": 1, "head_dim": 1, "vocab_size": 1}
    assert alive.most == activation_bytes(tokens, 1, **shape, bytes_per_element=4)


def test_request_bytes_are_whole_blocks_of_the_cache():
    for name in ("llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b"):
        layers = layers_of(models.load(name))
        assert request_bytes(layers, 5_000) == kv_bytes(layers, 5_008)
        assert request_bytes(layers, 5_000, block_size=1, bytes_per_element=1) == kv_bytes(layers, 5_000, 1)


def test_windows_cost_no_more_than_themselves_and_a_block():
    layers = layers_of(models.load("gemma-3-4b"))  # 5 layers keep everything, 29 keep 1,024 tokens
    per_layer = 2 * 4 * 256 * 2
    assert request_bytes(layers, 32_000) == (5 * 32_000 + 29 * 65 * 16) * per_layer
    assert request_bytes(layers, 1_000) == 34 * 63 * 16 * per_layer
