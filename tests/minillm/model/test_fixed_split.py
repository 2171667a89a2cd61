"""A product whose rows are the same bits in any company."""

import numpy as np
import pytest
import torch

from minillm.model.fixed_split import fixed_split_linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns, split", [(576, 64), (37, 8), (37, 100), (1, 1), (5, 1)])
def test_each_row_is_what_it_is_alone(dtype, columns, split):
    x, weight = torch.randn(19, columns).to(dtype), torch.randn(61, columns).to(dtype)
    alone = torch.cat([fixed_split_linear(row[None], weight, split) for row in x])
    for count in (0, 1, 2, 7, 19):
        assert torch.equal(fixed_split_linear(x[:count], weight, split), alone[:count])
    assert torch.equal(fixed_split_linear(x.flip(0), weight, split), alone.flip(0))
    assert alone.dtype == dtype
    exact = x.double() @ weight.double().t()
    torch.testing.assert_close(alone.double(), exact, atol=1e-4, rtol=1e-5 if dtype == torch.float32 else 2**-8)


@pytest.mark.parametrize("columns, split", [(1, 1), (7, 3), (12, 4), (12, 100), (9, 1)])
def test_the_order_is_the_one_it_states(columns, split):
    x, weight = torch.randn(3, columns) * 1e3, torch.randn(4, columns)
    got = fixed_split_linear(x, weight, split)
    for t in range(3):
        for n in range(4):
            total = np.float32(0)
            for start in range(0, columns, split):
                part = np.float32(0)
                for k in range(start, min(start + split, columns)):
                    part += np.float32(x[t, k].item()) * np.float32(weight[n, k].item())
                total += part
            assert got[t, n].item() == total.item()


def test_the_split_is_part_of_the_result():
    big = float(2**24)  # in float32, big + 1 == big, and big + 2 is not
    x = torch.tensor([[big, 0, 1, 1, -big, 0]])
    assert [fixed_split_linear(x, torch.ones(1, 6), split).item() for split in (1, 2)] == [0, 2]
