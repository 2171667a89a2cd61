"""The CUDA C++ that notebooks show beside Triton is whole: it compiles, without a warning. It is compiled where there is nvcc."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path for path in (ROOT / "series").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
# A fence stands at the margin, in a quotation or in a list: what precedes it precedes each line of the block.
FENCED = re.compile(
    r"^(?P<margin>[> \t]*)```(?P<language>[^\n`]+)\n(?P<code>.*?)^(?P=margin)```[ \t]*$", re.MULTILINE | re.DOTALL
)
MAX_LINES = 30


@dataclass(frozen=True)
class Block:
    notebook: Path
    language: str
    code: str


def blocks(markdown):
    """(language, code) of each fenced block that names its language."""
    for match in FENCED.finditer(markdown):
        margin = match["margin"]
        lines = [line.removeprefix(margin).removeprefix(margin.rstrip()) for line in match["code"].splitlines()]
        yield match["language"].strip(), "\n".join(lines) + "\n"


def blocks_of(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [Block(path, language, code) for text in texts for language, code in blocks(text)]


BLOCKS = [block for path in NOTEBOOKS for block in blocks_of(path)]
CUDA = [block for block in BLOCKS if block.language == "cuda"]


def name_of(block):
    number = [other for other in CUDA if other.notebook == block.notebook].index(block) + 1
    return f"{block.notebook.parent.name}/{block.notebook.stem}-{number}"


def compiler_says(code, folder):
    """What nvcc prints of a kernel for an RTX 4090; nothing if all is well."""
    source = folder / "box.cu"
    source.write_text(code, encoding="utf-8")
    command = ["nvcc", "-arch=sm_89", "-cubin", "-Werror=all-warnings", f"-o={folder / 'box.cubin'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120, check=False)
    return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else f"nvcc ended with {done.returncode}")


needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="the notebooks' CUDA boxes are not compiled: no nvcc on PATH (CUDA toolkit)"
)


def test_blocks_are_found_wherever_they_stand():
    plain = "```cuda\nint x;\n\n  int y;\n```\n"
    quoted = "".join(f"> {line}".rstrip() + "\n" for line in plain.splitlines())
    listed = "- a\n\n" + "".join(f"  {line}".rstrip() + "\n" for line in plain.splitlines())
    for text in (plain, quoted, listed, f"a\n{quoted}b\n"):
        assert list(blocks(text)) == [("cuda", "int x;\n\n  int y;\n")]


def test_every_kernel_in_cuda_says_that_it_is_one():
    """Or it would not be compiled here."""
    assert CUDA
    assert not [
        (block.notebook.name, block.language) for block in BLOCKS if "__global__" in block.code and block.language != "cuda"
    ]


@pytest.mark.parametrize("block", CUDA, ids=name_of)
def test_a_box_is_short_and_holds_a_kernel(block):
    assert len(block.code.splitlines()) <= MAX_LINES
    assert 'extern "C" __global__' in block.code


@needs_nvcc
@pytest.mark.parametrize("block", CUDA, ids=name_of)
def test_a_box_compiles(block, tmp_path):
    assert compiler_says(block.code, tmp_path) == ""


@needs_nvcc
@pytest.mark.parametrize(
    "fault, said", [("int unused;", "never referenced"), ("undeclared = 1;", "undefined"), ("x[0] = ;", "expected")]
)
def test_a_box_with_a_fault_does_not(fault, said, tmp_path):
    assert said in compiler_says(f'extern "C" __global__ void f(float* x) {{ {fault} }}\n', tmp_path)
