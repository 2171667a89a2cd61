"""Lists the files and symbols of another engine's package, for shared/citations.py to check against.

    python tools/engine_symbols.py vllm 0.33.0 FOLDER     # FOLDER holds the unpacked wheel or source archive

The lists stand in shared/engine_symbols/; make one again when an engine's pin moves, and see which citations break. Python is
parsed; in C, C++ and CUDA a symbol is what a line without indentation defines, found by its form, so a few are missed.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.citations import SYMBOLS, Package, write

# What is listed of each package, and what is left out of it: other people's code, tests, and hundreds of model files.
LISTED: dict[str, tuple[tuple[str, ...], str]] = {
    "vllm": (
        ("vllm",),
        r"vllm/(third_party|vllm_flash_attn|models)/|vllm/model_executor/models/(?!llama|qwen2\.|qwen3\.|mixtral|deepseek_v2|gpt_oss"
        r"|registry|interfaces|utils|adapters)",
    ),
    "sglang": (
        ("sglang/srt", "sglang/kernels", "sglang/bench_serving.py", "sglang/launch_server.py", "sglang/lang"),
        r"sglang/srt/(models/(?!llama\.|qwen2\.|qwen3\.|mixtral\.|deepseek_v2|gpt_oss)|multimodal|hardware_backend|debug_utils|configs|function_call|parser)"
        r"|/diffusion/|kernels/(jit/(csrc|include)|ops/(lora|mamba))/",
    ),
    "transformers": (
        ("transformers",),
        r"transformers/(models/(?!llama/|qwen2/|qwen3/|mixtral/|auto/)|pipelines|commands|exporters|cli|data|testing_utils)",
    ),
    "llama.cpp": (
        ("src", "ggml/src", "ggml/include", "include", "common", "tools/server"),
        r"/(models|ggml-(?!cpu|cuda|metal)[a-z]+)/",
    ),
}
C_SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m", ".metal"}
C_TYPE = re.compile(r"^(?:typedef )?(?:struct|class|enum(?: class)?|union)\s+(\w+)\s*(?::[^;]*)?\{?\s*$")
C_FUNCTION = re.compile(
    r"^(?=\w)(?!return|else|if|for|while|switch|typedef|using|namespace|extern)[\w:<>,*&\s\[\]]*?\b((?:\w+::)*~?\w+)\s*\("
)


def python_symbols(text: str) -> list[tuple[str, int]]:
    """[(dotted name, line)] of a module's functions, classes, methods and declared fields, also under `if` and `try`."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + node.name, node.lineno
            elif prefix and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield prefix + node.target.id, node.lineno
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                for part in (node.body, node.orelse, *(handler.body for handler in getattr(node, "handlers", []))):
                    yield from walk(part, prefix)

    found: dict[str, int] = {}
    for name, line in walk(ast.parse(text).body, ""):
        found.setdefault(name, line)  # an overload or a second branch: the first stands for all
    return list(found.items())


def c_symbols(text: str) -> list[tuple[str, int]]:
    """[(name, line)] of the types, functions and methods (`Class::method`) that unindented lines define or declare."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (match := C_TYPE.match(line) or C_FUNCTION.match(line)) and not match[1].isupper():
            found.setdefault(match[1], number)
    return list(found.items())


def collect(package: str, version: str, folder: Path) -> Package:
    """The list of one package. folder: where its top-level folders lie."""
    roots, left_out = LISTED[package]
    paths = [p for root in roots for p in ([folder / root] if (folder / root).is_file() else (folder / root).rglob("*"))]
    files = {}
    for path in sorted(p for p in paths if p.suffix in C_SUFFIXES | {".py"}):
        name = path.relative_to(folder).as_posix()
        if not re.search(left_out, name) and "/test" not in name:
            text = path.read_text(encoding="utf-8", errors="replace")
            files[name] = dict(python_symbols(text) if path.suffix == ".py" else c_symbols(text))
    return Package(package, version, files)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in LISTED:
        sys.exit(f"usage: python tools/engine_symbols.py {'|'.join(LISTED)} VERSION FOLDER")
    package = collect(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    if not package.files:
        sys.exit(f"error: {sys.argv[3]} holds none of {', '.join(LISTED[package.name][0])}; unpack the package there")
    path = write(package, SYMBOLS)
    print(
        f"{path}: {len(package.files)} files, {sum(map(len, package.files.values()))} symbols, {path.stat().st_size / 1e3:.0f} kB"
    )
