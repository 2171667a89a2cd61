"""Kernels compiled for GPUs that are not here: what comes back, how kernels travel, what is kept, what is refused."""

import importlib
import sys
import textwrap

import pytest
from minillm.kernels.instruments import pool
from minillm.kernels.instruments.inspect import InspectError, _inspection, _request, inspect, inspect_all
from minillm.kernels.instruments.portable import portable
from minillm.kernels.instruments.targets import target
from minillm.kernels.runtime import tl, triton
from minillm.kernels.shipped import Shipped

MODULE = """
from minillm.kernels.runtime import tl, triton

print("a module that prints when it is imported")

@triton.jit
def scaled(x, factor):
    return x * factor

@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, scaled(tl.load(x + i, mask=i < n), factor), mask=i < n)

@triton.autotune(configs=[triton.Config({"T": 64})], key=["n"])
@triton.jit
def square_kernel(a, b, c, n, T: tl.constexpr, PRECISION: tl.constexpr = "tf32", TYPE: tl.constexpr = tl.float32):
    i, j = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    total = tl.zeros([T, T], TYPE)
    for start in range(0, n, T):
        k = start + tl.arange(0, T)
        total = tl.dot(tl.load(a + i[:, None] * n + k), tl.load(b + k[:, None] * n + j), total, input_precision=PRECISION)
    tl.store(c + i[:, None] * n + j, total.to(c.dtype.element_ty))

@triton.jit
def crash_kernel(x):
    import os
    tl.store(x, 1)
"""
SCALE = Shipped(
    name="scale.fp16",
    kernel="inspected:scale_kernel",
    signature={"x": "*fp16", "out": "*fp16", "n": "i32", "factor": "fp32"},
    constexprs={"BLOCK": 1024},
    aligned=("x", "out", "n"),
)
NARROW = Shipped("narrow", SCALE.kernel, SCALE.signature, SCALE.constexprs)
SQUARE = Shipped(
    name="square.bf16",
    kernel="inspected:square_kernel",
    signature={"a": "*bf16", "b": "*bf16", "c": "*bf16", "n": "i32"},
    constexprs={"T": 64, "TYPE": tl.float32},
    aligned=("a", "b", "c", "n"),
    num_stages=2,
)


@triton.jit
def half(x):
    return x * SHARE


SHARE = tl.constexpr(0.5)


@triton.jit
def halve_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, half(tl.load(x + i, mask=i < n)), mask=i < n)


HALVE = {"signature": {"x": "*fp32", "n": "i32"}, "constexprs": {"BLOCK": 256}}


@pytest.fixture(scope="module", autouse=True)
def _home_and_module(tmp_path_factory):
    """A cache of our own, and a module of kernels that the worker can import."""
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "inspected.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINILLM_HOME", str(folder / "home"))
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop("inspected", None)


@pytest.fixture(scope="module")
def compiled(_home_and_module):
    """One process for all: starting it takes longer than compiling."""
    variants = [(SCALE, "sm_80"), (SCALE, "rtx-4090"), (SCALE, "h100-sxm"), (SCALE, "gfx942")]
    variants += [(SQUARE, "sm_80"), (SQUARE, "sm_90"), (SQUARE, "gfx942"), (NARROW, "sm_80")]
    found = inspect_all(variants, jobs=1)
    return {(variant.name, gpu): each for (variant, gpu), each in zip(variants, found, strict=True)}


@pytest.mark.parametrize("gpu, arch", [("sm_80", "sm_80"), ("rtx-4090", "sm_89"), ("h100-sxm", "sm_90")])
def test_an_elementwise_kernel(compiled, gpu, arch):
    found = compiled["scale.fp16", gpu]
    assert (found.arch, found.num_warps, found.shared_bytes, found.stack_bytes) == (arch, 4, 0, 0)
    assert 8 <= found.registers <= 40
    assert (found.loads, found.stores, found.widest_load) == (
        {128: 1},
        {128: 1},
        128,
    )  # 1,024 halves over 128 threads: 16 bytes each
    assert (found.spill_instructions, found.spill_bytes, found.tensor_core_instructions, found.bulk_copies) == (0, 0, 0, 0)
    assert found.occupancy.share == 1.0
    assert "st.global" in found.ptx and "STG.E.128" in found.sass and "tt.store" in found.ttgir


@pytest.mark.parametrize("gpu", ["sm_80", "sm_90", "gfx942"])
def test_a_dot_uses_tensor_cores(compiled, gpu):
    found = compiled["square.bf16", gpu]
    assert found.tensor_core_instructions > 0
    assert found.shared_bytes >= 64 * 64 * 2
    assert found.widest_load == 128


def test_amd(compiled):
    found = compiled["scale.fp16", "gfx942"]
    assert (found.loads, found.occupancy, found.ptx) == ({64: 1}, None, "")  # its warps have 64 threads
    assert "s_endpgm" in found.sass


def test_the_summary_says_it_all(compiled):
    text = str(compiled["square.bf16", "sm_80"])
    for word in ("square.bf16 for sm_80", "registers", "no spills", "shared memory", "occupancy", "of 128 bits", "tensor cores"):
        assert word in text


def test_without_known_alignment_loads_are_narrow(compiled):
    assert compiled["narrow", "sm_80"].widest_load == 16


def test_too_few_registers_spill():
    asked = {"signature": SQUARE.signature, "constexprs": SQUARE.constexprs, "aligned": SQUARE.aligned}
    found = inspect(SQUARE.kernel, "sm_80", **asked, maxnreg=32)
    assert found.spill_instructions > 0
    assert found.spill_bytes >= 4 * found.spill_instructions
    assert "spilled" in str(found)


def test_a_function_that_no_module_holds_travels_as_source():
    """As from a notebook's cell: with the functions and constants it uses."""
    kernel = portable(halve_kernel)
    assert kernel.module is None
    assert "SHARE = tl.constexpr(0.5)" in kernel.source and "def half(x)" in kernel.source
    found = inspect(halve_kernel, "sm_89", **HALVE)
    assert (found.name, found.loads) == ("halve_kernel", {32: 2})  # x is not known to be aligned


def test_what_was_compiled_is_kept(compiled, monkeypatch):
    def no_process(*args, **kwargs):
        raise AssertionError("it was compiled already")

    monkeypatch.setattr(pool.subprocess, "Popen", no_process)
    assert inspect(SCALE, "sm_80") == compiled["scale.fp16", "sm_80"]
    with pytest.raises(AssertionError):
        inspect(SCALE, "sm_86")


def test_another_source_is_another_key(tmp_path, monkeypatch):
    def digest(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(tmp_path))
        return portable(importlib.import_module(name).scale_kernel).digest

    first = digest("inspected_1", MODULE)
    assert digest("inspected_2", MODULE + "\n# a remark elsewhere\n") == first
    assert digest("inspected_3", MODULE.replace("return x * factor", "return factor * x")) != first  # in a function it calls


def test_mistakes_are_one_line_each():
    cases = [
        (dict(signature={"x": "*fp32"}, constexprs={"BLOCK": 256}), "argument n of halve_kernel needs a type in signature"),
        (dict(signature=HALVE["signature"]), "argument BLOCK of halve_kernel needs a value in constexprs"),
        (dict(signature={**HALVE["signature"], "y": "i32"}, constexprs={"BLOCK": 256}), "halve_kernel has no argument y"),
        (dict(signature=HALVE["signature"], constexprs={"BLOCK": 100}), "power of 2"),
        (dict(signature={**HALVE["signature"], "BLOCK": "i32"}), "BLOCK of halve_kernel is a constexpr: give its value"),
    ]
    variants = [Shipped("halve", "", arguments["signature"], arguments.get("constexprs", {})) for arguments, _ in cases]
    answers = pool.answers([_request(halve_kernel, variant, target("sm_80"), {}) for variant in variants], jobs=1)
    for (_, message), answer in zip(cases, answers, strict=True):
        with pytest.raises(InspectError, match=message) as raised:
            _inspection("halve", "sm_80", answer)
        assert str(raised.value).startswith("halve does not compile for sm_80: ")
        assert "\n" not in str(raised.value)


def test_a_compiler_that_dies_takes_one_answer_with_it(monkeypatch, tmp_path):
    """The worker is replaced by one that answers with the name, and kills itself over `deadly`."""
    worker = tmp_path / "dying.py"
    worker.write_text(
        "import json, os, sys, time\n"
        "for request in json.load(sys.stdin)['requests']:\n"
        "    if request['name'] == 'deadly': sys.exit('loc.cpp:1: assertion failed')\n"
        "    if request['name'] == 'endless': time.sleep(60)\n"
        "    print(json.dumps({'ran': request['name']}), flush=True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "dying")
    monkeypatch.setattr(pool, "START_S", 20)
    monkeypatch.setattr(pool, "COMPILE_S", 2)
    names, done = ["one", "deadly", "three", "endless", "five"], []
    got = pool.answers([{"name": name, "run": "dies"} for name in names], jobs=1, progress=lambda *so_far: done.append(so_far))
    assert [answer.get("ran") for answer in got] == ["one", None, "three", None, "five"]
    assert got[1]["error"] == "the compiler died, exit code 1: loc.cpp:1: assertion failed"
    assert got[3]["error"] == "the compiler died, it did not answer within 2 s"
    assert done == [(i + 1, 5, name) for i, name in enumerate(names)]
    for name, kept in zip(names, [True, False, True, False, True], strict=True):  # a crash may not happen again
        assert (pool._kept(pool._key({"name": name, "run": "dies"})) is not None) == kept


def test_an_error_names_no_folder_of_this_machine():
    with pytest.raises(InspectError, match=r"for sm_80: ImportError: no x in m \(kernels.py\), 3/4, a/b$"):
        _inspection("k", "sm_80", {"error": "ImportError: no x in m (/somewhere/of/mine/kernels.py), 3/4, a/b"})


def test_a_damaged_cache_is_compiled_again(monkeypatch):
    request = {"name": "one", "run": "damaged"}
    pool._keep(pool._key(request), {"ran": 1})
    path = pool._home() / f"{pool._key(request)}.json.gz"
    assert pool._kept(pool._key(request)) == {"ran": 1}
    path.write_bytes(path.read_bytes()[:-9])
    assert pool._kept(pool._key(request)) is None


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="a int is no kernel"):
        inspect(3, "sm_80")
    with pytest.raises(ValueError, match="there is no GPU"):
        inspect(halve_kernel, "rtx-9999", **HALVE)
