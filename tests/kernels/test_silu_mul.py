"""SiLU times up against torch, from two tensors and from the halves of one."""

import pytest
import torch
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.silu_mul import silu_mul, silu_mul_bytes, silu_mul_torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (2, 3, 16), (2, 2500), (9,), (0, 8), (3, 0)])
def test_equals_torch(shape, dtype):
    gate, up = (5 * torch.randn(shape)).to(dtype), torch.randn(shape).to(dtype)
    step = torch.finfo(dtype).eps
    expected = silu_mul_torch(gate, up)
    for actual in (silu_mul(gate, up), silu_mul(torch.cat([gate, up], dim=-1))):
        torch.testing.assert_close(actual, expected, rtol=2 * step, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounds_where_torch_rounds(dtype):
    """SiLU before it meets up: else many results would be a step off."""
    gate, up = torch.randn(2, 4, 500).to(dtype)
    assert (silu_mul(gate, up) == silu_mul_torch(gate, up)).float().mean() > 0.995


def test_far_out_values():
    gate = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4]])
    y = silu_mul(gate, torch.ones_like(gate))
    torch.testing.assert_close(y, torch.tensor([[0.0, 0.0, 0.0, 100.0, 1e4]]))


def test_in_place():
    fused = torch.randn(3, 80)
    expected = silu_mul_torch(fused)
    half = fused[:, :40]
    assert silu_mul(fused, out=half) is half
    torch.testing.assert_close(fused[:, :40], expected)


def test_bytes():
    fused = torch.randn(3, 2000).bfloat16()
    out = torch.empty(3, 1000).bfloat16()
    with trace(fused=fused, out=out) as traffic:
        silu_mul(fused, out=out)
    t = traffic.report()
    assert (t["fused"].load_bytes, t["fused"].store_bytes) == (fused.numel() * 2, 0)
    assert (t["out"].load_bytes, t["out"].store_bytes) == (0, out.numel() * 2)
    assert silu_mul_bytes(3, 1000, torch.bfloat16) == t.load_bytes + t.store_bytes


@pytest.mark.parametrize(
    "gate, up, out, error, message",
    [
        (torch.zeros(2, 5), None, None, ValueError, "5, must be even"),
        (torch.zeros(2, 4), torch.zeros(2, 3), None, ValueError, "up has shape"),
        (torch.zeros(2, 4), torch.zeros(2, 4).half(), None, TypeError, "up is float16"),
        (torch.zeros(4, 2).T, torch.zeros(2, 4), None, ValueError, "gate has stride 2"),
        (torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(4).expand(2, 4), ValueError, "expanded"),
        ([1.0], None, None, TypeError, "gate must be a torch.Tensor, not list"),
        (torch.zeros(()), None, None, ValueError, "scalar"),
    ],
)
def test_refuses(gate, up, out, error, message):
    with pytest.raises(error, match=message):
        silu_mul(gate, up, out)


def test_refuses_rows_of_more_blocks_than_a_launch_has():
    row = torch.empty(1, 1024 * 65535 + 1, dtype=torch.float16)
    with pytest.raises(ValueError, match="67107841 elements"):
        silu_mul(row, row, out=row)


def test_rows_beyond_two_to_the_31_elements():
    gate = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 32), (2**30, 1))
    gate.copy_(torch.randn(3, 32))
    torch.testing.assert_close(silu_mul(gate), silu_mul_torch(gate), rtol=2e-3, atol=1e-6)
