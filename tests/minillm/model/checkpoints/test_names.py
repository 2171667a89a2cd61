"""Expected names and shapes are those of transformers' own models."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from minillm.config import ModelConfig
from minillm.errors import CheckpointError
from minillm.model.checkpoints import check_names, expected_tensors

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS = [
    LlamaConfig(**SHAPE),
    LlamaConfig(**SHAPE, tie_word_embeddings=True),
    LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, head_dim=16),
    MistralConfig(**SHAPE),
    Qwen2Config(**SHAPE, tie_word_embeddings=True),
    Qwen3Config(**SHAPE, head_dim=16),
    Qwen3Config(**SHAPE, head_dim=16, attention_bias=True),
]


@pytest.mark.parametrize("hf", CONFIGS, ids=lambda c: c.model_type)
def test_names_and_shapes_are_transformers(hf):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf)
    theirs = {n: tuple(p.shape) for n, p in model.named_parameters()}  # tied ones are listed once
    raw = hf.to_dict() | {"architectures": [type(model).__name__]}
    assert expected_tensors(ModelConfig.from_hf(raw)) == theirs


def test_check_names_takes_what_is_expected(raw_config):
    config = ModelConfig.from_hf(raw_config)
    check_names(config, expected_tensors(config), "here")
    with pytest.raises(CheckpointError, match=r"here: tensor model\.embed_tokens\.weight is missing"):
        check_names(config, {}, "here")
