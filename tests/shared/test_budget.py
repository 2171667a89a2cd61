import pytest
import torch
import transformers

from minillm.config import ModelConfig
from minillm.kv.storage import kv_bytes as engine_kv_bytes
from minillm.model.checkpoints.dummy import SHAPES
from minillm.model.checkpoints.names import expected_tensors
from shared import budget, hardware, models
from shared.budget import kv_bytes_per_token, kv_token_budget, max_requests

LLAMA = models.load("llama-3.1-8b")


# Plain numbers: the exercises of the first module


def test_kv_bytes_per_token():
    assert kv_bytes_per_token(32, 8, 128) == 131_072  # Llama-3.1-8B: 128 KiB
    assert kv_bytes_per_token(30, 3, 64) == 23_040  # SmolLM2-135M
    assert kv_bytes_per_token(80, 8, 128, 2) == 327_680
    assert kv_bytes_per_token(80, 8, 128, 1) == 163_840
    assert kv_bytes_per_token(40, 40, 128, 2) == 819_200  # OPT-13B, the example of the PagedAttention paper
    assert kv_bytes_per_token(32, 8, 128, 0.5) == 32_768
    assert kv_bytes_per_token(3, 1, 5, 0.5625) == 16.875  # not rounded


@pytest.mark.parametrize("arguments", [(0, 8, 128), (32, 0, 128), (32, 8, -1), (32, 8, 128, 0), (-32, -8, 128)])
def test_kv_bytes_per_token_refuses_nonsense(arguments):
    with pytest.raises(ValueError, match="must be above zero"):
        kv_bytes_per_token(*arguments)


def test_kv_token_budget_of_llama_on_24_gb():
    card, weights = 24_564 * 2**20, 16.060522496e9

    def tokens(utilization, overhead):
        return kv_token_budget(card, weights, 131_072, overhead_bytes=overhead, gpu_memory_utilization=utilization)

    assert (tokens(0.90, 2e9), tokens(0.90, 1e9)) == pytest.approx((39_100, 46_700), abs=50)
    assert (tokens(0.92, 2e9), tokens(0.92, 1e9)) == pytest.approx((43_000, 50_600), abs=50)
    plain = [kv_token_budget(24e9, weights, 131_072, overhead_bytes=overhead) for overhead in (2e9, 1e9)]
    assert plain == pytest.approx([45_300, 52_900], abs=50)
    assert kv_token_budget(5.24288e9 + weights, weights, 131_072) == 40_000


def test_kv_token_budget_of_int4_weights_is_about_three_times_as_large():
    def tokens(weights):
        return kv_token_budget(24_564 * 2**20, weights, 131_072, overhead_bytes=1.5e9, gpu_memory_utilization=0.92)

    assert tokens(16.06e9) == pytest.approx(46_800, abs=50)
    assert tokens(budget.weight_bytes(LLAMA, "int4-g128")) == pytest.approx(125_600, abs=50)


def test_kv_token_budget_counts_whole_tokens_and_never_fewer_than_none():
    assert kv_token_budget(100, 50, 20) == 2
    assert kv_token_budget(100, 50, 50) == 1
    assert kv_token_budget(100, 50, 51) == 0
    assert kv_token_budget(100, 150, 10) == 0
    assert kv_token_budget(100, 50, 10, overhead_bytes=60) == 0
    assert isinstance(kv_token_budget(100.0, 50.0, 20.0), int)


@pytest.mark.parametrize(
    "arguments, options",
    [
        ((0, 1, 1), {}),
        ((1, 0, 1), {}),
        ((1, 1, 0), {}),
        ((1, 1, -1), {}),
        ((1, 1, 1), {"overhead_bytes": -1}),
        ((1, 1, 1), {"gpu_memory_utilization": 0}),
        ((1, 1, 1), {"gpu_memory_utilization": 92}),
    ],
)
def test_kv_token_budget_refuses_nonsense(arguments, options):
    with pytest.raises(ValueError, match=r"must be|must not be|a share above 0"):
        kv_token_budget(*arguments, **options)


def test_max_requests():
    assert max_requests(40_000, 5_000) == 7  # eight times 313 blocks would need 40,064 tokens
    assert max_requests(40_064, 5_000) == 8
    assert max_requests(40_000, 5_000, block_size=1) == 8
    assert max_requests(40_000, 40_000) == 1
    assert max_requests(0, 1) == 0
    for nonsense in ((-1, 1), (1, 0), (1, 1, 0)):
        with pytest.raises(ValueError):
            max_requests(*nonsense)


# Parameters, against what others count


@pytest.mark.parametrize("name", [name for name in models.names() if name in SHAPES])
def test_parameters_equal_the_tensors_of_our_own_engine(name):
    config = ModelConfig.from_hf(SHAPES[name])
    tensors = expected_tensors(config)
    model = models.load(name)
    assert budget.num_parameters(model) == sum(torch.Size(shape).numel() for shape in tensors.values())
    assert budget.kv_bytes(model, 1000) == engine_kv_bytes(config, 1000, torch.bfloat16)
    assert model.max_context == config.max_position_embeddings


def test_our_engine_knows_most_dense_shapes():
    assert len(set(models.names()) & set(SHAPES)) >= 10


def transformers_config(model):
    """The same shape, for another implementation to count."""
    shape = {
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size or 1,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "tie_word_embeddings": model.tied,
    }
    if moe := model.moe:
        shape |= {"num_experts_per_tok": moe.num_active, "num_local_experts": moe.num_experts}
    return shape


def built(kind, model, **more):
    """The model in transformers, without memory; DeepSeek's routing biases are buffers there."""
    config = getattr(transformers, f"{kind}Config")(**transformers_config(model) | more)
    with torch.device("meta"):
        module = getattr(transformers, f"{kind}ForCausalLM")(config)
    biases = [b for name, b in module.named_buffers() if name.endswith("e_score_correction_bias")]
    return sum(p.numel() for p in [*module.parameters(), *biases])


@pytest.mark.parametrize("name", ["gemma-3-1b", "gemma-3-27b"])
def test_parameters_of_gemma(name):
    model = models.load(name)
    config = transformers.Gemma3TextConfig(**transformers_config(model))
    with torch.device("meta"):
        module = transformers.Gemma3ForCausalLM(config)
    assert budget.num_parameters(model) == sum(p.numel() for p in module.parameters())


def test_parameters_of_mixtures():
    mixtral, qwen, oss = (models.load(name) for name in ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-120b"))
    sizes = {"intermediate_size": 14336}
    assert budget.num_parameters(mixtral) == built("Mixtral", mixtral, **sizes)
    sizes = {"num_experts": 128, "moe_intermediate_size": 768}
    assert budget.num_parameters(qwen) == built("Qwen3Moe", qwen, **sizes)
    assert budget.num_parameters(oss) == built("GptOss", oss, intermediate_size=2880)


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2"])
def test_parameters_of_latent_attention(name):
    model = models.load(name)
    mla, moe = model.mla, model.moe
    sizes = {
        "q_lora_rank": mla.q_lora_rank,
        "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "head_dim": mla.qk_rope_head_dim,
        "n_routed_experts": moe.num_experts,
        "n_shared_experts": moe.num_shared,
        "moe_intermediate_size": moe.expert_size,
        "first_k_dense_replace": moe.num_dense_layers,
    }
    assert budget.num_parameters(model) == built("DeepseekV3", model, **sizes)


PUBLISHED = {  # billions: total, active
    "mixtral-8x7b": (46.70, 12.88),
    "qwen3-30b-a3b": (30.53, 3.35),
    "qwen3-235b-a22b": (235.09, 22.19),
    "deepseek-v3": (671.03, 37.55),
    "kimi-k2": (1026.41, 32.86),
    "deepseek-v2": (235.74, 21.38),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_total_and_active_parameters(name):
    model = models.load(name, allow_unverified=True)
    found = budget.num_parameters(model) / 1e9, budget.active_parameters(model) / 1e9
    assert found == pytest.approx(PUBLISHED[name], abs=0.006)
    if model.published_params:
        assert budget.num_parameters(model) == pytest.approx(model.published_params, rel=0.002)


def test_active_parameters_of_gpt_oss_without_the_input_embedding():
    for name, active in (("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)):
        model = models.load(name)
        assert (budget.active_parameters(model) - budget.parameters(model)["embedding"]) / 1e9 == pytest.approx(active, abs=0.005)


def test_parameters_by_component():
    count = budget.parameters(LLAMA)
    assert sum(count.values()) == budget.num_parameters(LLAMA) == 8_030_261_248
    assert count["embedding"] == count["head"] == 525_336_576
    assert budget.linear_parameters(LLAMA) == 6_979_321_856
    assert budget.active_parameters(LLAMA) == budget.num_parameters(LLAMA)
    assert budget.parameters(models.load("smollm2-135m"))["head"] == 0  # tied


@pytest.mark.parametrize(
    "name, dtype, gigabytes",
    [
        ("llama-3.1-8b", "bf16", 16.061),
        ("llama-3.1-8b", "fp32", 32.121),
        ("llama-3.1-8b", "int4-g128", 5.73),  # as AWQ and GPTQ repositories ship it, not 4.0
        ("llama-2-7b", "int4-g128", 3.89),
        ("llama-3.1-70b", "int4-g128", 39.8),
        ("llama-3.1-70b", "bf16", 141.1),
        ("deepseek-v3", "fp8", 673),
    ],
)
def test_weight_bytes(name, dtype, gigabytes):
    assert budget.weight_bytes(models.load(name), dtype) / 1e9 == pytest.approx(gigabytes, rel=0.001)


def test_unknown_weight_format():
    with pytest.raises(ValueError, match="'int3'; choose one of fp32, bf16"):
        budget.weight_bytes(LLAMA, "int3")


def test_kv_bytes():
    assert budget.kv_bytes(models.load("llama-3.1-70b"), 200_000) == 65_536_000_000
    assert budget.kv_bytes(models.load("llama-3.1-70b"), 200_000, 0.5) == 16_384_000_000
    assert budget.kv_bytes(models.load("deepseek-v3"), 200_000) == pytest.approx(14.05e9, rel=1e-3)
    assert budget.next_token_kv_bytes(models.load("deepseek-v3")) == 70_272
    assert budget.next_token_kv_bytes(models.load("smollm2-1.7b")) == 196_608  # more than the 8B's
    assert budget.kv_bytes(LLAMA, 0) == 0


@pytest.mark.parametrize(
    "name, first, later",
    [("gemma-3-1b", 26_624, 4_096), ("gemma-3-27b", 507_904, 81_920), ("gpt-oss-20b", 49_152, 24_576)],
)
def test_kv_bytes_stop_growing_in_layers_with_a_window(name, first, later):
    model = models.load(name)
    window = model.sliding_window
    assert budget.next_token_kv_bytes(model) == budget.next_token_kv_bytes(model, window - 1) == first
    assert budget.next_token_kv_bytes(model, window) == budget.next_token_kv_bytes(model, 100_000) == later
    assert budget.kv_bytes(model, window + 10) == first * window + later * 10


def test_smollm2_cache_outweighs_the_weights_after_two_full_requests():
    model = models.load("smollm2-135m")
    weights = budget.weight_bytes(model)
    assert budget.kv_bytes(model, 11_676) < weights < budget.kv_bytes(model, 11_677)
    assert budget.kv_bytes(model, 8192) < weights < 2 * budget.kv_bytes(model, 8192)


def test_llama_does_not_fit_twice():
    """Table values and calculators together: 70B in 16 bit needs two H100s."""
    card = hardware.load("h100-sxm").memory_bytes
    weights = budget.weight_bytes(models.load("llama-3.1-70b"))
    assert kv_token_budget(card, weights, 327_680) == 0
    assert kv_token_budget(2 * card, weights, 327_680) > 0


def test_kv_bytes_refuses_nonsense():
    with pytest.raises(ValueError, match="num_tokens"):
        budget.kv_bytes(LLAMA, -1)
    with pytest.raises(ValueError, match="bytes_per_element"):
        budget.kv_bytes(LLAMA, 1, 0)
    with pytest.raises(ValueError, match=r"llama-3\.1-8b has no experts"):
        budget.expert_parameters(LLAMA)
