import numpy as np
import pytest
import torch
from gguf.quants import MXFP4, NVFP4

from minillm.quant.rtn import quantize_per_channel
from shared.block_formats import (
    int_dequantize,
    int_quantize,
    mxfp4_dequantize,
    mxfp4_quantize,
    nvfp4_dequantize,
    nvfp4_quantize,
)

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
DOUBLED = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]  # gguf's table of the same sixteen numbers


def sample(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape))).astype(np.float32)


def test_int8_by_row_as_minillm_does():
    x = sample(7, 50)
    q, scale = int_quantize(x, 8, 50)
    theirs, their_scale = quantize_per_channel(torch.from_numpy(x))
    np.testing.assert_allclose(scale[:, 0], their_scale.numpy(), rtol=1e-6)
    assert (np.abs(q - theirs.numpy()) <= 1).all() and (q != theirs.numpy()).mean() < 0.01


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("group", [None, 32, 16, 1])
def test_integers_are_off_by_half_a_scale_at_most(bits, group):
    x = sample(3, 5, 32)
    q, scale = int_quantize(x, bits, group)
    limit = 2 ** (bits - 1) - 1
    assert q.dtype == np.int8 and np.abs(q).max() == limit
    assert scale.shape == ((1,) if group is None else (3, 5, 32 // group))
    per_number = scale if group is None else np.repeat(scale, group, axis=-1)
    assert (np.abs(int_dequantize(q, scale) - x) <= 0.5001 * per_number).all()


def test_integer_ties_zeros_and_the_smallest():
    q, scale = int_quantize(np.float32([127, 0.5, 1.5, -2.5]))
    assert q.tolist() == [127, 0, 2, -2] and scale.tolist() == [1]
    q, scale = int_quantize(np.zeros((2, 3), np.float32), 4, 3)
    assert not q.any() and (scale == 1).all()
    tiny = np.float32([np.finfo(np.float32).smallest_subnormal])
    assert np.isfinite(int_dequantize(*int_quantize(tiny))).all()
    assert int_quantize(np.zeros((0, 4), np.float32), 8, 2)[1].shape == (0, 2)


def test_integers_refuse():
    for x, bits, group in (([1, 2, 3], 8, 2), ([1, 2], 9, None), ([1, 2], 1, None), ([1, np.nan], 8, None), ([1, np.inf], 8, 1)):
        with pytest.raises(ValueError):
            int_quantize(np.float32(x), bits, group)


def test_mxfp4_as_llama_cpp():
    x = sample(40, 96)
    packed, scales = mxfp4_quantize(x)
    theirs = MXFP4.quantize_blocks(x.reshape(-1, 32))
    assert np.array_equal(scales.ravel(), theirs[:, 0])
    np.testing.assert_array_equal(mxfp4_dequantize(packed, scales).reshape(-1, 32), MXFP4.dequantize_blocks(theirs))


def test_mxfp4_elements_as_ml_dtypes():
    """Ties included: eighths of the scale, each many times."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = (np.random.default_rng(3).integers(-64, 65, (50, 32)) / 8).astype(np.float32)
    packed, scales = mxfp4_quantize(x)
    units = x / np.ldexp(np.float32(1), scales.astype(int) - 127)
    expected = units.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(np.stack([packed & 15, packed >> 4], -1).reshape(x.shape), expected)
    powers = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(powers, np.ldexp(1.0, scales.astype(int) - 127))


def test_mxfp4_keeps_what_it_can_say():
    scales = 2.0 ** np.random.default_rng(1).integers(-120, 120, (6, 1))
    x = (np.tile([*GRID, *-GRID], 2) * scales).astype(np.float32)
    packed, stored = mxfp4_quantize(x)
    assert np.array_equal(mxfp4_dequantize(packed, stored), x)
    assert np.array_equal(stored[:, 0].astype(int) - 127, np.log2(scales[:, 0]))


def test_mxfp4_marks_a_broken_block():
    x = np.ones((1, 96), np.float32)
    x[0, 40] = np.nan
    packed, scales = mxfp4_quantize(x)
    back = mxfp4_dequantize(packed, scales)
    assert scales.tolist() == [[125, 255, 125]] and not packed[0, 16:32].any()
    assert np.isnan(back[0, 32:64]).all() and (back[0, :32] == 1).all() and (back[0, 64:] == 1).all()


@pytest.mark.parametrize("quantize, size", [(mxfp4_quantize, 32), (nvfp4_quantize, 16)])
def test_blocks_must_divide(quantize, size):
    for shape in ((size - 1,), (size, 1), ()):
        with pytest.raises(ValueError, match="pad"):
            quantize(np.ones(shape, np.float32))


def test_nvfp4_read_by_llama_cpp():
    """gguf has no NVFP4 quantizer, but reads it: our codes in its order (halves of a block, four blocks to a superblock)."""
    x = sample(6, 128)
    packed, scales, tensor_scale = nvfp4_quantize(x)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(-1, 4, 2, 8)
    qs = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 32)
    theirs = NVFP4.dequantize_blocks(np.concatenate([scales.reshape(-1, 4), qs], axis=-1).astype(np.uint8))
    ours = nvfp4_dequantize(packed, scales, tensor_scale)
    np.testing.assert_allclose(ours.reshape(-1, 64), theirs * tensor_scale, rtol=1e-6)


def test_nvfp4_takes_the_nearest_at_its_scale():
    x = sample(9, 64, seed=2)
    packed, scales, tensor_scale = nvfp4_quantize(x)
    assert np.isclose(tensor_scale, np.abs(x).max() / 2688, rtol=1e-6) and scales.max() == 0x7E
    scale = torch.from_numpy(scales).view(torch.float8_e4m3fn).float().numpy().repeat(16, axis=-1) * tensor_scale
    near = np.abs(np.abs(x)[..., None] - GRID * scale[..., None]).min(axis=-1)
    np.testing.assert_allclose(np.abs(nvfp4_dequantize(packed, scales, tensor_scale) - x), near, atol=1e-4)


def test_nvfp4_zeros_and_nan():
    x = np.zeros((2, 32), np.float32)
    x[0, 0] = 1
    back = nvfp4_dequantize(*nvfp4_quantize(x))
    assert np.array_equal(back, x)
    packed, scales, tensor_scale = nvfp4_quantize(np.zeros((1, 16), np.float32))
    assert tensor_scale == 1 and not scales.any() and not packed.any()
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            nvfp4_quantize(np.full((1, 16), bad, np.float32))


def test_what_each_costs():
    x = sample(64, 4096, seed=4)
    packed, scales = mxfp4_quantize(x)
    assert 8 * (packed.nbytes + scales.nbytes) / x.size == 4.25
    packed, scales, _ = nvfp4_quantize(x)
    assert 8 * (packed.nbytes + scales.nbytes) / x.size == 4.5
