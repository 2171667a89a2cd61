"""--linear triton: matrix products of weights as they were loaded, by our kernels."""

import pytest
import torch

from minillm import loading
from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.fused.linear import LinearKernels, TritonLinear
from minillm.model.linear import Linear


@pytest.fixture
def layer():
    """make(bias, kernels=...): a layer of 40 inputs and 24 outputs."""

    def make(bias, method):
        torch.manual_seed(0)
        layer = Linear(40, 24, bias, method, {"dtype": torch.float32})
        layer.rows([24])[0].copy_(torch.randn(24, 40))
        if bias:
            layer.bias.copy_(torch.randn(24))
        return layer

    return make


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_few_rows_and_many(layer, bias):
    from minillm.kernels.gemm import gemm
    from minillm.kernels.gemv import gemv

    called = []

    def noted(kernel):
        def call(x, weight, bias):
            called.append((kernel.__name__, len(x)))
            return kernel(x, weight, bias)

        return call

    linear = layer(bias, TritonLinear(LinearKernels(noted(gemv), noted(gemm), None)))
    for rows in (1, 16, 17):
        x = torch.randn(rows, 40)
        expected = torch.nn.functional.linear(x, linear.weight, linear.bias)
        torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)
    assert called == [("gemv", 1), ("gemv", 16), ("gemm", 17)]
    assert linear.method.dense(linear) is linear.weight


def test_embedding_and_head_stay_one(tiny_llm):
    model = tiny_llm(linear="triton", sharpen=False).engine.runner.model
    assert isinstance(model.lm_head.method, TritonLinear) and model.lm_head.weight is model.embed_tokens.weight


def test_what_was_compiled_of_torchs_products_is_not_used(tiny_llm, monkeypatch):
    monkeypatch.setattr(loading, "find", lambda config, model: pytest.fail("would run in place of our kernels"))
    assert tiny_llm(linear="triton", sharpen=False)


def test_what_makes_no_sense():
    with pytest.raises(ConfigError, match="--linear cublas: choose one of torch, triton"):
        EngineConfig(linear="cublas")
    with pytest.raises(ConfigError, match=r"--linear triton is for weights as they were loaded.*--quantization int8.*: drop one"):
        EngineConfig(linear="triton", quantization="int8")
