"""Tensors beyond 2**31 elements that take no memory, and what an offset that wraps around meets there."""

import torch

from labs.kit.far_apart import far_apart


def test_holds_what_is_written_beyond_two_to_the_31():
    x, values = far_apart(386, 16), torch.randn(386, 16).half()
    x.copy_(values)
    assert x.stride(0) * 384 > 2**31
    assert torch.equal(x, values)


def test_an_offset_that_wraps_around_finds_zeros():
    x = far_apart(386, 16)
    x.fill_(7)
    wrapped = x.stride(0) * 385 - 2**32
    assert wrapped < 0
    assert (torch.as_strided(x, (16,), (1,), x.storage_offset() + wrapped) == 0).all()
