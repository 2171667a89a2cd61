"""Rotary positions, bit for bit as torch computes them, in one launch for q and k."""

import pytest
import torch
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.rope import rope, rope_bytes, rope_torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(tokens, num_q_heads, num_k_heads, head_dim, dtype):
    q, k = torch.randn(tokens, num_q_heads, head_dim).to(dtype), torch.randn(tokens, num_k_heads, head_dim).to(dtype)
    angles = 100 * torch.randn(tokens, head_dim // 2)
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 2), (3, 9, 3, 64), (2, 32, 8, 128), (2, 5, 5, 80), (1, 17, 2, 6), (2, 3, 0, 16), (0, 2, 1, 16)]
)
def test_equals_torch_bit_for_bit(sizes, dtype):
    arguments = inputs(*sizes, dtype)
    for actual, expected in zip(rope(*arguments), rope_torch(*arguments), strict=True):
        assert actual.is_contiguous()
        assert torch.equal(actual, expected)


def test_in_place_on_slices_of_a_fused_projection():
    q, k, cos, sin = inputs(3, 4, 2, 32, torch.bfloat16)
    v = torch.randn(3, 2, 32).bfloat16()
    fused = torch.cat([q, k, v], dim=1)
    new_q, new_k = rope(fused[:, :4], fused[:, 4:6], cos, sin, inplace=True)
    assert (new_q.data_ptr(), new_k.data_ptr()) == (fused.data_ptr(), fused[:, 4:].data_ptr())
    assert torch.equal(fused, torch.cat([*rope_torch(q, k, cos, sin), v], dim=1))


def test_lengths_are_kept_and_position_zero_changes_nothing():
    q, k, cos, sin = inputs(2, 2, 1, 16, torch.float32)
    torch.testing.assert_close(rope(q, k, cos, sin)[0].norm(dim=-1), q.norm(dim=-1))
    assert torch.equal(rope(q, k, torch.ones(2, 8), torch.zeros(2, 8))[0], q)


def test_bytes():
    q, k, cos, sin = inputs(3, 9, 3, 64, torch.bfloat16)
    with trace(q=q, k=k, cos=cos, sin=sin) as traffic:
        rope(q, k, cos, sin, inplace=True)
    t = traffic.report()
    for name, tensor in (("q", q), ("k", k)):
        assert t[name].load_bytes == t[name].store_bytes == tensor.numel() * 2
    unique = sum(t[name].unique_load_bytes + t[name].unique_store_bytes for name in ("q", "k", "cos", "sin"))
    assert unique == rope_bytes(3, 9, 3, 64, torch.bfloat16)


def test_refuses():
    q, k, cos, sin = inputs(2, 4, 2, 16, torch.float32)
    for arguments, error, message in [
        ((q[0], k, cos, sin), ValueError, "q has shape"),
        ((q[..., :15], k, cos, sin), ValueError, "head_dim is 15"),
        ((q, k[:1], cos, sin), ValueError, "k has shape"),
        ((q, k, cos[:, :4], sin), ValueError, "cos has shape"),
        ((q, k, cos.bfloat16(), sin), TypeError, "cos is bfloat16, q float32"),
        ((q, k, cos, sin.to("meta")), ValueError, "sin is on meta"),
        ((q.transpose(1, 2).contiguous().transpose(1, 2), k, cos, sin), ValueError, "q has stride 4"),
        ((q, k[:, :1].expand(2, 2, 16), cos, sin, True), ValueError, "k is written"),
    ]:
        with pytest.raises(error, match=message):
            rope(*arguments)


def test_tokens_beyond_two_to_the_31_elements():
    _, k, cos, sin = inputs(3, 2, 1, 16, torch.float16)
    q = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 2, 16), (2**30, 16, 1))
    q.copy_(torch.randn(3, 2, 16))
    assert torch.equal(rope(q, k, cos, sin)[0], rope_torch(q, k, cos, sin)[0])
