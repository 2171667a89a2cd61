"""RMSNorm and its fused residual against torch, bit for bit in the 16-bit dtypes, and each byte moved once."""

import pytest
import torch
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.rms_norm import (
    add_rms_norm,
    add_rms_norm_bytes,
    add_rms_norm_torch,
    rms_norm,
    rms_norm_bytes,
    rms_norm_torch,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LONG = 33_000  # does not fit a program in any dtype
EPS = 1e-5


def close(actual, expected):
    """A sum in another order rounds otherwise: by a few steps of float32, by one of a 16-bit dtype."""
    step = torch.finfo(expected.dtype).eps * (8 if expected.dtype == torch.float32 else 1)
    torch.testing.assert_close(actual, expected, rtol=2 * step, atol=step * 1e-2)


def inputs(shape, dtype):
    return (3 * torch.randn(shape)).to(dtype), torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (2, 100), (2, 3, 576), (7,), (2, LONG)])
def test_equals_torch(shape, dtype):
    x, residual, weight = inputs(shape, dtype)
    close(rms_norm(x, weight, EPS), rms_norm_torch(x, weight, EPS))
    y, total = add_rms_norm(x, residual, weight, EPS)
    expected_y, expected_total = add_rms_norm_torch(x, residual, weight, EPS)
    close(y, expected_y)
    assert torch.equal(total, expected_total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [576, LONG])
def test_rounds_where_torch_rounds(length, dtype):
    """The sum before the norm, and the quotient before the weight: else a quarter of the results would be a step off."""
    x, residual, weight = inputs((4, length), dtype)
    for actual, expected in [
        (rms_norm(x, weight, EPS), rms_norm_torch(x, weight, EPS)),
        (add_rms_norm(x, residual, weight, EPS)[0], add_rms_norm_torch(x, residual, weight, EPS)[0]),
    ]:
        assert (actual == expected).float().mean() > 0.995


@pytest.mark.parametrize("shape", [(0, 8), (2, 0)])
def test_nothing_in_nothing_out(shape):
    x, residual, weight = inputs(shape, torch.float32)
    assert rms_norm(x, weight, EPS).shape == shape
    assert [t.shape for t in add_rms_norm(x, residual, weight, EPS)] == [shape, shape]


def test_a_row_of_zeros_stays_zero_and_infinity_shows():
    x = torch.zeros(2, 10)
    x[1, 3] = torch.inf
    y = rms_norm(x, torch.ones(10), EPS)
    assert (y[0] == 0).all() and y[1, 3].isnan()  # as inf · 0 in torch


def test_large_float16_values_do_not_overflow():
    x = torch.full((1, 64), 6e4).half()
    close(rms_norm(x, torch.ones(64).half(), EPS), torch.ones(1, 64).half())


@pytest.mark.parametrize("length", [40, LONG])
def test_in_place(length):
    x, residual, weight = inputs((3, length), torch.bfloat16)
    expected_y, expected_total = add_rms_norm_torch(x, residual, weight, EPS)
    y, total = add_rms_norm(x, residual, weight, EPS, out=x, residual_out=residual)
    assert y is x and total is residual
    close(y, expected_y)
    assert torch.equal(total, expected_total)
    expected = rms_norm_torch(x, weight, EPS)
    close(rms_norm(x, weight, EPS, out=x), expected)


def test_rows_of_a_wider_tensor():
    wide = torch.randn(4, 64)
    close(rms_norm(wide[:, 16:48], torch.ones(32), EPS), rms_norm_torch(wide[:, 16:48], torch.ones(32), EPS))


@pytest.mark.parametrize("length", [24, LONG])
def test_heads_of_a_fused_projection(length):
    """q and k of a token lie side by side, those of the next one behind its v: two strides lead from row to row."""
    q, k, v = torch.randn(3, 4, length).split([2, 1, 1], dim=1)
    weight = torch.randn(length)
    for x in (q, k, v, q[:1], q[:0]):
        close(rms_norm(x, weight, EPS), rms_norm_torch(x, weight, EPS))
    with pytest.raises(ValueError, match="out's rows"):
        rms_norm(q, weight, EPS, out=q)
    with pytest.raises(ValueError, match="x's rows"):
        add_rms_norm(q, q, weight, EPS)


@pytest.mark.parametrize("rows, length, again", [(3, 1000, 0), (2, LONG, 1)])
def test_bytes(rows, length, again):
    """Each byte of x, residual, new residual and y once; what does not fit is read once more. All rows ask for the weight."""
    x, residual, weight = inputs((rows, length), torch.bfloat16)
    out, total = torch.empty_like(x), torch.empty_like(x)
    size = x.numel() * 2
    with trace(x=x, residual=residual, weight=weight, out=out, total=total) as traffic:
        add_rms_norm(x, residual, weight, EPS, out=out, residual_out=total)
    t = traffic.report()
    moved = {name: (t[name].load_bytes, t[name].store_bytes) for name in ("x", "residual", "out", "total", "weight")}
    assert moved == {
        "x": (size, 0),
        "residual": (size, 0),
        "out": (0, size),
        "total": (again * size, size),
        "weight": (size, 0),
    }
    assert t["weight"].unique_load_bytes == 2 * length
    assert add_rms_norm_bytes(rows, length, x.dtype) == (4 + again) * size + 2 * length

    with trace(x=x, out=out, weight=weight) as traffic:
        rms_norm(x, weight, EPS, out=out)
    t = traffic.report()
    assert (t["x"].load_bytes, t["out"].store_bytes) == ((1 + again) * size, size)
    assert rms_norm_bytes(rows, length, x.dtype) == (2 + again) * size + 2 * length


def test_refuses():
    x, residual, weight = inputs((2, 8), torch.float32)
    for call, error, message in [
        (lambda: rms_norm(x, weight.half(), EPS), TypeError, "weight is float16, x float32"),
        (lambda: rms_norm(x, weight[:4], EPS), ValueError, r"weight has shape \[4\]"),
        (lambda: rms_norm(x, torch.ones(16)[::2], EPS), ValueError, "weight has stride 2"),
        (lambda: rms_norm(x.T, torch.ones(2), EPS), ValueError, "x has stride 8"),
        (lambda: add_rms_norm(x, residual[:1], weight, EPS), ValueError, "residual has shape"),
        (lambda: add_rms_norm(x, residual, weight, EPS, out=x, residual_out=x), ValueError, "one tensor"),
        (lambda: add_rms_norm(x, residual, weight, EPS, residual_out=residual[:1].expand(2, 8)), ValueError, "expanded"),
        (lambda: rms_norm(torch.tensor(1.0), weight, EPS), ValueError, "scalar"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_rows_beyond_two_to_the_31_elements():
    x = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 16), (2**30, 1))
    x.copy_(torch.randn(3, 16))
    weight = torch.ones(16).half()
    close(rms_norm(x, weight, EPS), rms_norm_torch(x, weight, EPS))
