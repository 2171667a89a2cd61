"""Small decoders of every kind of layer, with random weights."""

import pytest
import torch

from minillm.attention import make_attention
from minillm.config import ModelConfig
from minillm.model.checkpoints.dummy import random_weights
from minillm.model.decoder import Decoder
from minillm.quant.linear import make_linear_method

SHAPE = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_layers": 2,
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}
KINDS = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "window": {"sliding_window": 7},
    "biases": {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    "qk_norm": {"qk_norm": True},
    "no_groups": {"num_kv_heads": 6},
}


@pytest.fixture(scope="session")
def make_decoder():
    """make_decoder(kind, quantization=None, dtype=torch.float32)"""

    def make(kind: str = "llama", quantization: str | None = None, dtype: torch.dtype = torch.float32) -> Decoder:
        config = ModelConfig(**SHAPE | KINDS[kind])
        decoder = Decoder(config, make_attention("sdpa"), dtype, linear_method=make_linear_method(quantization, 32, config))
        # ten times the usual spread, so that attention is not flat and a mistake in it shows
        decoder.load_weights((name, w if "norm" in name else w * 10) for name, w in random_weights(config, seed=0))
        return decoder

    return make
