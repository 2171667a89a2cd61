"""A launcher refuses what its kernel would read wrongly, in one line that says why and what to do."""

import pytest
import torch
from minillm.kernels import checks


def test_what_fits_passes():
    x, y = torch.zeros(2, 3), torch.zeros(3)
    checks.check_tensors(x=x, y=y)
    checks.check_tensors((torch.int64,), index=torch.zeros(3, dtype=torch.int64))
    checks.check_same_dtype(x=x, y=y)
    checks.check_shape((None, 3), x=x)
    checks.check_last_dim_contiguous(x=x, one=x[:, :1], empty=x[:, :0])
    checks.refuse_negative_strides(x=x)
    checks.refuse_overlap(x=x, one=y[None])
    checks.fits_int32(x=x)
    checks.rows_fit_int32(2, x=x)
    checks.require(True, "never shown")


@pytest.mark.parametrize(
    "check, error, message",
    [
        (lambda x: checks.require(False, "said as it is"), ValueError, "said as it is"),
        (lambda x: checks.check_tensors(x=[1.0]), TypeError, "x must be a torch.Tensor, not list"),
        (lambda x: checks.check_tensors(x=x.double()), TypeError, "float64.*takes bfloat16, float16, float32.*x.to"),
        (lambda x: checks.check_tensors(x=x, y=x.to("meta")), ValueError, "y is on meta, x on cpu"),
        (lambda x: checks.check_same_dtype(x=x, y=x.half()), TypeError, "y is float16, x float32"),
        (lambda x: checks.check_shape((2, 4), x=x), ValueError, r"x has shape \[2, 3\]; \[2, 4\]"),
        (lambda x: checks.check_shape((None,), x=x), ValueError, r"x has shape \[2, 3\]; \[any\]"),
        (lambda x: checks.check_last_dim_contiguous(x=x.T), ValueError, "stride 3 in its last dimension"),
        (lambda x: checks.refuse_negative_strides(x=_Backwards()), ValueError, r"negative stride \(-1,\)"),
        (lambda x: checks.refuse_negative_strides(x=x.to(torch.complex64).conj().imag), ValueError, "lazily negated"),
        (lambda x: checks.refuse_overlap(x=x[:1].expand(2, 3)), ValueError, "expanded"),
        (lambda x: checks.fits_int32(x=torch.empty(2, 2**31, device="meta")), ValueError, "4294967296 elements.*2\\*\\*31"),
        (lambda x: checks.rows_fit_int32(2, 1, x=torch.empty(1, 2, 2**30, device="meta")), ValueError, "1073741824.* 2 of them"),
    ],
)
def test_what_does_not_fit_is_refused(check, error, message):
    with pytest.raises(error, match=message) as raised:
        check(torch.zeros(2, 3))
    assert "\n" not in str(raised.value)


class _Backwards:
    def stride(self):
        return (-1,)


def test_a_view_spans_more_than_it_holds():
    assert checks.last_offset(torch.zeros(4, 8)[:, :2]) == 3 * 8 + 1
    assert checks.last_offset(torch.zeros(0, 8)) == 7


def test_natively_a_tensor_must_be_on_the_current_gpu(monkeypatch):
    monkeypatch.setattr(checks, "INTERPRETED", False)
    with pytest.raises(ValueError, match=r"x is on cpu.*TRITON_INTERPRET=1"):
        checks.check_tensors(x=torch.zeros(2))
