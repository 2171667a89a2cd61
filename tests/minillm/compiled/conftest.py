"""Small decoders of every kind of layer, with random weights."""

import pytest
import torch

from minillm.attention import make_attention
from minillm.attention.base import AttentionMetadata
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


@pytest.fixture
def prompts_of():
    """prompts_of([3, 17], past=0, block_size=4): tokens, positions and metadata of a step that computes so many new tokens of
    each sequence, `past` of which are in the cache. Blocks are scattered."""

    def make(lengths: list[int], past: int = 0, block_size: int = 4):
        widths = [-(-(n + past) // block_size) for n in lengths]
        free = torch.randperm(sum(widths)).tolist()
        tables = [[free.pop() for _ in range(width)] + [0] * (max(widths) - width) for width in widths]
        starts, positions, slots = [0], [], []
        for n, table in zip(lengths, tables, strict=True):
            starts.append(starts[-1] + n)
            positions += range(past, past + n)
            slots += [table[p // block_size] * block_size + p % block_size for p in range(past, past + n)]
        seq_lens = [n + past for n in lengths]
        meta = AttentionMetadata(starts, seq_lens, torch.tensor(tables), torch.tensor(slots), block_size, num_decodes=0)
        return torch.randint(0, SHAPE["vocab_size"], (starts[-1],)), torch.tensor(positions), meta

    return make
