"""float8: quantising is torch's to the bit, saturates, survives zeros and NaN; the product of two such matrices; exact bytes."""

import pytest
import torch
from minillm.kernels import fp8_quantize
from minillm.kernels.fp8 import fp8_gemm, fp8_gemm_bytes, fp8_gemm_torch, fp8_tile
from minillm.kernels.fp8_quantize import quantize_fp8, quantize_fp8_bytes, quantize_fp8_torch
from minillm.kernels.instruments.traffic import trace

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LONG = 33_000  # a row that does not fit a program in any dtype
SCALE = torch.tensor([0.003])


def same(actual, expected):
    (q, scale), (expected_q, expected_scale) = actual, expected
    assert torch.equal(scale, expected_scale) and q.dtype == expected_q.dtype
    assert torch.equal(q.view(torch.uint8), expected_q.view(torch.uint8))


@pytest.mark.parametrize("how", [{}, {"per_row": False}, {"per_row": False, "scale": SCALE}], ids=["row", "tensor", "given"])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("of", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (2, LONG)])
def test_equals_torch(shape, of, dtype, how):
    x = (3 * torch.randn(shape)).to(of)
    x[0, -1] = 2000  # in a long row, beyond the first block
    same(quantize_fp8(x, dtype, **how), quantize_fp8_torch(x, dtype, **how))


def test_the_largest_number_becomes_the_largest_of_the_format():
    q, scale = quantize_fp8(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.1, 0.0]]))
    assert q.float().abs().amax(1).tolist() == [448, 448]
    assert torch.equal(scale, torch.tensor([2.0, 0.1]) / 448)


def test_beyond_a_given_scale_it_saturates():
    x = torch.tensor([[1e6, -1e6, torch.inf, -torch.inf, 1.0]])
    for dtype, largest in ((E4M3, 448), (E5M2, 57344)):
        q, _ = quantize_fp8(x, dtype, per_row=False, scale=torch.ones(1))
        assert q.float().tolist() == [[largest, -largest, largest, -largest, 1]]


def test_rounds_to_nearest_even():
    """e4m3 has steps of 1 from 8 to 16: halves go to the even neighbour, 15.6 carries into the exponent."""
    x = torch.tensor([[8.5, 9.5, 15.5, 15.6, 0.0]])
    assert quantize_fp8(x, per_row=False, scale=torch.ones(1))[0].float().tolist() == [[8, 10, 16, 16, 0]]


def test_rows_of_zeros_nan_and_infinity():
    x = torch.ones(4, 20)
    x[0], x[1, 3], x[2, 3] = 0, torch.nan, torch.inf
    q, scale = quantize_fp8(x)
    q = q.float()
    assert scale.tolist()[0] == torch.finfo(torch.float32).tiny and (q[0] == 0).all()
    assert q[1].isnan().sum() == 1 and q[1, 3].isnan() and q[1, 0] == 448  # its neighbours do not notice
    assert q[2, 3].isnan() and q[2, 0] == 0 and scale[2].isinf()
    assert (q[3] == 448).all()


@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_in_nothing_out(shape, per_row):
    q, scale = quantize_fp8(torch.zeros(shape), per_row=per_row)
    assert q.shape == shape and scale.shape == ((shape[0],) if per_row else (1,))


@pytest.mark.parametrize(
    "a_format, b_format, out_dtype", [(E4M3, E4M3, torch.float32), (E5M2, E4M3, torch.float16), (E4M3, E5M2, torch.bfloat16)]
)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 70, 1030), (17, 33, 100), (70, 130, 40)])
def test_gemm_equals_torch(m, n, k, a_format, b_format, out_dtype):
    a, a_scale = quantize_fp8(torch.randn(m, k), a_format)
    b, b_scale = quantize_fp8(torch.randn(n, k), b_format, per_row=m > 1)
    out = fp8_gemm(a, b, a_scale, b_scale, out_dtype)
    step = torch.finfo(out_dtype).eps
    expected = fp8_gemm_torch(a, b, a_scale, b_scale, out_dtype)
    torch.testing.assert_close(out, expected, rtol=step, atol=1e-4 if out_dtype == torch.float32 else 10 * step)


def test_gemm_is_close_to_the_unquantised_product():
    """e4m3 keeps four significant bits: each product is off by at most 1/8, their sum by far less."""
    x, w = torch.randn(8, 512), torch.randn(40, 512)
    (a, a_scale), (b, b_scale) = quantize_fp8(x), quantize_fp8(w)
    error = fp8_gemm(a, b, a_scale, b_scale, torch.float32) - x @ w.T
    assert error.square().mean().sqrt() < 0.06 * (x @ w.T).square().mean().sqrt()


@pytest.mark.parametrize("m, n, k", [(0, 4, 8), (4, 0, 8)])
def test_gemm_of_nothing(m, n, k):
    a, b = torch.zeros(m, k).to(E4M3), torch.zeros(n, k).to(E4M3)
    assert fp8_gemm(a, b, torch.ones(m), torch.ones(n)).shape == (m, n)


@pytest.mark.parametrize(
    "shape, how", [((3, 100), {}), ((2, LONG), {}), ((3, 100), {"per_row": False}), ((2, LONG), {"per_row": False})]
)
def test_quantising_bytes(shape, how):
    x = torch.randn(shape).bfloat16()
    with trace(x=x) as counted:
        quantize_fp8(x, **how)
    assert counted.report().total.bytes == quantize_fp8_bytes(*shape, x.dtype, **how)


def test_a_row_that_fits_is_read_once():
    x = torch.randn(2, 100).bfloat16()
    with trace(x=x) as counted:
        quantize_fp8(x)
    assert counted.report()["x"].load_bytes == x.numel() * 2


@pytest.mark.parametrize("m, n, k", [(20, 70, 64), (100, 140, 64), (2, 70, 1024)])
def test_gemm_bytes(m, n, k):
    a, a_scale = quantize_fp8(torch.randn(m, k))
    b, b_scale = quantize_fp8(torch.randn(n, k))
    assert fp8_tile(2, 70, 1024).splits == 2
    with trace(a=a, b=b) as counted:
        fp8_gemm(a, b, a_scale, b_scale)
    assert counted.report().total.bytes == fp8_gemm_bytes(m, n, k)


def test_rows_beyond_two_to_the_31_elements():
    """The third row begins at 2³¹, too much for 32 bits; its stride, 2³⁰, arrives in 32. Only touched pages take memory."""
    x = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 16), (2**30, 1))
    x.copy_(torch.randn(3, 16))
    same(quantize_fp8(x), quantize_fp8_torch(x.contiguous()))
    a = torch.empty(2**31 + 64, dtype=torch.uint8).view(E4M3).as_strided((3, 16), (2**30, 1))
    a.view(torch.uint8).copy_(quantize_fp8(x)[0].view(torch.uint8))
    ones = torch.ones(3)
    torch.testing.assert_close(fp8_gemm(a, a, ones, ones), fp8_gemm_torch(a.contiguous(), a.contiguous(), ones, ones))


def refusals():
    x = torch.ones(2, 16)
    q, one = x.to(E4M3), torch.ones(1)
    yield quantize_fp8, (x.int(),), TypeError, "x is int32"
    yield quantize_fp8, (x[0],), ValueError, "x has shape"
    yield quantize_fp8, (x, torch.int8), TypeError, "dtype is torch.int8"
    yield quantize_fp8, (x, E4M3, True, one), ValueError, "per_row=False"
    yield quantize_fp8, (x, E4M3, False, one.half()), TypeError, "scale is float16"
    yield quantize_fp8, (torch.ones(16, 2).T,), ValueError, "stride 2 in its last dimension"
    yield fp8_gemm, (q, x, one, one), TypeError, "b is float32"
    yield fp8_gemm, (q, q[:, :8], one, one), ValueError, r"b has shape \[2, 8\]; \[2, 16\]"
    yield fp8_gemm, (q, q, torch.ones(3), one), ValueError, r"a_scale has shape \[3\]; \[2\] or \[1\]"
    yield fp8_gemm, (q, q, one, one.half()), TypeError, "b_scale is float16"
    yield fp8_gemm, (q, q, one, one, E4M3), TypeError, "out_dtype"


@pytest.mark.parametrize("function, arguments, error, message", list(refusals()))
def test_refuses(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(*arguments)


@pytest.mark.parametrize(
    "capability, has_it", [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True), ((12, 0), True)]
)
def test_a_gpu_without_e4m3_is_told(monkeypatch, capability, has_it):
    """Not by the compiler: Triton knows e4m3 from 8.9 on, e5m2 everywhere."""
    monkeypatch.setattr(fp8_quantize, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    x = torch.randn(2, 16)
    q, scale = quantize_fp8(x, E5M2)
    assert q.dtype == E5M2
    if has_it:
        assert quantize_fp8(x)[0].dtype == E4M3
        fp8_gemm(q, q, scale, scale)
        return
    with pytest.raises(ValueError, match=r"compute capability 8\.9 is needed\): pass dtype=torch\.float8_e5m2"):
        quantize_fp8(x)
    with pytest.raises(ValueError, match=r"compute capability 8\.9 is needed\): use w8a16"):
        fp8_gemm(q, q, scale, scale)
