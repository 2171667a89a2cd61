"""4-bit weights against torch: their packing, one row, tiles of one or several groups, split-K; exact bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.int4_packing import Int4Weight, dequantize_int4, pack_int4, unpack_int4
from minillm.kernels.w4a16 import w4a16, w4a16_bytes, w4a16_tile, w4a16_torch

from minillm.quant.rtn import dequantize_groups, quantize_groups

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(m, n, k, group_size, dtype=torch.float32):
    q, scale, minimum = quantize_groups(torch.randn(n, k) / 8, group_size, scale_dtype=dtype)
    return torch.randn(m, k).to(dtype), pack_int4(q, scale, minimum), torch.randn(n).to(dtype)


def close(actual, expected):
    # a weight next to the middle of two bfloat16 numbers may be rounded to either; the rest is the order of sums
    step = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-4 if expected.dtype == torch.float32 else 16 * step)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_packing(group_size):
    q, scale, minimum = quantize_groups(torch.randn(6, 256), group_size)
    weight = pack_int4(q, scale, minimum)
    assert weight.shape == (6, 256) and weight.group_size == group_size
    assert torch.equal(unpack_int4(weight), q)
    assert torch.equal(dequantize_int4(weight), dequantize_groups(q, scale, minimum))
    # the order that the docstring gives: byte j of group 1, low and high half
    j, half = 5, group_size // 2
    byte = int(weight.packed[2, half + j])
    assert (byte & 15, byte >> 4) == (q[2, group_size + j], q[2, group_size + half + j])


def test_a_bit_pattern_for_every_q():
    """Each of the 16 values in each half of a byte, with x that picks a single one: nothing may be rounded in float32."""
    q = torch.arange(16, dtype=torch.uint8).repeat(2)[None]
    weight = pack_int4(q, torch.tensor([[0.25]]), torch.tensor([[-2.0]]))
    x = torch.eye(32)
    expected = 0.25 * q.float() - 2
    assert torch.equal(w4a16(x, weight).T, expected)
    assert torch.equal(torch.cat([w4a16(row[None], weight) for row in x]).T, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 32, 32),
        (1, 10, 4224, 64),
        (2, 70, 384, 128),
        (16, 65, 1056, 32),
        (17, 33, 64, 64),
        (70, 130, 256, 128),
        (65, 9, 96, 32),
    ],
    ids=lambda s: "x".join(map(str, s)),
)
def test_equals_torch(shape, dtype):
    x, weight, bias = inputs(*shape, dtype)
    close(w4a16(x, weight), w4a16_torch(x, weight))
    close(w4a16(x, weight, bias), w4a16_torch(x, weight, bias))


@settings(max_examples=20)
@given(m=st.integers(1, 20), n=st.integers(1, 70), groups=st.integers(1, 7), group_size=st.sampled_from([32, 64, 128]))
def test_any_shape(m, n, groups, group_size):
    x, weight, bias = inputs(m, n, groups * group_size, group_size)
    close(w4a16(x, weight, bias), w4a16_torch(x, weight, bias))


def test_splits_the_sum_where_tiles_are_few_and_gives_the_same_bits_again():
    x, weight, bias = inputs(3, 70, 1152, 128, torch.bfloat16)  # nine steps in two parts: the second one is shorter
    assert w4a16_tile(3, 70, 1152).splits == 2
    out = w4a16(x, weight, bias)
    close(out, w4a16_torch(x, weight, bias))
    assert torch.equal(out, w4a16(x, weight, bias))


@pytest.mark.parametrize("m", [1, 3])
def test_zero_points(m):
    """A zero point z is a minimum of −z · scale; zero itself comes out as zero, exactly."""
    q = torch.randint(0, 16, (20, 64), dtype=torch.uint8)
    scale, zero = torch.rand(20, 2), torch.randint(0, 16, (20, 2))
    weight = pack_int4(q, scale, -zero * scale)
    dense = (q.int().unflatten(1, (2, 32)) - zero[..., None]) * scale[..., None]
    x = torch.randn(m, 64)
    close(w4a16(x, weight), x @ dense.flatten(1).T)


@pytest.mark.parametrize("m, n", [(0, 8), (3, 0), (1, 0)])
def test_nothing_in_nothing_out(m, n):
    weight = Int4Weight(torch.zeros(n, 16, dtype=torch.uint8), torch.zeros(1, n), torch.zeros(1, n))
    assert w4a16(torch.randn(m, 32), weight).shape == (m, n)


@pytest.mark.parametrize("m", [1, 4])
def test_rows_of_wider_tensors(m):
    x, weight, _ = inputs(m, 20, 64, 32)
    wide_x, wide = torch.full((m, 96), torch.nan), torch.full((20, 64), 255, dtype=torch.uint8)
    wide_x[:, 16:80], wide[:, 16:48] = x, weight.packed
    close(w4a16(wide_x[:, 16:80], weight._replace(packed=wide[:, 16:48])), w4a16_torch(x, weight))


@pytest.mark.parametrize("m, n, k, group_size", [(1, 10, 384, 128), (20, 70, 192, 64), (70, 140, 128, 128), (2, 70, 1024, 32)])
def test_bytes(m, n, k, group_size):
    x, weight, _ = inputs(m, n, k, group_size, torch.bfloat16)
    with trace(x=x, **weight._asdict()) as counted:
        w4a16(x, weight)
    report = counted.report()
    assert report.total.bytes == w4a16_bytes(m, n, k, group_size, torch.bfloat16)
    assert report["packed"].load_bytes == report["packed"].unique_load_bytes == n * k // 2


def test_rows_beyond_two_to_the_31_elements():
    """The third row begins at 2³¹, too much for 32 bits; its stride, 2³⁰, arrives in 32. Only touched pages take memory."""
    x, weight, _ = inputs(2, 3, 32, 32)
    far = torch.empty(2**31 + 64, dtype=torch.uint8).as_strided((3, 16), (2**30, 1))
    far.copy_(weight.packed)
    for rows in (x[:1], x):
        close(w4a16(rows, weight._replace(packed=far)), w4a16_torch(rows, weight))


def refusals():
    x, weight, bias = inputs(2, 8, 64, 32)
    yield (x, weight.packed, None), TypeError, "weight must be an Int4Weight"
    yield (x[:, :32], weight, None), ValueError, r"x has shape \[2, 32\]; \[any, 64\]"
    yield (x.long(), weight, None), TypeError, "x is int64"
    yield (x, weight, bias[:3]), ValueError, r"bias has shape \[3\]"
    yield (x, weight._replace(scale=weight.scale.T, minimum=weight.minimum.T), None), ValueError, "scale has shape"
    yield (x, weight._replace(scale=weight.scale[:, :7], minimum=weight.minimum[:, :7]), None), ValueError, "scale has shape"
    yield (x, weight._replace(minimum=weight.minimum.half()), None), TypeError, "minimum is float16, scale float32"
    yield (x, weight._replace(packed=weight.packed.int()), None), TypeError, "packed is int32"
    yield (x, weight._replace(scale=torch.ones(8, 2).T), None), ValueError, "scale is a strided view"


@pytest.mark.parametrize("arguments, error, message", list(refusals()))
def test_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        w4a16(*arguments)


@pytest.mark.parametrize(
    "q, scale, message",
    [
        (torch.full((2, 32), 16, dtype=torch.uint8), torch.ones(2, 1), "above 15"),
        (torch.zeros(2, 32, dtype=torch.uint8), torch.ones(2, 2), "in 2 groups"),
        (torch.zeros(2, 33, dtype=torch.uint8), torch.ones(2, 2), "33 inputs in 2 groups"),
        (torch.zeros(2, 32, dtype=torch.uint8), torch.ones(3, 1), "scale has 3 rows"),
    ],
)
def test_packing_refuses(q, scale, message):
    with pytest.raises(ValueError, match=message):
        pack_int4(q, scale, scale)
