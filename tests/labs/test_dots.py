"""What a kernel asked tl.dot for, seen in the interpreter."""

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.runtime import INTERPRETED, tl, triton

from labs.kit.dots import Dot, assert_dots, dots

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="products are seen in Triton's interpreter: set TRITON_INTERPRET=1")


@triton.jit
def product(a_ptr, b_ptr, out_ptr, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    row, column = tl.arange(0, 16), tl.arange(0, 32)
    a = tl.load(a_ptr + row[:, None] * 16 + row[None, :])
    b = tl.load(b_ptr + row[:, None] * 32 + column[None, :])
    if WIDEN:
        b = b.to(tl.float32)
        a = a.to(tl.float32)
    tl.store(out_ptr + row[:, None] * 32 + column[None, :], tl.dot(a, b, input_precision=PRECISION))


def multiply(dtype=torch.float32, precision="tf32x3", widen=False):
    a, b, out = torch.randn(16, 16).to(dtype), torch.randn(16, 32).to(dtype), torch.empty(16, 32)
    product[(1,)](a, b, out, PRECISION=precision, WIDEN=widen)
    torch.testing.assert_close(out, a.float() @ b.float(), atol=1e-4, rtol=1e-4)


def test_notes_each_product_and_stops_afterwards():
    with dots() as products:
        multiply()
        multiply(torch.bfloat16, "ieee")
    multiply()
    assert products == {Dot("fp32", "fp32", "tf32x3", (16, 16, 32)): 1, Dot("bf16", "bf16", "ieee", (16, 16, 32)): 1}


def test_what_is_wrong_is_told():
    assert_dots(multiply, torch.float32, 16, 32, "here")
    with pytest.raises(AssertionError, match="10 bits"):
        assert_dots(lambda: multiply(precision="tf32"), torch.float32, 16, 32, "here")
    with pytest.raises(AssertionError, match="as they were loaded"):
        assert_dots(lambda: multiply(torch.bfloat16, widen=True), torch.bfloat16, 16, 32, "here")
    with pytest.raises(AssertionError, match="takes its tile from there"):
        assert_dots(multiply, torch.float32, 16, 64, "here")
    with pytest.raises(AssertionError, match="no product"):
        assert_dots(lambda: None, torch.float32, 16, 32, "here")
