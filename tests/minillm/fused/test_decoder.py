"""The fused decoder computes what the plain one does: with the kernels' torch twins in every kind of layer, to the last bit."""

import pytest
import torch
from minillm.kernels.rms_norm import add_rms_norm, add_rms_norm_torch, rms_norm, rms_norm_torch
from minillm.kernels.rope import rope, rope_torch
from minillm.kernels.silu_mul import silu_mul, silu_mul_torch

from minillm.attention.base import AttentionMetadata
from minillm.fused.decoder import FusedDecoder, FusedOps
from minillm.kv.storage import allocate_layers

TWINS = FusedOps(rms_norm_torch, add_rms_norm_torch, rope_torch, silu_mul_torch)
KERNELS = FusedOps(rms_norm, add_rms_norm, rope, silu_mul)
LENGTHS, BLOCK_SIZE = [5, 1, 9], 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["llama", "tied", "window", "biases", "qk_norm", "no_groups"])
def test_the_same_states_and_the_same_cache(make_decoder, kind, dtype):
    for plain, ours in states(make_decoder(kind, dtype=dtype), TWINS, dtype):
        assert torch.equal(plain, ours)


@pytest.mark.parametrize("kind", ["biases", "qk_norm"])
def test_the_kernels_take_what_the_decoder_gives_them(make_decoder, kind):
    """Slices of fused projections, which the twins take however they lie."""
    for plain, ours in states(make_decoder(kind), KERNELS, torch.float32):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def states(decoder, ops, dtype):
    """[(of the plain decoder, of the fused one)]: hidden states, logits, each layer's cache."""
    fused = FusedDecoder(decoder, ops)
    torch.manual_seed(0)
    tables = torch.tensor([[3, 1, 0], [5, 5, 5], [0, 2, 4]])
    slots, positions, starts = [], [], [0]
    for table, length in zip(tables.tolist(), LENGTHS, strict=True):
        positions += range(length)
        slots += [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(length)]
        starts.append(starts[-1] + length)
    meta = AttentionMetadata(starts, LENGTHS, tables, torch.tensor(slots), BLOCK_SIZE, num_decodes=0)
    token_ids = torch.randint(0, decoder.config.vocab_size, (starts[-1],))
    results = []
    for model in (decoder, fused):
        cache = allocate_layers(decoder.config, 6, BLOCK_SIZE, dtype)
        hidden = model(token_ids, torch.tensor(positions), cache, meta)
        results.append((hidden, model.logits(hidden), *cache))
    return list(zip(*results, strict=True))


def test_it_stands_for_the_decoder(make_decoder):
    decoder = make_decoder()
    fused = FusedDecoder(decoder, TWINS)
    assert (fused.config, fused.dtype, fused.device) == (decoder.config, decoder.dtype, decoder.device)
    assert [p.data_ptr() for p in fused.parameters()] == [p.data_ptr() for p in decoder.parameters()]
