"""What the list of an engine's symbols takes from a file."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "engine_symbols.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("engine_symbols", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python(tool):
    text = """
import os

def f():
    def inner(): ...

class A(Base):
    field: int = 1
    @property
    def m(self): ...
    async def n(self): ...
    class B:
        def o(self): ...

if os.name == "nt":
    def g(): ...
else:
    def g(): ...
    def h(): ...
try:
    class T: ...
except ImportError:
    def u(): ...
"""
    names = {"f": 4, "A": 7, "A.field": 8, "A.m": 10, "A.n": 11, "A.B": 12, "A.B.o": 13, "g": 16, "h": 19, "T": 21, "u": 23}
    assert dict(tool.python_symbols(text)) == names


def test_c(tool):
    text = """#include <x.h>
#define MACRO(x) x
struct cell {
    int method(int);
};
enum class Kind : int {
static inline void helper(int a) {
    if (a) call(a);
    return other(a);
}
llama_kv_cache::slot_info llama_kv_cache::find_slot(const ubatch & u, bool cont) const {
llama_kv_cache::~llama_kv_cache() = default;
template <typename T>
__global__ void rms_norm_kernel(T* out) {
GGML_ASSERT(1);
// comment(with call)
typedef int (*callback)(int);
"""
    names = {"cell": 3, "Kind": 6, "helper": 7, "llama_kv_cache::find_slot": 11, "llama_kv_cache::~llama_kv_cache": 12}
    assert dict(tool.c_symbols(text)) == names | {"rms_norm_kernel": 14}


def test_what_is_collected(tool, tmp_path):
    for name in (
        "vllm/v1/a.py",
        "vllm/third_party/b.py",
        "vllm/v1/tests/c.py",
        "vllm/model_executor/models/llama.py",
        "other/d.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class X: ...\n")
    package = tool.collect("vllm", "1.0", tmp_path)
    assert package.files == {"vllm/model_executor/models/llama.py": {"X": 1}, "vllm/v1/a.py": {"X": 1}}
    assert package.version == "1.0"
