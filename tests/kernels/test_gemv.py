"""The product for few rows against torch: one row, sixteen, split along K or not, always the same bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from minillm.kernels.gemv import GemvConfig, gemv, gemv_bytes, gemv_config, gemv_torch
from minillm.kernels.instruments.traffic import trace

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SMALL = GemvConfig(block_n=16, block_k=32, splits=1, num_warps=4, num_stages=3)
SPLIT = GemvConfig(block_n=16, block_k=32, splits=4, num_warps=4, num_stages=3)


def inputs(m, n, k, dtype=torch.float32):
    return torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)


def close(actual, expected):
    step = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-4 if expected.dtype == torch.float32 else 10 * step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("config", [SMALL, SPLIT])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 50, 200), (2, 33, 128), (16, 17, 300), (5, 16, 576)])
def test_equals_torch(shape, config, dtype):
    x, w, bias = inputs(*shape, dtype)
    close(gemv(x, w, config=config), gemv_torch(x, w))
    close(gemv(x, w, bias, config=config), gemv_torch(x, w, bias))


@given(m=st.integers(1, 16), n=st.integers(1, 40), k=st.integers(1, 300), splits=st.sampled_from([1, 2, 8]))
def test_any_shape_and_split(m, n, k, splits):
    x, w, bias = inputs(m, n, k)
    close(gemv(x, w, bias, GemvConfig(16, 32, splits, 4, 3)), gemv_torch(x, w, bias))


@pytest.mark.parametrize("m", [1, 3])
def test_empty_splits_add_nothing(m):
    """Eight parts of one block of K: seven have nothing to add, not even what lies in memory behind x."""
    memory = torch.full((m, 400), torch.nan)
    x, w, bias = memory[:, :20], *inputs(m, 10, 20)[1:]
    x.copy_(torch.randn(m, 20))
    close(gemv(x, w, bias, GemvConfig(16, 32, 8, 4, 3)), gemv_torch(x, w, bias))


@pytest.mark.parametrize("shape", [(0, 4, 8), (1, 0, 8), (1, 4, 0), (3, 4, 0)])
def test_empty(shape):
    x, w, bias = inputs(*shape)
    assert torch.equal(gemv(x, w, bias), bias.expand(shape[0], -1))


def test_a_row_does_not_depend_on_its_mates():
    x, w, _ = inputs(9, 40, 500, torch.bfloat16)
    together = gemv(x, w, config=SPLIT)
    assert torch.equal(gemv(x[3:5], w, config=SPLIT), together[3:5])
    assert torch.equal(gemv(x, w, config=SPLIT), together)


def test_sums_in_float32_and_overflows_as_float16_does():
    x, w = torch.full((1, 4096), 4.0).half(), torch.full((2, 4096), 4.0).half()
    w[0] = 2**-10
    for rows in (x, x.expand(2, -1).contiguous()):
        y = gemv(rows, w)
        assert y[0, 0] == 16 and y[0, 1] == torch.inf


@pytest.mark.parametrize("m", [1, 5])
def test_bytes(m):
    """Every weight once; x by each program; parts out and in again where K is split."""
    n, k = 40, 256
    x, w, _ = inputs(m, n, k, torch.bfloat16)
    w = w[:32]  # so that no strip asks for a row that does not exist
    n = 32
    for config, splits in ((SMALL, 1), (SPLIT, 4)):
        with trace(x=x, w=w) as traffic:
            gemv(x, w, config=config)
        t = traffic.report()
        assert t["w"].load_bytes == n * k * 2
        assert t["x"].load_bytes == 2 * m * k * 2  # two strips
        rest = t.load_bytes + t.store_bytes - t["w"].load_bytes - t["x"].load_bytes
        assert n * k * 2 + m * k * 2 + rest == gemv_bytes(m, n, k, torch.bfloat16, splits)
    assert gemv_bytes(m, n, k, torch.bfloat16, 4) - gemv_bytes(m, n, k, torch.bfloat16) == 8 * 4 * m * n


def test_the_grid_fills_the_gpu():
    for processors in (16, 108, 132):
        for m in (1, 16):
            for n, k in ((4096, 4096), (1024, 4096), (128256, 4096), (64, 16384)):
                config = gemv_config(m, n, k, processors)
                programs = -(-n // config.block_n) * config.splits
                assert 4 * programs >= 3 * processors or config.splits > 1, (m, n, k, processors)
    assert gemv_config(1, 4096, 4096).splits == gemv_config(16, 4096, 4096).splits == 1
    assert gemv_config(1, 64, 16384).splits > 1
    assert gemv_config(1, 64, 64).splits == 1  # nothing to split


def test_refuses():
    x, w, bias = inputs(4, 6, 8)
    for call, error, message in [
        (lambda: gemv(torch.zeros(17, 8), w), ValueError, "17 rows.*use minillm.kernels.gemm"),
        (lambda: gemv(x[0], w), ValueError, "x has shape"),
        (lambda: gemv(x, w[:, :4]), ValueError, "w has shape"),
        (lambda: gemv(x, w.half()), TypeError, "w is float16"),
        (lambda: gemv(x, w, bias[:3]), ValueError, "bias has shape"),
        (lambda: gemv(x, w.T.contiguous().T), ValueError, "w has stride 6"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("m", [1, 2])
def test_strips_beyond_two_to_the_31_elements(m):
    w = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((129, 16), (2**24, 1))
    w.copy_(torch.randn(129, 16))
    x = torch.randn(m, 16).half()
    close(gemv(x, w, config=SMALL), gemv_torch(x, w))
