"""A model small enough to run thousands of steps, decoders of every kind of layer, and the real one."""

import json

import pytest
import torch

from minillm.attention import make_attention
from minillm.config import ModelConfig
from minillm.llm import LLM
from minillm.model.checkpoints.dummy import byte_tokenizer, random_weights
from minillm.model.decoder import Decoder
from minillm.quant.linear import make_linear_method

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """config.json of a two-layer Llama; with load_format="dummy" its weights are random and its tokenizer is byte-level."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    (folder / "config.json").write_text(json.dumps(TINY))
    byte_tokenizer(TINY["vocab_size"]).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def tiny_llm(tiny_folder):
    """Makes LLMs of the tiny model: tiny_llm(max_num_seqs=2, ...)."""

    def make(sharpen: bool = True, **options) -> LLM:
        llm = LLM(str(tiny_folder), load_format="dummy", dtype="float32", threads=1, **options)
        if not sharpen:  # compiled graphs hold the weights as they were loaded
            return llm
        # at the usual 0.02 a random model's best token hardly depends on what attention reads, and its tests see little
        model = llm.engine.runner.model
        for layer in getattr(model, "decoder", model).layers:
            for linear in (layer.qkv_proj, layer.o_proj):
                for weight in linear.parameters():
                    if weight.is_floating_point():
                        weight.mul_(12)
        return llm

    return make


@pytest.fixture(scope="session")
def smollm2() -> LLM:
    """SmolLM2-135M-Instruct in float32; `make test` has pulled it."""
    return LLM("smollm2-135m", dtype="float32", threads=1, max_model_len=1024)


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
