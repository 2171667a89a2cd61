"""One launch for all groups against a loop of products: empty groups, rows of nobody, adapters added to a base."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from minillm.kernels.grouped_gemm import grouped_gemm, grouped_gemm_blocks, grouped_gemm_bytes, grouped_gemm_torch
from minillm.kernels.instruments.traffic import trace

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(group_rows, n, k, dtype=torch.float32, before=0, after=0):
    rows = before + sum(group_rows) + after
    offsets = before + torch.tensor([0, *group_rows]).cumsum(0)
    return torch.randn(rows, k).to(dtype), torch.randn(len(group_rows), n, k).to(dtype), offsets


def close(actual, expected):
    step = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-4 if expected.dtype == torch.float32 else 10 * step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "group_rows, n, k",
    [([1], 1, 1), ([5, 0, 17, 1], 70, 100), ([0, 0, 40], 16, 64), ([3, 0], 64, 33), ([16, 32], 128, 64), ([140, 130], 130, 64)],
)
def test_equals_torch(group_rows, n, k, dtype):
    arguments = inputs(group_rows, n, k, dtype)
    close(grouped_gemm(*arguments), grouped_gemm_torch(*arguments))


@given(group_rows=st.lists(st.integers(0, 20), min_size=1, max_size=6), n=st.integers(1, 70), k=st.integers(1, 70))
def test_any_groups(group_rows, n, k):
    arguments = inputs(group_rows, n, k)
    close(grouped_gemm(*arguments), grouped_gemm_torch(*arguments))


@pytest.mark.parametrize("group_rows", [[], [0], [0, 0, 0]])
def test_no_rows(group_rows):
    assert grouped_gemm(*inputs(group_rows, 8, 16)).shape == (0, 8)


def test_rows_of_nobody():
    """They are 0 in a new tensor, and left alone in one that was given."""
    x, w, offsets = inputs([4, 0, 6], 20, 32, before=3, after=5)
    y = grouped_gemm(x, w, offsets.int())
    close(y, grouped_gemm_torch(x, w, offsets))
    assert (y[:3] == 0).all() and (y[13:] == 0).all()
    out = torch.full((18, 20), 7.0)
    assert grouped_gemm(x, w, offsets, out=out) is out
    assert (out[:3] == 7).all() and (out[13:] == 7).all()
    close(out[3:13], y[3:13])
    none = torch.tensor([2, 2, 2, 2])
    assert (grouped_gemm(x, w, none) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_adapters_add_to_the_base(dtype):
    """Two LoRA adapters of rank 8 on the tokens of one batch, the last of which has none."""
    x, a, offsets = inputs([5, 9], 8, 64, dtype, after=3)
    b = torch.randn(2, 48, 8).to(dtype)
    base = torch.randn(17, 48).to(dtype)
    expected = grouped_gemm_torch(grouped_gemm_torch(x, a, offsets), b, offsets, out=base.clone(), add=True)
    out = base.clone()
    close(grouped_gemm(grouped_gemm(x, a, offsets), b, offsets, out=out, add=True), expected)
    assert torch.equal(out[14:], base[14:])


def test_a_group_does_not_see_its_neighbours():
    x, w, offsets = inputs([5, 7], 20, 32)
    x[5:] = torch.nan
    y = grouped_gemm(x, w, offsets)
    close(y[:5], x[:5] @ w[0].T)


@pytest.mark.parametrize("group_rows", [[5, 0, 17, 1], [40, 40]])
def test_bytes(group_rows):
    n, k = 100, 64
    x, w, offsets = inputs(group_rows, n, k, torch.bfloat16)
    out = torch.empty(sum(group_rows), n).bfloat16()
    blocks = grouped_gemm_blocks(len(x), len(group_rows))
    with trace(x=x, w=w, out=out, offsets=offsets) as traffic:
        grouped_gemm(x, w, offsets, out=out)
    t = traffic.report()
    assert sum(t[name].bytes for name in ("x", "w", "out")) == grouped_gemm_bytes(group_rows, n, k, torch.bfloat16, blocks)
    assert t["out"].store_bytes == out.numel() * 2
    with_rows = sum(rows > 0 for rows in group_rows)
    assert t["w"].unique_load_bytes == with_rows * n * k * 2  # an expert without rows is not read


def test_tiles_suit_the_groups():
    assert grouped_gemm_blocks(8, 128)["BLOCK_M"] == 16
    assert grouped_gemm_blocks(8192, 8)["BLOCK_M"] == 128
    assert grouped_gemm_blocks(0, 0)["BLOCK_M"] == 16


def test_refuses():
    x, w, offsets = inputs([2, 2], 6, 8)
    for call, error, message in [
        (lambda: grouped_gemm(x[0], w, offsets), ValueError, "x has shape"),
        (lambda: grouped_gemm(x, w[0], offsets), ValueError, "w has shape"),
        (lambda: grouped_gemm(x, w, offsets[:2]), ValueError, "offsets has shape"),
        (lambda: grouped_gemm(x, w, offsets.float()), TypeError, "offsets is float32"),
        (lambda: grouped_gemm(x, w, offsets.to("meta")), ValueError, "offsets is on meta"),
        (lambda: grouped_gemm(x, w.half(), offsets), TypeError, "w is float16"),
        (lambda: grouped_gemm(x, w, offsets, add=True), ValueError, "add=True adds to out"),
        (lambda: grouped_gemm(x, w.transpose(1, 2).contiguous().transpose(1, 2), offsets), ValueError, "w has stride 6"),
        (lambda: grouped_gemm(x, w, offsets, out=torch.zeros(4, 5)), ValueError, "out has shape"),
        (lambda: grouped_gemm(x[:, :0], torch.zeros(5000, 1, 1)[:, :, :0], torch.zeros(5001).int()), ValueError, "5000 groups"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_groups_beyond_two_to_the_31_elements():
    w = torch.empty(2**31 + 512, dtype=torch.float16).as_strided((3, 4, 16), (2**30, 16, 1))
    w.copy_(torch.randn(3, 4, 16))
    x, offsets = torch.randn(5, 16).half(), torch.tensor([0, 2, 2, 5])
    close(grouped_gemm(x, w, offsets), grouped_gemm_torch(x, w, offsets))
