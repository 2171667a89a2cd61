"""int8 weights against torch: one row, tiles, split-K; the engine's own packing; exact bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.w8a16 import SHIPPED, w8a16, w8a16_bytes, w8a16_tile, w8a16_torch

from minillm.quant.rtn import dequantize_per_channel, quantize_per_channel

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(m, n, k, dtype=torch.float32):
    x = torch.randn(m, k).to(dtype)
    q = torch.randint(-128, 128, (n, k), dtype=torch.int8)
    return x, q, (torch.rand(n) / 100).to(dtype), torch.randn(n).to(dtype)


def close(actual, expected):
    step = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-4 if expected.dtype == torch.float32 else 10 * step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (1, 9, 2100), (2, 70, 130), (16, 65, 1030), (17, 33, 64), (70, 130, 100)],
    ids=lambda s: "x".join(map(str, s)),
)
def test_equals_torch(shape, dtype):
    x, q, scale, bias = inputs(*shape, dtype)
    close(w8a16(x, q, scale), w8a16_torch(x, q, scale))
    close(w8a16(x, q, scale, bias), w8a16_torch(x, q, scale, bias))


@settings(max_examples=20)
@given(m=st.integers(1, 20), n=st.integers(1, 80), k=st.integers(1, 300))
def test_any_shape(m, n, k):
    x, q, scale, bias = inputs(m, n, k)
    close(w8a16(x, q, scale, bias), w8a16_torch(x, q, scale, bias))


def test_splits_the_sum_where_tiles_are_few_and_gives_the_same_bits_again():
    x, q, scale, bias = inputs(3, 70, 1100, torch.bfloat16)
    assert w8a16_tile(3, 70, 1100).splits == 2
    out = w8a16(x, q, scale, bias)
    close(out, w8a16_torch(x, q, scale, bias))
    assert torch.equal(out, w8a16(x, q, scale, bias))


def test_the_engines_weights():
    """quantize_per_channel's q and scale, as Int8Linear holds them."""
    weight, x = torch.randn(48, 64), torch.randn(5, 64)
    q, scale = quantize_per_channel(weight)
    close(w8a16(x, q, scale), x @ dequantize_per_channel(q, scale).T)


def test_scales_of_another_dtype():
    x, q, scale, _ = inputs(2, 20, 32, torch.bfloat16)
    close(w8a16(x, q, scale.float() / 3), w8a16_torch(x, q, scale.float() / 3))


@pytest.mark.parametrize("m", [1, 4])
def test_rows_of_wider_tensors(m):
    """x and q are columns of wider tensors, whose other columns must not be read."""
    x, q, scale, _ = inputs(m, 20, 40)
    wide_x, wide_q = torch.full((m, 64), torch.nan), torch.full((20, 64), 99, dtype=torch.int8)
    wide_x[:, 8:48], wide_q[:, 8:48] = x, q
    close(w8a16(wide_x[:, 8:48], wide_q[:, 8:48], scale), w8a16_torch(x, q, scale))


@pytest.mark.parametrize("m, n, k", [(0, 8, 16), (3, 0, 16), (1, 0, 16)])
def test_nothing_in_nothing_out(m, n, k):
    assert w8a16(*inputs(m, n, k)[:3]).shape == (m, n)


@pytest.mark.parametrize("m", [1, 2])
def test_an_empty_sum_is_the_bias(m):
    x, q, scale, bias = inputs(m, 8, 0)
    assert torch.equal(w8a16(x, q, scale, bias), bias.expand(m, 8))


@pytest.mark.parametrize("m, n, k", [(1, 10, 300), (20, 70, 200), (100, 140, 64), (2, 70, 1024)])
def test_bytes(m, n, k):
    x, q, scale, _ = inputs(m, n, k, torch.bfloat16)
    with trace(x=x, q=q, scale=scale) as counted:
        w8a16(x, q, scale)
    report = counted.report()
    assert report.total.bytes == w8a16_bytes(m, n, k, torch.bfloat16)
    assert report["q"].load_bytes == n * k * (2 if m == 200 else 1)
    assert report["q"].unique_load_bytes == n * k


def test_rows_beyond_two_to_the_31_elements():
    """The third row begins at 2³¹, too much for 32 bits; its stride, 2³⁰, arrives in 32. Only touched pages take memory."""
    q = torch.empty(2**31 + 64, dtype=torch.int8).as_strided((3, 16), (2**30, 1))
    x, small, scale, _ = inputs(2, 3, 16)
    q.copy_(small)
    for rows in (x[:1], x):
        close(w8a16(rows, q, scale), w8a16_torch(rows, small, scale))


def refusals():
    x, q, scale, bias = inputs(2, 8, 16)
    yield (x, q.float(), scale, None), TypeError, "qweight is float32"
    yield (x.double(), q, scale, None), TypeError, "x is float64"
    yield (x[:, :8], q, scale, None), ValueError, r"x has shape \[2, 8\]; \[any, 16\]"
    yield (x, q, scale[:4], None), ValueError, r"scale has shape \[4\]"
    yield (x, q, scale, bias[:4]), ValueError, r"bias has shape \[4\]"
    yield (x, q.T.contiguous().T, scale, None), ValueError, "qweight has stride 8 in its last dimension"
    yield (torch.zeros(16, 2).T, q, scale, None), ValueError, "x has stride 2 in its last dimension"
    yield (x, q, [1.0], None), TypeError, "scale must be a torch.Tensor"


@pytest.mark.parametrize("arguments, error, message", list(refusals()))
def test_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        w8a16(*arguments)


def test_shipped_variants_are_what_the_launcher_picks():
    tiles = {variant.name: variant.constexprs for variant in SHIPPED}
    assert tiles["w8a16.tile16.bf16.4096"]["BLOCK_M"] == 16 and tiles["w8a16.tile128.bf16.4096"]["BLOCK_M"] == 128
