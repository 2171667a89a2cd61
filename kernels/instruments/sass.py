"""Reads a GPU's machine code: how wide its memory accesses are, whether it uses tensor cores, what it spills.

NVIDIA's is called SASS, an instruction such as LDG.E.128 (load 128 bits from global memory) being named by its parts; AMD's names
are such as global_load_dwordx4. What is counted is instructions in the code, not how often they run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

SASS_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*[A-Z0-9])")
AMD_INSTRUCTION = re.compile(r"^\s+([vs]_\w+|global_\w+|buffer_\w+|flat_\w+|ds_\w+|scratch_\w+)", re.MULTILINE)

# HMMA and HGMMA multiply 16-bit floats, QMMA and QGMMA 8-bit ones, IMMA integers; UTC… is Blackwell's fifth generation
TENSOR_CORES = re.compile(r"(UTC)?[HQIBDO]G?MMA\b|v_(s?mfma|wmma)_")
GLOBAL_LOAD = re.compile(r"(LDG|LDGSTS|LD)(\.|$)|(global|buffer|flat)_load_")
GLOBAL_STORE = re.compile(r"(STG|ST)(\.|$)|(global|buffer|flat)_store_")
BULK = ("UTMALDG", "UBLKCP", "UTMASTG")  # the tensor memory accelerator: whole tiles
SPILL = re.compile(r"(STL|LDL)(\.|$)|scratch_(load|store)_")


def instructions(code: str, backend: str = "cuda") -> Counter[str]:
    """How often each instruction stands in disassembled code. backend: "cuda" or "hip"."""
    return Counter((SASS_INSTRUCTION if backend == "cuda" else AMD_INSTRUCTION).findall(code))


def width(name: str) -> int:
    """Bits that one thread moves with this memory instruction: LDG.E.128 128, LDG.E.U16 16, LDG.E 32, global_load_dwordx4 128."""
    if amd := re.search(r"_(?:load|store)_(?:lds_)?(?:(d?word|u?s?byte|u?s?short|b)(?:x?(\d+))?)", name):
        unit = {"dword": 32, "byte": 8, "ubyte": 8, "sbyte": 8, "short": 16, "ushort": 16, "sshort": 16, "b": 1}[amd[1]]
        return unit * int(amd[2] or 1)
    for part in name.split("."):
        if match := re.fullmatch(r"(?:U|S|F|ENL)?(8|16|64|128|256)", part):
            return int(match[1])
    return 32


def widths(found: Mapping[str, int], kind: re.Pattern[str]) -> dict[int, int]:
    """Bits -> how many instructions of this kind (GLOBAL_LOAD, GLOBAL_STORE, SPILL) move so many; widest first."""
    counted: Counter[int] = Counter()
    for name, count in found.items():
        if kind.match(name):
            counted[width(name)] += count
    return dict(sorted(counted.items(), reverse=True))


def tensor_core_instructions(found: Mapping[str, int]) -> int:
    return sum(count for name, count in found.items() if TENSOR_CORES.match(name))


def bulk_copies(found: Mapping[str, int]) -> int:
    """Instructions that move whole tiles between global and shared memory, by themselves."""
    return sum(count for name, count in found.items() if name.startswith(BULK))
