"""Softmax against torch: every dtype, rows that fit a program and rows that don't, and what it costs in bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.softmax import softmax, softmax_bytes, softmax_torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {
    torch.float32: dict(rtol=1e-5, atol=1e-7),
    torch.float16: dict(rtol=2e-3, atol=1e-6),
    torch.bfloat16: dict(rtol=1e-2, atol=1e-6),
}
LONG = 33_000  # does not fit a program in any dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (2, 100), (1, 4096), (2, 2, 7), (5,), (2, LONG)])
def test_equals_torch(shape, dtype):
    x = (4 * torch.randn(shape)).to(dtype)
    torch.testing.assert_close(softmax(x), softmax_torch(x), **TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_nothing_in_nothing_out(shape):
    assert softmax(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("length", [40, LONG])
def test_minus_infinity(length):
    """Masked entries get 0, whole masked lanes and blocks do no harm, and a row of nothing else is NaN as in torch."""
    x = torch.randn(3, length)
    x[0, ::2] = -torch.inf
    x[1, : length - 3] = -torch.inf
    x[2] = -torch.inf
    y = softmax(x)
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-5, atol=1e-7, equal_nan=True)
    assert (y[1, : length - 3] == 0).all() and y[2].isnan().all()


def test_large_values_do_not_overflow():
    x = torch.tensor([[1e4, 1e4 - 1, -1e4]])
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


def test_in_place_and_from_a_slice_of_a_wider_tensor():
    wide = torch.randn(4, 48)
    expected = wide.clone()
    expected[:, 8:40] = torch.softmax(expected[:, 8:40], -1)
    view = wide[:, 8:40]
    assert softmax(view, out=view) is view
    torch.testing.assert_close(wide, expected)


@given(rows=st.integers(1, 3), length=st.integers(1, 200), scale=st.floats(0, 100))
def test_sums_to_one(rows, length, scale):
    y = softmax(scale * torch.randn(rows, length))
    torch.testing.assert_close(y.sum(-1), torch.ones(rows))


@pytest.mark.parametrize("length, passes", [(1000, 2), (LONG, 3)])
def test_bytes(length, passes):
    x = torch.randn(2, length).bfloat16()
    out = torch.empty_like(x)
    with trace(x=x, out=out) as traffic:
        softmax(x, out=out)
    size = x.numel() * 2
    t = traffic.report().tensors
    assert (t["x"].load_bytes, t["x"].store_bytes) == ((passes - 1) * size, 0)
    assert (t["out"].load_bytes, t["out"].store_bytes) == (0, size)
    assert softmax_bytes(2, length, x.dtype) == passes * size


@pytest.mark.parametrize(
    "x, out, error, message",
    [
        (torch.zeros(2, 4).int(), None, TypeError, "int32"),
        ([1.0], None, TypeError, "x must be a torch.Tensor, not list"),
        (torch.zeros(4, 2).T, None, ValueError, "stride 2 in its last dimension"),
        (torch.zeros(4, 6, 2)[:, ::4], None, ValueError, r"x's rows do not lie evenly"),
        (torch.zeros(2, 4), torch.zeros(2, 5), ValueError, r"out has shape"),
        (torch.zeros(2, 4), torch.zeros(2, 4).half(), TypeError, "out is float16, x float32"),
        (torch.zeros(2, 4), torch.zeros(1, 4).expand(2, 4), ValueError, "expanded"),
        (torch.zeros(()), None, ValueError, "scalar"),
    ],
)
def test_refuses(x, out, error, message):
    with pytest.raises(error, match=message):
        softmax(x, out=out)


def test_rows_beyond_two_to_the_31_elements():
    """Rows 2³⁰ elements apart: the stride fits 32 bits, the third row's offset does not. Only touched pages take memory."""
    memory = torch.empty(2**31 + 64, dtype=torch.float16)
    x = memory.as_strided((3, 16), (2**30, 1))
    x.copy_(torch.randn(3, 16))
    torch.testing.assert_close(softmax(x), softmax_torch(x), **TOLERANCE[x.dtype])
