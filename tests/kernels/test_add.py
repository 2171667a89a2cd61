"""Addition against torch: every dtype, lengths that fill no block, and its bytes."""

import pytest
import torch
from minillm.kernels.add import BLOCK, add, add_torch
from minillm.kernels.instruments.traffic import trace

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, BLOCK), (3, 5, 7), (BLOCK + 1,)])
def test_equals_torch(shape, dtype):
    x, y = (torch.randn(shape).to(dtype) for _ in "xy")
    expected = add_torch(x, y)
    torch.testing.assert_close(add(x, y), expected, rtol=0, atol=0)
    assert add(x, y, out=x) is x
    torch.testing.assert_close(x, expected, rtol=0, atol=0)


def test_bytes():
    x, y = (torch.randn(BLOCK + 100).bfloat16() for _ in "xy")
    with trace(x=x, y=y) as traffic:
        add(x, y)
    total = traffic.report().total
    assert (total.load_bytes, total.store_bytes) == (2 * x.numel() * 2, x.numel() * 2)


@pytest.mark.parametrize(
    "x, y, error, message",
    [
        (torch.zeros(2), torch.zeros(3), ValueError, "y has shape"),
        (torch.zeros(2), torch.zeros(2).half(), TypeError, "y is float16"),
        (torch.zeros(2, 3).T, torch.zeros(3, 2), ValueError, "x is not contiguous"),
        (torch.zeros(2).int(), torch.zeros(2).int(), TypeError, "int32"),
    ],
)
def test_refuses(x, y, error, message):
    with pytest.raises(error, match=message):
        add(x, y)
