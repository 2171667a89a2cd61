"""Keys and values land in the slots they were given, in the engine's layout, and nowhere else."""

import pytest
import torch
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.kv_write import kv_write, kv_write_bytes, kv_write_torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(tokens, num_heads, head_dim, block_size, dtype, num_blocks=5):
    k, v = torch.randn(2, tokens, num_heads, head_dim).to(dtype)
    cache = torch.randn(num_blocks, 2, num_heads, head_dim, block_size).to(dtype)
    slots = torch.randperm(num_blocks * block_size)[:tokens]
    return k, v, cache, slots


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 16, 16), (37, 2, 64, 16), (5, 3, 20, 4), (3, 1, 128, 1), (17, 2, 80, 32), (0, 2, 16, 16)]
)
def test_equals_torch(sizes, dtype):
    k, v, cache, slots = inputs(*sizes, dtype, num_blocks=max(5, sizes[0]))
    expected = cache.clone()
    kv_write_torch(k, v, expected, slots)
    kv_write(k, v, cache, slots)
    assert torch.equal(cache, expected)


def test_the_layout():
    k, v, cache, _ = inputs(1, 2, 16, 4, torch.float32)
    kv_write(k, v, cache, torch.tensor([2 * 4 + 3]))
    assert torch.equal(cache[2, 0, :, :, 3], k[0])
    assert torch.equal(cache[2, 1].reshape(2, 4, 16)[:, 3], v[0])


@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_tokens_without_a_slot_are_skipped(index):
    k, v, cache, slots = inputs(20, 2, 32, 16, torch.bfloat16)
    slots[::3] = -1
    expected = cache.clone()
    kv_write_torch(k, v, expected, slots)
    kv_write(k, v, cache, slots.to(index))
    assert torch.equal(cache, expected)
    before = cache.clone()
    kv_write(k, v, cache, torch.full((20,), -1))
    assert torch.equal(cache, before)


def test_from_slices_of_a_fused_projection():
    k, v, cache, slots = inputs(6, 2, 16, 8, torch.float16)
    fused = torch.cat([torch.zeros(6, 4, 16).half(), k, v], dim=1)
    expected = cache.clone()
    kv_write_torch(k, v, expected, slots)
    kv_write(fused[:, 4:6], fused[:, 6:], cache, slots)
    assert torch.equal(cache, expected)


def test_bytes():
    k, v, cache, slots = inputs(20, 3, 32, 16, torch.bfloat16)
    with trace(k=k, v=v, cache=cache, slots=slots) as traffic:
        kv_write(k, v, cache, slots)
    t = traffic.report()
    size = k.numel() * 2
    assert (t["k"].load_bytes, t["v"].load_bytes) == (size, size)
    assert (t["cache"].load_bytes, t["cache"].store_bytes) == (0, 2 * size)
    assert (t["slots"].load_bytes, t["slots"].unique_load_bytes) == (3 * 20 * 8, 20 * 8)
    assert kv_write_bytes(20, 3, 32, torch.bfloat16) == 4 * size + 20 * 8


def test_refuses():
    k, v, cache, slots = inputs(4, 2, 16, 8, torch.float32)
    for arguments, error, message in [
        ((k[0], v, cache, slots), ValueError, "k has shape"),
        ((k, v[:3], cache, slots), ValueError, "v has shape"),
        ((k, v.half(), cache, slots), TypeError, "v is float16"),
        ((k, v, cache[:, :1], slots), ValueError, "cache has shape"),
        ((k, v, cache[..., :6], slots), ValueError, "block_size is 6"),
        ((k, v, cache.transpose(3, 4).contiguous().transpose(3, 4), slots), ValueError, "in one piece"),
        ((k, v, cache, slots.float()), TypeError, "slots is float32"),
        ((k, v, cache, slots[:3]), ValueError, "slots has shape"),
        ((k, v, cache, slots.to("meta")), ValueError, "slots is on meta"),
        ((k, v, cache[:1].expand(5, -1, -1, -1, -1), slots), ValueError, "expanded"),
    ]:
        with pytest.raises(error, match=message):
            kv_write(*arguments)


def test_blocks_beyond_two_to_the_31_elements():
    """The last of 2²³ + 1 blocks of 256 elements begins past 2³¹; only what is written takes memory."""
    k, v, _, _ = inputs(1, 1, 16, 8, torch.float16)
    blocks = 2**23 + 1
    cache = torch.empty(blocks, 2, 1, 16, 8, dtype=torch.float16)
    kv_write(k, v, cache, torch.tensor([blocks * 8 - 1]))
    assert torch.equal(cache[-1, 0, 0, :, 7], k[0, 0])
    assert torch.equal(cache[-1, 1].reshape(8, 16)[7], v[0, 0])
