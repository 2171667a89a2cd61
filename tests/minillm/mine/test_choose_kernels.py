"""Kernels of a learner's: which flags make them run, and what goes before them."""

import textwrap

import pytest

from labs.kit.catalog import find_modules
from labs.kit.progress import Progress
from minillm.config import EngineConfig
from minillm.mine.choose import choose
from minillm.parts import PARTS


@pytest.fixture
def passing(labs):
    """passing("kernels.rope", ...): a lab that stands for these parts, all of which pass."""

    def write(*names):
        lines = ["from labs.kit import exercise"]
        for name in names:
            own = name.replace(".", "_")
            lines += [f'@exercise(reference="{PARTS[name].reference}", part="{name}")', f"def {own}(*args):\n    return args"]
        (labs.folder / "c2" / "m01_kernels.py").write_text("\n".join(textwrap.dedent(line) for line in lines) + "\n")
        progress = Progress.load()
        for exercise in (e for module in find_modules() for e in module.exercises):
            progress.record(exercise, True, [])
        progress.save()

    return write


@pytest.mark.parametrize(
    "name, options, said_of_it",
    [
        ("kernels.rope", {}, "--kernels is torch: add --kernels triton"),
        ("kernels.gemv", {"kernels": "triton"}, "--linear is torch: add --linear triton"),
        ("kernels.paged_decode", {"kernels": "triton", "kv": "contiguous"}, "--attention is sdpa: add --attention triton"),
        ("kernels.w4a16", {"quantization": "int4"}, "--kernels is torch: add --kernels triton"),
        (
            "kernels.w4a16",
            {"quantization": "int8"},
            "--quantization is int8 and --kernels is torch: add --quantization int4 --kernels triton",
        ),
        ("kernels.w4a16", {"kernels": "triton"}, "--quantization is not set: add --quantization int4"),
    ],
)
def test_each_flag_that_is_missing_is_named(passing, said, name, options, said_of_it):
    passing(name)
    assert choose([name], EngineConfig(**options)).names == ()
    assert said()[0] == f"{name} passed, but {said_of_it}"


@pytest.mark.parametrize(
    "name, options",
    [
        ("kernels.softmax", {"kernels": "triton"}),
        ("kernels.gemm", {"linear": "triton"}),
        ("kernels.w4a16", {"kernels": "triton", "quantization": "int4"}),
        ("kernels.flash_attention", {"kernels": "triton"}),  # auto follows it
        ("kernels.flash_attention", {"attention": "triton"}),
    ],
)
def test_with_its_flags_it_runs_without_graphs(passing, name, options):
    passing(name)
    choice = choose(True, EngineConfig(**options))
    assert choice.names == (name,) and choice.config.enforce_eager


def test_what_runs_in_its_place_goes_before_it(passing, said):
    """A plain operator of the learner's is no part of the fused decoder, and an own sampler calls no kernels of ours."""
    passing("ops.swiglu", "kernels.rope", "sampling.pipeline", "kernels.argmax", "kernels.paged_decode")
    config = EngineConfig(kernels="triton")
    assert choose(True, config).names == ("ops.swiglu", "sampling.pipeline", "kernels.paged_decode")
    assert "kernels.rope passed, but your ops.swiglu runs in its place: name the parts you want, --mine=kernels.rope,…" in said()
    assert any(line.startswith("kernels.argmax passed, but your sampling.pipeline runs in its place") for line in said())
    assert choose(["kernels.rope", "kernels.argmax"], config).names == ("kernels.rope", "kernels.argmax")
    assert choose({"ops.swiglu": len, "kernels.rope": len}, config).names == ("ops.swiglu",)
    assert choose({"attention.triton": len, "kernels.paged_decode": len}, config).names == ("attention.triton",)
