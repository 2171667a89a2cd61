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
def test_auto(device, options, expected, monkeypatch):
    monkeypatch.setattr(choice, "obstacle", lambda: None)
    config = resolved(EngineConfig(**options), device)
    assert (config.kernels, config.attention) == expected
    assert resolved(config, CPU) == config  # what is chosen once stays


def test_without_triton(monkeypatch):
    monkeypatch.setattr(choice, "has_triton", lambda: False)
    assert resolved(EngineConfig(), GPU).kernels == "torch"
    for options, way_out in (
        ({"kernels": "triton"}, "--kernels torch"),
        ({"attention": "triton"}, "--attention sdpa"),
        ({"linear": "triton", "kernels": "triton"}, "--kernels torch and --linear torch"),
    ):
        with pytest.raises(ConfigError, match=f"Triton is not installed.*, or choose {way_out}$"):
            resolved(EngineConfig(**options), GPU)


def test_where_triton_cannot_launch(monkeypatch, caplog):
    monkeypatch.setattr(choice, "obstacle", lambda: "Triton needs a C compiler")
    assert resolved(EngineConfig(), GPU).kernels == "torch"
    assert caplog.messages == ["running torch's kernels instead of ours: Triton needs a C compiler"]
    with pytest.raises(ConfigError, match="a C compiler; or choose --kernels torch"):
        resolved(EngineConfig(kernels="triton"), GPU)
    assert resolved(EngineConfig(kernels="triton"), CPU).kernels == "triton", "the interpreter needs no compiler"


def test_what_triton_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(choice.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert "needs a C compiler" in choice.obstacle()
    monkeypatch.setenv("CC", "cc")
    assert "needs Python's headers" in choice.obstacle()
    (tmp_path / "Python.h").touch()
    assert choice.obstacle() is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "compute capability 8.0" in choice.obstacle()


@pytest.mark.parametrize("flag", ["kernels", "attention", "linear"])
def test_the_interpreter_is_warned_of(flag, caplog):
    choice.warn_of_interpreter(EngineConfig(**{flag: "triton"}))
    assert "interpreter" in caplog.text
    caplog.clear()
    choice.warn_of_interpreter(EngineConfig())
    assert not caplog.text


def test_an_unknown_choice():
    with pytest.raises(ConfigError, match="--kernels cuda: choose one of auto, torch, triton"):
        EngineConfig(kernels="cuda")
