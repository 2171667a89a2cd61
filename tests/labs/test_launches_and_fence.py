"""What checks of kernels lean on: launches() and fenced()."""

import pytest
import torch

from labs.kit.subject import run_source

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.instruments.traffic import trace

from labs.kit.fence import fenced
from labs.kit.launches import launches

SOURCE = """
from minillm.kernels.runtime import tl, triton


@triton.jit
def double_kernel(x_ptr, out_ptr, length, one, scale, MASK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < length) | (not MASK)
    x = tl.load(x_ptr + i, mask=i < length)
    tl.store(out_ptr + i, x * scale * one, mask=inside)


@triton.jit
def greedy_kernel(x_ptr, out_ptr, length, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i), mask=i < length)
"""


@pytest.fixture
def kernels(tmp_path):
    file = tmp_path / "kernels_of_a_learner.py"
    file.write_text(SOURCE)
    return run_source("labs.c5.kernels_of_a_learner", SOURCE, str(file))


def double(kernels, x, out, mask=True):
    kernels.double_kernel[(2,)](x, out, len(x), 1, 2.0, MASK=mask, BLOCK=64, num_warps=2)


def test_a_launch_is_known_by_its_arguments_and_compiles_as_launched(kernels):
    x, out = torch.randn(96).bfloat16(), torch.empty(96).bfloat16()
    with launches() as launched:
        double(kernels, x, out)
    double(kernels, x, out)
    (launch,) = launched
    assert list(launch.arguments) == ["x_ptr", "out_ptr", "length", "one", "scale", "MASK", "BLOCK"]
    assert launch.arguments["x_ptr"] is x and launch.options == {"num_warps": 2}
    found = launch.inspect("sm_89")
    assert (found.name, found.num_warps, found.spill_bytes) == ("double_kernel", 2, 0)


def test_within_its_tensors_the_fence_is_not_noticed(kernels):
    x, out = torch.randn(2, 3, 96)[1, 1:], torch.zeros(2, 200)[:, 50:146]
    with fenced():
        double(kernels, x[1], out[1])
    torch.testing.assert_close(out, torch.stack([torch.zeros(96), 2 * x[1]]))


def fenced_in(function, *args, **options):
    with fenced():
        return function(*args, **options)


def test_a_store_outside_is_told_and_does_not_happen(kernels):
    memory = torch.zeros(128)
    with pytest.raises(AssertionError, match=r"double_kernel stored 28 elements outside.*\n.*tl.store needs the mask"):
        fenced_in(double, kernels, torch.ones(100), memory[:100] + 0, mask=False)
    memory += 7
    with trace() as counted, pytest.raises(AssertionError, match="stored 28 elements"):
        fenced_in(double, kernels, torch.ones(100), memory[:100], mask=False)
    assert memory.sum() == 100 * 2 + 28 * 7
    assert counted.report().total.store_bytes == 100 * 4


def test_a_load_outside_is_told(kernels):
    with pytest.raises(AssertionError, match="greedy_kernel loaded 28 elements"), fenced():
        kernels.greedy_kernel[(1,)](torch.ones(128)[:100], torch.empty(100), 100, BLOCK=128)


def test_what_fails_inside_is_not_hidden_and_the_fence_is_gone_afterwards(kernels):
    memory = torch.full((128,), 7.0)

    def fails():
        double(kernels, torch.ones(100), memory[:100], mask=False)
        raise KeyError

    with pytest.raises(KeyError):
        fenced_in(fails)
    assert (memory[100:] == 7).all()
    double(kernels, torch.ones(100), memory[:100], mask=False)
    assert (memory[100:] != 7).all()


def test_a_kernel_of_unsigned_bytes_can_be_inspected():
    """Triton's name for torch's uint8 is u8."""
    from minillm.kernels.int4_packing import Int4Weight
    from minillm.kernels.w4a16 import w4a16

    scale = torch.ones(2, 16)
    with launches() as launched:
        w4a16(torch.ones(1, 64), Int4Weight(torch.zeros(16, 32, dtype=torch.uint8), scale, scale))
    assert launched[0].inspect("sm_89").registers > 0
