"""What `auto` means on which machine."""

import pytest
import torch

from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.fused import choice
from minillm.fused.choice import resolved

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    "device, options, expected",
    [
        (CPU, {}, ("torch", "sdpa")),
        (GPU, {}, ("triton", "triton")),
        (CPU, {"kernels": "triton"}, ("triton", "triton")),
        (GPU, {"kernels": "torch"}, ("torch", "sdpa")),
        (GPU, {"attention": "sdpa"}, ("triton", "sdpa")),
        (GPU, {"kv": "contiguous"}, ("triton", "sdpa")),
        (CPU, {"attention": "triton"}, ("torch", "triton")),
    ],
)
def test_auto(device, options, expected):
    config = resolved(EngineConfig(**options), device)
    assert (config.kernels, config.attention) == expected
    assert resolved(config, CPU) == config  # what is chosen once stays


def test_without_triton(monkeypatch):
    monkeypatch.setattr(choice, "has_triton", lambda: False)
    assert resolved(EngineConfig(), GPU).kernels == "torch"
    for options in ({"kernels": "triton"}, {"attention": "triton"}):
        with pytest.raises(ConfigError, match="Triton is not installed"):
            resolved(EngineConfig(**options), GPU)


def test_an_unknown_choice():
    with pytest.raises(ConfigError, match="--kernels cuda: choose one of auto, torch, triton"):
        EngineConfig(kernels="cuda")
