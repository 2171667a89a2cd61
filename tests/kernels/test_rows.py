"""How rows are seen and how much of one a program holds."""

import pytest
import torch
from minillm.kernels.rows import BLOCK_BYTES, as_rows, next_power_of_2, row_block


def test_rows_are_views():
    x = torch.zeros(2, 3, 8)
    rows = as_rows(x=x)
    assert rows.shape == (6, 8) and rows.data_ptr() == x.data_ptr()
    assert as_rows(x=torch.zeros(5)).shape == (1, 5)
    assert as_rows(x=torch.zeros(2, 3, 0)).shape == (0, 0)
    wide = torch.zeros(4, 3, 16)[..., :8]
    assert as_rows(x=wide).stride() == (16, 1)


def test_what_needs_a_copy_is_refused():
    with pytest.raises(ValueError, match=r"x's rows do not lie evenly.*x.contiguous\(\)"):
        as_rows(x=torch.zeros(4, 3, 8)[:, :2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_of_up_to_64_kib_is_held_whole(dtype):
    longest = BLOCK_BYTES // dtype.itemsize
    assert row_block(longest, dtype) == (longest, 32)
    block, num_warps = row_block(longest + 1, dtype)
    assert block < longest and 1 <= num_warps <= 32
    assert row_block(100, dtype) == (128, 1)


def test_powers_of_two():
    assert [next_power_of_2(n) for n in (0, 1, 16, 17, 64, 65)] == [16, 16, 16, 32, 64, 128]
