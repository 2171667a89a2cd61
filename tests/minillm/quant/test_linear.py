"""Quantized layers against the plain product with the matrix they stand for."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from minillm.config import ModelConfig
from minillm.errors import ConfigError
from minillm.model.linear import Linear, Unquantized
from minillm.quant.linear import DEQUANTIZE_ABOVE, Int4Linear, Int8Linear, make_linear_method
from minillm.quant.rtn import dequantize_groups, dequantize_per_channel, quantize_groups, quantize_per_channel

CONFIG = ModelConfig("llama", 300, 128, 256, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=32, max_position_embeddings=32)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
METHODS = {"int8": Int8Linear(), "int4-32": Int4Linear(32), "int4-64": Int4Linear(64), "int4-128": Int4Linear(128)}


def layer_and_weight(method, rows: int, columns: int, dtype, bias: bool) -> tuple[Linear, torch.Tensor]:
    """A layer filled in three pieces, as a fused projection is, and what it was filled with."""
    weight = torch.randn(rows, columns).to(dtype) * 0.05
    layer = Linear(columns, rows, bias, method, {"dtype": dtype})
    sizes = [rows // 2, rows // 4, rows - rows // 2 - rows // 4]
    for place, piece in zip(layer.rows(sizes), weight.split(sizes), strict=True):
        assert place.shape == piece.shape
        place.copy_(piece)
    if bias:
        layer.bias.copy_(torch.randn(rows))
    return layer, weight


def stands_for(method, weight: torch.Tensor) -> torch.Tensor:
    if isinstance(method, Int8Linear):
        return dequantize_per_channel(*quantize_per_channel(weight, weight.dtype))
    return dequantize_groups(*quantize_groups(weight, method.group_size, scale_dtype=weight.dtype))


@pytest.mark.parametrize("tokens", [1, 2, 5, DEQUANTIZE_ABOVE, DEQUANTIZE_ABOVE + 1, 70])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_equals_the_product_with_the_dequantized_matrix(method, dtype, tokens):
    for rows, columns, bias in ((64, 128, False), (300, 256, True)):  # 300 is no multiple of what kernels work in
        layer, weight = layer_and_weight(METHODS[method], rows, columns, dtype, bias)
        x = torch.randn(tokens, columns).to(dtype)
        want = F.linear(x.float(), stands_for(METHODS[method], weight), None if layer.bias is None else layer.bias.float())
        got = layer(x)
        assert got.shape == (tokens, rows) and got.dtype == dtype
        tolerance = 1e-4 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps
        assert (got.float() - want).abs().max() < tolerance * want.abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [7, 16, 40])
def test_int8_of_any_width(dtype, columns):
    """The kernel reads 16 inputs at a time; other widths must not be handed to it."""
    layer, weight = layer_and_weight(Int8Linear(), 5, columns, dtype, bias=False)
    x = torch.randn(3, columns).to(dtype)
    want = F.linear(x.float(), stands_for(Int8Linear(), weight))
    assert (layer(x).float() - want).abs().max() < max(1e-5, 8 * torch.finfo(dtype).eps) * want.abs().max()


def test_the_weight_is_packed_once_all_of_it_is_there():
    layer = Linear(32, 48, False, Int8Linear(), {"dtype": torch.bfloat16})
    first, second = layer.rows([16, 32])
    second.copy_(torch.randn(32, 32))
    assert set(dict(layer.named_parameters())) == {"weight"}
    first.copy_(torch.randn(16, 32))
    assert {name: p.dtype for name, p in layer.named_parameters()} == {"qweight": torch.int8, "scale": torch.bfloat16}
    assert sum(p.nbytes for p in layer.parameters()) == 48 * 32 + 48 * 2


@pytest.mark.parametrize(("group_size", "bits"), [(32, 5.0), (64, 4.5), (128, 4.25)])
def test_bits_a_weight(group_size, bits):
    layer, _ = layer_and_weight(Int4Linear(group_size), 64, 256, torch.bfloat16, bias=False)
    assert sum(p.nbytes for p in layer.parameters()) * 8 / (64 * 256) == bits


def test_what_is_chosen_and_what_is_refused():
    assert isinstance(make_linear_method(None, 32, CONFIG, "cuda"), Unquantized)
    assert isinstance(make_linear_method("int8", 32, CONFIG), Int8Linear)
    assert make_linear_method("int4", 64, dataclasses.replace(CONFIG, intermediate_size=192)).group_size == 64
    with pytest.raises(ConfigError, match="--quantization int8 runs on a CPU only so far"):
        make_linear_method("int8", 32, CONFIG, "cuda")
    with pytest.raises(ConfigError, match=r"groups of 128 do not divide the 192 inputs .*; use --quantization-group-size 64"):
        make_linear_method("int4", 128, dataclasses.replace(CONFIG, intermediate_size=192))
    with pytest.raises(ConfigError, match=r"groups of 32 do not divide the 80 inputs .*; use --quantization int8"):
        make_linear_method("int4", 32, dataclasses.replace(CONFIG, intermediate_size=80))
