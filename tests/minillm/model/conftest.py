"""Tiny random models made by transformers, and a harness that runs a Decoder over a real cache."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from minillm.attention import make_attention
from minillm.config import ModelConfig
from minillm.model.decoder import Decoder

# The layouts of tests/minillm/attention: test folders are not packages, so the file is loaded by its place.
_spec = importlib.util.spec_from_file_location("attention_layouts", Path(__file__).parents[1] / "attention" / "conftest.py")
_layouts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_layouts)
layout, layout_kind = _layouts.layout, _layouts.layout_kind

SHAPE = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-3,  # large enough that forgetting it, or its default, shows
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "llama-tied": LlamaConfig(**SHAPE | {"tie_word_embeddings": True}),
    "llama-biases": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "llama3-scaling": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "mistral-window": MistralConfig(**SHAPE, sliding_window=6),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen2-tied": Qwen2Config(**SHAPE | {"tie_word_embeddings": True}),
    "qwen3": Qwen3Config(**SHAPE, head_dim=12),
    "qwen3-tied": Qwen3Config(**SHAPE | {"tie_word_embeddings": True}, head_dim=12),
    "qwen3-biases": Qwen3Config(**SHAPE, head_dim=12, attention_bias=True),
}


@dataclass
class Oracle:
    """transformers' own model and what minillm makes of its configuration."""

    model: torch.nn.Module
    config: ModelConfig

    @torch.no_grad()
    def logits(self, token_ids: list[int]) -> torch.Tensor:
        return self.model(torch.tensor([token_ids])).logits[0].float()

    def decoder(self, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> Decoder:
        decoder = Decoder(self.config, make_attention(attention), dtype=dtype)
        decoder.load_weights(self.model.state_dict().items())
        return decoder


def make_oracle(name: str) -> Oracle:
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(0)
    for parameter_name, p in model.named_parameters():
        # transformers starts norms at 1, biases at 0 and the rest near 0, which would hide most mistakes.
        mean, std = (1.0, 0.3) if "norm" in parameter_name else (0.0, 0.2)
        p.data.normal_(mean, std, generator=generator)
    raw = model.config.to_dict() | {"architectures": [type(model).__name__]}
    return Oracle(model, ModelConfig.from_hf(raw))


@pytest.fixture(scope="session")
def oracles():
    """name -> Oracle, each made once."""
    return {name: make_oracle(name) for name in CONFIGS}


@pytest.fixture(params=list(CONFIGS))
def oracle(request, oracles) -> Oracle:
    return oracles[request.param]


class Harness:
    """Feeds sequences to a Decoder, any chunk of any sequence at a time, over one cache."""

    def __init__(self, decoder: Decoder, place, sequences: list[list[int]]):
        self.decoder, self.place, self.sequences = decoder, place, sequences
        config, dtype = decoder.config, decoder.embed_tokens.weight.dtype
        self.kv_cache = [place.cache(config.num_kv_heads, config.head_dim, dtype) for _ in range(config.num_layers)]
        self.computed = [0] * len(sequences)

    @torch.inference_mode()
    def step(self, sizes: dict[int, int]) -> dict[int, torch.Tensor]:
        """sizes: sequence -> how many of its tokens to compute. Returns sequence -> the logits of each of them."""
        order = sorted(sizes, key=lambda seq: sizes[seq] > 1)
        chunks = [(seq, self.computed[seq], self.computed[seq] + sizes[seq]) for seq in order]
        token_ids = torch.tensor([t for seq, start, end in chunks for t in self.sequences[seq][start:end]])
        positions = torch.cat([torch.arange(start, end) for _, start, end in chunks])
        hidden = self.decoder(token_ids, positions, self.kv_cache, self.place.metadata(chunks))
        for seq in order:
            self.computed[seq] += sizes[seq]
        return dict(zip(order, self.decoder.logits(hidden).split([sizes[seq] for seq in order]), strict=True))

    def whole(self) -> list[torch.Tensor]:
        """Every sequence in one step; the logits of each."""
        logits = self.step({seq: len(tokens) for seq, tokens in enumerate(self.sequences)})
        return [logits[seq] for seq in range(len(self.sequences))]


@pytest.fixture
def harness():
    return Harness
