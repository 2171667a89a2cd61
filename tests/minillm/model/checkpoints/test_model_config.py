"""config.json -> ModelConfig: what is read, and what is refused rather than run wrongly."""

import pytest

from minillm.config import ModelConfig, RopeScaling
from minillm.errors import CheckpointError

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
QWEN = {"architectures": ["Qwen2ForCausalLM"]}
MISTRAL = {"architectures": ["MistralForCausalLM"]}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}},
    ],
)
def test_rope_in_every_spelling(raw_config, rope):
    del raw_config["rope_theta"]
    config = ModelConfig.from_hf(raw_config | rope)
    assert (config.rope_theta, config.rope_scaling) == (5e5, RopeScaling(**LLAMA3))


def test_rope_defaults(raw_config):
    del raw_config["rope_theta"]
    config = ModelConfig.from_hf(raw_config | {"rope_scaling": None})
    assert (config.rope_theta, config.rope_scaling) == (10000.0, None)


@pytest.mark.parametrize(
    ("change", "window"),
    [
        ({}, None),
        ({"sliding_window": 7}, None),  # transformers' Llama has no such field
        (MISTRAL | {"sliding_window": 7}, 7),
        (MISTRAL | {"sliding_window": None}, None),
        (MISTRAL, 4096),
        (QWEN | {"sliding_window": 7}, None),
        (QWEN | {"sliding_window": 7, "use_sliding_window": False}, None),
    ],
)
def test_sliding_window(raw_config, change, window):
    assert ModelConfig.from_hf(raw_config | change).sliding_window == window


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM.*not supported; minillm runs LlamaForCausalLM"),
        ({"architectures": None, "model_type": "bert"}, "'bert' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope scaling 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "config.json lacks 'factor'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"hidden_size": None}, "a value that cannot be used"),
        ({"num_attention_heads": 0}, "a value that cannot be used"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        (QWEN | {"use_sliding_window": True, "sliding_window": 7}, "a sliding window in some layers only"),
        (MISTRAL | {"layer_types": ["full_attention", "sliding_attention"]}, "a sliding window in some layers only"),
    ],
)
def test_refused(raw_config, change, message):
    with pytest.raises(CheckpointError, match=message):
        ModelConfig.from_hf(raw_config | change)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"])
def test_missing_key_is_named(raw_config, key):
    del raw_config[key]
    with pytest.raises(CheckpointError, match=f"config.json lacks '{key}'"):
        ModelConfig.from_hf(raw_config)


@pytest.mark.parametrize(
    ("change", "biases"),
    [
        ({}, (False, False, False)),
        ({"attention_bias": True, "mlp_bias": True}, (True, True, True)),
        (QWEN, (True, False, False)),
        ({"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, (True, True, False)),
        (MISTRAL | {"attention_bias": True, "mlp_bias": True}, (False, False, False)),
    ],
)
def test_biases(raw_config, change, biases):
    config = ModelConfig.from_hf(raw_config | change)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias) == biases


def test_head_dim_need_not_follow_from_hidden_size(raw_config):
    assert ModelConfig.from_hf(raw_config).head_dim == 16
    assert ModelConfig.from_hf(raw_config | {"head_dim": 32}).kv_elements_per_token == 2 * 2 * 2 * 32


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("value", ["2", 2.5, -1, True])
def test_a_size_that_is_no_size_is_refused(raw_config, key, value):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        ModelConfig.from_hf(raw_config | {key: value})
