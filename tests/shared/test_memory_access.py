"""Sectors and banks: strides in closed form, and a tile that is read by columns."""

import math
import os
import re
import subprocess
import sys

import pytest

from shared.memory_access import BANKS, LINE, SECTOR, WORD, bank_conflicts, sectors_touched, strided


def column(row_words, lanes=32):
    return strided(row_words * WORD, lanes)


def test_a_column_of_a_tile_and_the_cure():
    assert bank_conflicts(column(32)) == 31
    assert bank_conflicts(column(33)) == 0
    swizzled = [WORD * (32 * row + (0 ^ row)) for row in range(32)]  # column 0, each row's words in another order
    assert bank_conflicts(swizzled) == 0


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("step", range(1, 70))
def test_strides_in_closed_form(width, step):
    at_once = 128 // width
    assert bank_conflicts(strided(step * width), width) == (math.gcd(step, at_once) - 1) * (32 // at_once)


@pytest.mark.parametrize("stride", range(0, 300, 4))
def test_sectors_in_closed_form(stride):
    expected = 1 + 31 * stride // SECTOR if stride <= SECTOR else 32
    assert sectors_touched(strided(stride)) == expected
    assert sectors_touched(strided(stride), granule=LINE) <= expected


def test_what_is_refused():
    for wrong in (lambda: sectors_touched([-1]), lambda: sectors_touched([0], 0), lambda: sectors_touched([0], granule=0)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError, match="multiple of the width"):
        bank_conflicts([2])
    with pytest.raises(ValueError, match="32 lanes"):
        bank_conflicts([0] * (BANKS + 1))
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16"):
        bank_conflicts([0], 3)


# A tile of 32 rows, each read by one lane, 16 bytes at a time.
COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource


@gluon.jit
def count(COLUMNS: gl.constexpr):
    lanes: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [1, 1], [1, 0])
    store: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    tile: gl.constexpr = gl.shared_memory_descriptor_type(gl.float32, [32, COLUMNS], store, [32, COLUMNS])
    n: gl.constexpr = gl.bank_conflicts(gl.distributed_type(gl.float32, [32, COLUMNS], lanes), tile)
    gl.static_print("conflicts", COLUMNS, n)


for columns in (4, 8, 16, 32, 64):
    triton.compile(GluonASTSource(count, {}, {"COLUMNS": columns}), target=GPUTarget("cuda", 89, 32), options={"num_warps": 1})
"""


def test_a_compiler_counts_the_same(tmp_path):
    """Triton's own analysis, for sm_89. It states the conflicts of one phase: eight lanes of 16 bytes, a quarter of the warp."""
    pytest.importorskip("triton")
    script = tmp_path / "count.py"
    script.write_text(COMPILED, "utf-8")
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-800:]
    found = [[int(n) for n in re.findall(r"\d+", line)] for line in ran.stdout.splitlines() if line.startswith("conflicts")]
    assert len(found) == 5, ran.stdout
    assert [4 * theirs for _, theirs in found] == [bank_conflicts(strided(columns * WORD), width=16) for columns, _ in found]
