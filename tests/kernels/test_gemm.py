"""The tiled product against torch in shapes that fit no tile, the autotuner with a made-up clock, and bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from minillm.kernels import gemm as module
from minillm.kernels.gemm import CONFIGS, default_config, gemm, gemm_bytes, gemm_torch
from minillm.kernels.instruments.traffic import trace

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(m, n, k, dtype=torch.float32):
    return torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)


def close(actual, expected):
    step = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-4 if expected.dtype == torch.float32 else 10 * step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 64, 64), (70, 90, 100), (129, 130, 33), (300, 140, 192), (17, 1, 576)])
def test_equals_torch(shape, dtype):
    x, w, bias = inputs(*shape, dtype)
    close(gemm(x, w), gemm_torch(x, w))
    close(gemm(x, w, bias), gemm_torch(x, w, bias))


@given(m=st.integers(1, 80), n=st.integers(1, 80), k=st.integers(1, 80))
def test_any_shape(m, n, k):
    x, w, bias = inputs(m, n, k)
    close(gemm(x, w, bias), gemm_torch(x, w, bias))


@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (3, 4, 0)])
def test_empty(shape):
    x, w, bias = inputs(*shape)
    assert torch.equal(gemm(x, w, bias), bias.expand(shape[0], -1))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_configuration(config):
    x, w, bias = inputs(150, 270, 128, torch.bfloat16)
    close(gemm(x, w, bias, config=config), gemm_torch(x, w, bias))
    assert config.kwargs["BLOCK_K"] <= module.LARGEST_BLOCK_K and module.LARGEST_BLOCK_K % config.kwargs["BLOCK_K"] == 0


def test_every_tile_is_computed_once_in_whatever_order():
    """More rows of tiles than a group, and not a multiple of it."""
    x, w, _ = inputs(16 * 11, 64 * 3, 16)
    close(gemm(x, w, config=CONFIGS[-1]), gemm_torch(x, w))


def test_views_of_wider_tensors():
    x, w, _ = inputs(20, 40, 96)
    out = torch.zeros(20, 100)
    assert gemm(x[:, 16:48], w[:, :32], out=out[:, 30:70]).data_ptr() == out[:, 30:].data_ptr()
    close(out[:, 30:70], gemm_torch(x[:, 16:48], w[:, :32]))
    assert (out[:, :30] == 0).all() and (out[:, 70:] == 0).all()


def test_sums_in_float32_and_overflows_as_float16_does():
    x, w = torch.full((1, 4096), 4.0).half(), torch.full((2, 4096), 4.0).half()
    w[0] = 2**-10
    y = gemm(x, w)
    assert y[0, 0] == 16 and y[0, 1] == torch.inf  # 4,096 · 16 = 65,536


def test_what_does_not_exist_does_not_leak():
    """NaN right behind the tensors' ends, in memory, changes nothing."""
    memory = torch.full((40, 100), torch.nan)
    x, w = memory[:17, :33], torch.full((40, 100), torch.nan)[:19, :33]
    x.copy_(torch.randn(17, 33))
    w.copy_(torch.randn(19, 33))
    close(gemm(x, w), gemm_torch(x, w))


def test_the_autotuner_takes_what_its_clock_says_is_fastest(monkeypatch):
    """Under the interpreter, with a made-up clock: each configuration runs, one is kept, and the next call measures nothing."""
    x, w, bias = inputs(40, 70, 64, torch.float16)
    measured = []

    def clock(call, quantiles):
        call()
        measured.append(len(measured))
        return [abs(len(measured) - 4.0) + 1] * 3

    monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(module._tuned, "_do_bench", clock)
    monkeypatch.setattr(module._tuned, "cache", {})
    close(gemm(x, w, bias), gemm_torch(x, w, bias))
    assert len(measured) == len(CONFIGS)
    assert str(module._tuned.best_config) == str(CONFIGS[3])
    close(gemm(x[:33], w, bias), gemm_torch(x[:33], w, bias))  # 33 to 64 rows share one choice
    gemm(x.float(), w.float())  # none of CONFIGS is for float32
    assert len(measured) == len(CONFIGS)


def test_bytes():
    """2·n³·s/tile for square tiles that fit; whole tiles at the edge, where rows that do not exist are asked for too."""
    n, tile = 128, 32
    config = module._config(tile, tile, 32, 4, 3)
    x, w, _ = inputs(n, n, n)
    out = torch.empty(n, n)
    with trace(x=x, w=w, out=out) as traffic:
        gemm(x, w, out=out, config=config)
    t = traffic.report()
    assert t["x"].load_bytes + t["w"].load_bytes == 2 * n**3 * 4 // tile
    assert t["x"].unique_load_bytes == t["w"].unique_load_bytes == t["out"].store_bytes == n * n * 4
    assert gemm_bytes(n, n, n, torch.float32, tile, tile) == 2 * n**3 * 4 // tile + n * n * 4

    x, w, _ = inputs(70, 40, 50, torch.bfloat16)
    with trace() as traffic:
        gemm(x, w, config=config)
    t = traffic.report()
    assert t.load_bytes + t.store_bytes == gemm_bytes(70, 40, 50, torch.bfloat16, tile, tile)


def test_configurations_suit_the_rows():
    assert default_config(3).kwargs["BLOCK_M"] == 16
    assert default_config(33).kwargs["BLOCK_M"] == 64
    assert default_config(5000).kwargs["BLOCK_M"] == 128


def test_refuses():
    x, w, bias = inputs(4, 6, 8)
    for call, error, message in [
        (lambda: gemm(x[0], w), ValueError, "x has shape"),
        (lambda: gemm(x, w[:, :4]), ValueError, r"w has shape \[6, 4\]; \[any, 8\]"),
        (lambda: gemm(x, w.half()), TypeError, "w is float16"),
        (lambda: gemm(x, w, bias[:3]), ValueError, "bias has shape"),
        (lambda: gemm(x, w.T.contiguous().T), ValueError, "w has stride 6"),
        (lambda: gemm(x, w, out=torch.zeros(6, 4)), ValueError, "out has shape"),
        (lambda: gemm(x, w, out=torch.zeros(1, 6).expand(4, 6)), ValueError, "expanded"),
        (lambda: gemm(x.to("meta"), w), ValueError, "w is on cpu, x on meta"),
        (lambda: gemm(x.long(), w), TypeError, "int64"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_tiles_beyond_two_to_the_31_elements():
    """Row 128 of a weight whose rows lie 2²⁴ elements apart begins at 2³¹: the tile's origin is counted in 64 bits."""
    w = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((129, 16), (2**24, 1))
    w.copy_(torch.randn(129, 16))
    x = torch.randn(2, 16).half()
    with pytest.raises(ValueError, match="16777216 elements apart; 129 of them"):  # too far apart within one tile
        gemm(x, w)
    w = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((513, 16), (2**22, 1))
    w.copy_(torch.randn(513, 16))
    close(gemm(x, w), gemm_torch(x, w))
    close(gemm(w, x), gemm_torch(w, x))
