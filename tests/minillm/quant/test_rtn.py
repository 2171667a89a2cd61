"""Round to nearest: error bounds that follow from the formula, and the cases where a scale could go wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minillm.quant.rtn import dequantize_groups, dequantize_per_channel, quantize_groups, quantize_per_channel

SCALE_DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def weights(rows: int = 24, columns: int = 128, spread: float = 3.0) -> torch.Tensor:
    """Channels of very different size, as real ones are."""
    return torch.randn(rows, columns) * torch.exp(torch.randn(rows, 1) * spread) * 0.02


@pytest.mark.parametrize("scale_dtype", SCALE_DTYPES)
def test_per_channel_error_is_half_a_step(scale_dtype):
    w = weights()
    q, scale = quantize_per_channel(w, scale_dtype)
    assert q.dtype == torch.int8 and q.shape == w.shape and scale.shape == (24,) and scale.dtype == scale_dtype
    assert q.int().abs().max() == 127
    rounding = w.abs().amax(1) * torch.finfo(scale_dtype).eps  # a scale rounded down leaves its largest weight clipped
    error = (dequantize_per_channel(q, scale) - w).abs().amax(1)
    assert (error <= scale.float() * 0.5001 + rounding).all()


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("scale_dtype", SCALE_DTYPES)
def test_group_error_is_half_a_step(group_size, scale_dtype):
    w = weights()
    q, scale, minimum = quantize_groups(w, group_size, scale_dtype=scale_dtype)
    assert q.dtype == torch.uint8 and q.shape == w.shape and scale.shape == minimum.shape == (24, 128 // group_size)
    assert q.min() == 0 and q.max() == 15
    groups = w.unflatten(1, (-1, group_size))
    rounding = groups.abs().amax(2) * 4 * torch.finfo(scale_dtype).eps
    error = (dequantize_groups(q, scale, minimum) - w).unflatten(1, (-1, group_size)).abs().amax(2)
    assert (error <= scale.float() * 0.5001 + rounding).all()


def test_smaller_groups_lose_less():
    w = weights()
    errors = [(dequantize_groups(*quantize_groups(w, g)) - w).square().mean() for g in (32, 64, 128)]
    assert errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("value", [0.0, 1.5, -2.25])
def test_a_constant_row_comes_back(value):
    """Its range is zero, which no scale may divide by."""
    w = torch.full((2, 64), value)
    assert torch.equal(dequantize_groups(*quantize_groups(w, 32)), w)
    torch.testing.assert_close(dequantize_per_channel(*quantize_per_channel(w)), w)


@given(st.integers(2, 8))
def test_more_bits_lose_less(bits):
    torch.manual_seed(0)
    w = weights()
    fewer, more = (dequantize_groups(*quantize_groups(w, 64, b)) for b in (bits - 1, bits))
    assert (more - w).abs().mean() < (fewer - w).abs().mean()
