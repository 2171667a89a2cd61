"""Where storage puts a token's keys and values, checked by indexing it by hand."""

import pytest
import torch

from minillm.config import ModelConfig
from minillm.kv.storage import allocate_layers, keys, kv_bytes, values, write_kv

CONFIG = ModelConfig("llama", 10, 8, 8, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=3, max_position_embeddings=32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_written_where_it_is_read(dtype):
    layer = allocate_layers(CONFIG, num_blocks=5, block_size=4, dtype=dtype)[0]
    slots = [17, 2, 11]
    k, v = torch.randn(2, 3, 2, 3).to(dtype)
    write_kv(k, v, layer, torch.tensor(slots))
    for token, slot in enumerate(slots):
        block, offset = divmod(slot, 4)
        assert torch.equal(keys(layer)[block, :, :, offset], k[token])
        assert torch.equal(values(layer)[block, :, offset], v[token])
    assert int((layer != 0).sum()) == k.count_nonzero() + v.count_nonzero(), "nothing else was written"


def test_keys_and_values_are_views_of_all_of_it():
    layer = allocate_layers(CONFIG, num_blocks=5, block_size=4, dtype=torch.float32)[1]
    assert keys(layer).shape == (6, 2, 3, 4) and values(layer).shape == (6, 2, 4, 3)
    keys(layer).fill_(1)
    values(layer).fill_(2)
    assert layer.sum() == layer.numel() * 1.5


def test_one_block_more_than_asked_for_and_nothing_shared_between_layers():
    layers = allocate_layers(CONFIG, num_blocks=5, block_size=4, dtype=torch.float16)
    assert sum(layer.nbytes for layer in layers) == kv_bytes(CONFIG, 6 * 4, torch.float16)
    assert len({layer.data_ptr() for layer in layers}) == CONFIG.num_layers
    assert not any(layer.any() for layer in layers)
