"""Compiles kernels for GPUs that need not be there. Runs as its own process, without Triton's interpreter; inspect.py starts it.

Standard input: a JSON object {"path": sys.path, "requests": [...]}. Standard output: a line of JSON for each request, in their
order, as soon as it is done: what compiled() returns, or {"error": one line}. A compiler that crashes takes one answer with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def main() -> None:
    task = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a kernel's module prints must not get between the answers
    sys.path[:] = task["path"]
    for request in task["requests"]:
        try:
            answer = compiled(request)
        except Exception as e:  # noqa: BLE001, whatever a compiler throws is this request's answer
            answer = {"error": one_line(e)}
        answers.write(json.dumps(answer) + "\n")


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """request: what inspect.py's _request() makes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = loaded(request)
    types_, constants = arguments(function, request["signature"], decoded(request["constexprs"]))
    position = {name: i for i, name in enumerate(function.arg_names)}
    source = ASTSource(
        function,
        types_,
        {(position[name],): value for name, value in constants.items()},
        {(position[name],): [["tt.divisibility", 16]] for name in request["aligned"] if types_.get(name) != "constexpr"},
    )
    backend, arch, warp = request["target"]
    kernel = triton.compile(source, target=GPUTarget(backend, arch, warp), options=request["options"])
    found = {"shared_bytes": kernel.metadata.shared, "num_warps": kernel.metadata.num_warps, "ttgir": kernel.asm["ttgir"]}
    return found | (nvidia(kernel.asm) if backend == "cuda" else amd(kernel.asm["amdgcn"]))


def loaded(request: dict[str, Any]) -> Any:
    """The JITFunction that a request names or spells out."""
    import importlib

    from triton.runtime.jit import JITFunction

    name = request["name"]
    if request["module"]:
        kernel = getattr(importlib.import_module(request["module"]), name)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:  # Triton reads sources from files
            file.write(request["source"])
        try:
            module = types.ModuleType(Path(file.name).stem)
            sys.modules[module.__name__] = module  # Triton looks a kernel's module up
            exec(compile(request["source"], file.name, "exec"), vars(module))
            kernel = vars(module)[name]
            kernel.cache_key  # noqa: B018, the source is read here
        finally:
            os.unlink(file.name)
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def arguments(function: Any, signature: dict[str, str], constants: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """(argument -> type, constexpr -> value), complete: what is in neither has a default, or is missed here."""
    if unknown := (signature.keys() | constants.keys()) - set(function.arg_names):
        raise ValueError(f"{function.__name__} has no argument {', '.join(sorted(unknown))}")
    for parameter in function.params:
        if parameter.name in signature.keys() - constants.keys() and parameter.is_constexpr:
            raise ValueError(f"{parameter.name} of {function.__name__} is a constexpr: give its value, not its type")
        if parameter.name not in signature and parameter.name not in constants:
            if not parameter.has_default:
                kind = "a value in constexprs" if parameter.is_constexpr else "a type in signature"
                raise ValueError(f"argument {parameter.name} of {function.__name__} needs {kind}")
            constants = constants | {parameter.name: parameter.default}
    return {name: "constexpr" if name in constants else signature[name] for name in function.arg_names}, constants


def decoded(constants: dict[str, Any]) -> dict[str, Any]:
    """Undoes inspect.py's _encoded(): a Triton type travels as {"dtype": "fp32"}."""
    import triton.language as tl

    return {name: tl.dtype(value["dtype"]) if isinstance(value, dict) else value for name, value in constants.items()}


def nvidia(asm: dict[str, Any]) -> dict[str, Any]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()

        def run(tool: str, *options: str) -> str:
            command = [tools / tool, *options, file.name]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

        usage, sass = run("cuobjdump", "--dump-resource-usage"), run("nvdisasm", "-c")
    used = {name: int(re.search(rf"\b{name}:(\d+)", usage)[1]) for name in ("REG", "STACK", "LOCAL")}
    return {"registers": used["REG"], "stack_bytes": used["STACK"] + used["LOCAL"], "ptx": asm["ptx"], "sass": sass}


def amd(assembly: str) -> dict[str, Any]:
    def said(name: str) -> int:
        return int(re.search(rf"^\s+\.{name}:\s+(\d+)", assembly, re.MULTILINE)[1])

    return {
        "registers": said("vgpr_count"),
        "stack_bytes": said("private_segment_fixed_size"),
        "spilled": said("vgpr_spill_count"),
        "ptx": "",
        "sass": assembly,
    }


def one_line(error: BaseException) -> str:
    """What went wrong and where, in a line: Triton's messages show the source and point below it."""
    while error.__cause__ is not None and type(error).__name__ == "CompilationError":
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
    place = f" ({lines[0].rstrip(':')})" if len(lines) > 1 and lines[0].startswith("at ") else ""
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}{place}"


if __name__ == "__main__":
    main()
