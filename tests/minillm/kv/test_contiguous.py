import random

import pytest
import torch

from minillm.config import ModelConfig
from minillm.kv.contiguous import ContiguousKV
from minillm.kv.storage import kv_bytes
from minillm.request import Request, SamplingParams

TINY = ModelConfig("llama", 10, 8, 8, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4, max_position_embeddings=32)


def request(name: str) -> Request:
    return Request(name, [1] * 8, 8, SamplingParams(), max_tokens=4, seed=0)


@pytest.fixture
def kv() -> ContiguousKV:
    return ContiguousKV(TINY, num_blocks=3, block_size=16, dtype=torch.float32)


def test_shape_and_bytes(kv):
    assert [tuple(t.shape) for t in kv.layers] == [(4, 2, 1, 4, 16)] * 2  # a row more than asked for, for padding
    assert sum(t.nbytes for t in kv.layers) == 4 * kv_bytes(TINY, 16, torch.float32)
    assert all((t == 0).all() for t in kv.layers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_is_zero_and_writable(dtype):
    kv = ContiguousKV(TINY, 1, 4, dtype)
    kv.layers[0][0, 0, 0, 1] = 2
    assert kv.layers[0].dtype == dtype and kv.layers[0].float().sum() == 8


def test_a_request_keeps_its_row_and_gives_it_back(kv):
    a, b = request("a"), request("b")
    assert kv.start(a) and kv.start(b) and kv.allocate(a, 8)
    row = a.block_ids
    a.num_computed_tokens = 8
    assert kv.allocate(a, 1) and a.block_ids == row and b.block_ids != row
    kv.free(a)
    assert a.block_ids == [] and kv.num_free == 2
    kv.free(a)  # twice is harmless
    assert kv.num_free == 2
    c = request("c")
    assert kv.start(c) and c.block_ids == row, "the lowest free row comes first"
    kv.check_integrity()


def test_full_means_false_and_nothing_changes(kv):
    held = [request(str(i)) for i in range(3)]
    assert all(kv.start(r) for r in held) and kv.usage == 1.0
    late = request("late")
    assert not kv.start(late) and late.block_ids == []
    kv.check_integrity()


def test_a_row_never_overflows(kv):
    long = request("long")
    long.token_ids = [1] * 17
    assert not kv.start(long) and kv.num_free == 3
    fits = request("fits")
    assert kv.start(fits) and kv.allocate(fits, 16) and not kv.allocate(fits, 17)
    fits.num_computed_tokens = 16
    assert not kv.allocate(fits, 1)


def test_rows_kept_free(kv):
    assert not kv.start(request("a"), keep_free=3) and kv.start(request("a"), keep_free=2)


def test_integrity_check_sees_a_leak(kv):
    kv.start(request("a"))
    kv._held.clear()
    with pytest.raises(AssertionError, match="free"):
        kv.check_integrity()


def test_random_operations_leak_nothing(kv):
    rng, live = random.Random(0), {}
    for step in range(5000):
        if live and rng.random() < 0.5:
            kv.free(live.pop(rng.choice(list(live))))
        else:
            r = request(f"r{step}")
            if kv.start(r):
                live[r.request_id] = r
            else:
                assert len(live) == 3
        kv.check_integrity()
        assert {tuple(r.block_ids) for r in live.values()} == {(row,) for row in kv._held.values()}
