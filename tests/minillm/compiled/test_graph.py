"""The decode step as a function of tensors computes what the decoder computes."""

import pytest
import torch

from minillm.attention.base import AttentionMetadata
from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.kv.storage import allocate_layers

BLOCK_SIZE, SEQ_LENS = 4, [1, 4, 5, 30]


def filled_cache(config, dtype, num_blocks=20):
    """Every slot holds something, as a cache does after a while."""
    layers = allocate_layers(config, num_blocks, BLOCK_SIZE, dtype)
    for layer in layers:
        layer.copy_(torch.randn(layer.shape))
    return layers


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("kind", ["llama", "tied", "window", "biases", "qk_norm", "no_groups"])
@torch.inference_mode()
def test_one_step_equals_the_decoders(make_decoder, kind, dtype, tolerance):
    decoder = make_decoder(kind, dtype=dtype)
    cache = filled_cache(decoder.config, dtype)
    copy = [layer.clone() for layer in cache]
    tables = torch.randperm(20)[: 4 * 5].view(4, 5).repeat(1, 2)[:, :8]
    positions = torch.tensor([n - 1 for n in SEQ_LENS])
    slots = tables.gather(1, positions[:, None] // BLOCK_SIZE)[:, 0] * BLOCK_SIZE + positions % BLOCK_SIZE
    token_ids = torch.randint(0, 300, (4,))
    meta = AttentionMetadata([0, 1, 2, 3, 4], SEQ_LENS, tables, slots, BLOCK_SIZE, num_decodes=4)

    want = decoder(token_ids, positions, cache, meta)
    got = DecodeGraph(decoder)(token_ids, positions, tables, copy)

    assert got.dtype == dtype
    relative = (got - want).float().square().mean().sqrt() / want.float().square().mean().sqrt()
    assert relative < tolerance
    for ours, theirs in zip(copy, cache, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance * 10, rtol=tolerance)
    assert torch.equal(HeadGraph(decoder)(want), decoder.logits(want))
