"""What quantization does to the real model's predictions, over a text that no test of a loader or a scheduler uses."""

import pytest
import torch

from minillm.attention.base import AttentionMetadata
from minillm.config import EngineConfig
from minillm.kv.storage import allocate_layers
from minillm.loading import load_model
from minillm.text.tokenizer import Tokenizer

TEXT = """A lighthouse keeper keeps two clocks. One shows the time of the harbour, the other the time of the capital, and the
difference between them, eleven minutes, is how far west the rock lies. def longitude(minutes): return minutes / 4.
Người gác đèn biển có hai chiếc đồng hồ. Every evening he winds both, writes down the difference and lights the lamp."""


@torch.inference_mode()
def log_probs(quantization: str | None, group_size: int = 32) -> tuple[torch.Tensor, int]:
    """[T, vocab] of TEXT in float32, and the bytes of all weights."""
    config = EngineConfig(
        "smollm2-135m", dtype="float32", threads=1, quantization=quantization, quantization_group_size=group_size
    )
    checkpoint, decoder = load_model(config)
    tokens = torch.tensor(Tokenizer.from_folder(checkpoint.folder).encode(TEXT))
    n = len(tokens)
    cache = allocate_layers(decoder.config, 1, n, torch.float32)
    meta = AttentionMetadata([0, n], [n], torch.zeros(1, 1, dtype=torch.int64), torch.arange(n), n, num_decodes=0)
    logits = decoder.logits(decoder(tokens, torch.arange(n), cache, meta))
    return logits.log_softmax(-1), sum(p.nbytes for p in decoder.parameters())


@pytest.fixture(scope="module")
def unquantized():
    return log_probs(None)


@pytest.mark.parametrize(
    ("quantization", "group_size", "most_kl", "most_share"),
    [("int8", 32, 0.012, 0.47), ("int4", 32, 0.1, 0.41), ("int4", 64, 1.0, 0.38)],
)
def test_divergence_from_the_unquantized_model(unquantized, quantization, group_size, most_kl, most_share):
    """Mean KL divergence in nats a token; measured 0.007, 0.068 and 0.65. All but the output matrix comes from 4-bit blocks
    of 32, which flatters int4 in groups of just that size."""
    want, all_bytes = unquantized
    got, quantized_bytes = log_probs(quantization, group_size)
    kl = (want.exp() * (want - got)).sum(-1).mean()
    print(f"{quantization} {group_size}: KL {kl:.5f}, {quantized_bytes / all_bytes:.3f} of the bytes")
    assert 0 < kl < most_kl
    assert quantized_bytes / all_bytes < most_share
