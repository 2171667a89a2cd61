"""What the compiler makes of every shipped variant, kept in kernels/compiled.json: a change that makes one worse is then seen.

A row belongs to one variant, one architecture, one source: as long as the variant's digest and Triton's version are the row's,
nothing needs to be compiled to know it. `minillm kernels --write` brings the file up to date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import triton
from minillm.kernels.instruments.inspect import InspectError, Inspection, inspect_all
from minillm.kernels.instruments.pool import Progress
from minillm.kernels.instruments.portable import portable
from minillm.kernels.instruments.targets import target
from minillm.kernels.shipped import Shipped

TABLE = Path(__file__).resolve().parent.parent / "compiled.json"
PROMISED = ("sm_80", "sm_89", "sm_90")  # every variant compiles well for these (from its min_sm on),
WELCOME = ("sm_120", "gfx942")  # and for these if Triton can
ARCHITECTURES = PROMISED + WELCOME

MORE_REGISTERS = 8  # tolerated: a unit that hardware gives out, and compilers differ
LESS_WIDE = 0.05


@dataclass(frozen=True)
class Row:
    """One variant on one architecture. error: why it does not compile, else None, and then the numbers are all 0."""

    name: str
    arch: str
    digest: str
    error: str | None = None
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    num_warps: int = 0
    blocks: int | None = None  # on a multiprocessor at once; None on AMD
    occupancy: float | None = None
    limiter: str | None = None
    widest_load: int = 0  # bits a thread
    wide_share: float = 0.0  # of the bytes that load instructions move, those moved 128 bits at a time or by bulk copies
    tensor_core_instructions: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.arch


def pairs(variants: Iterable[Shipped], architectures: Sequence[str] = ARCHITECTURES) -> list[tuple[Shipped, str]]:
    """Every variant with every architecture that it is meant for."""
    return [(variant, arch) for variant in variants for arch in architectures if _meant_for(variant, arch)]


def _meant_for(variant: Shipped, arch: str) -> bool:
    capability = target(arch).capability
    if capability is None:  # not NVIDIA's
        return variant.max_sm is None
    return variant.min_sm <= capability <= (variant.max_sm or capability)


def rows(
    wanted: Sequence[tuple[Shipped, str]],
    known: Mapping[tuple[str, str], Row] | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """A row for each (variant, architecture or GPU's name): from `known` if it is of the same source, else compiled."""
    known = known or {}
    keyed = [(variant, target(gpu).arch, digest(variant)) for variant, gpu in wanted]
    found = {
        key: row for (variant, arch, made) in keyed if (row := known.get(key := (variant.name, arch))) and row.digest == made
    }
    missing = {(variant.name, arch): (variant, arch) for variant, arch, _ in keyed if (variant.name, arch) not in found}
    for (variant, arch), answer in zip(missing.values(), inspect_all(list(missing.values()), progress=progress), strict=True):
        found[variant.name, arch] = _row(variant, arch, answer)
    return [found[variant.name, arch] for variant, arch, _ in keyed]


def digest(variant: Shipped) -> str:
    """Of the variant and of all the code that is compiled for it."""
    asked = (variant.signature, variant.constexprs, variant.aligned, variant.num_warps, variant.num_stages)
    return hashlib.sha256(repr((_code(variant.kernel), *map(_plain, asked))).encode()).hexdigest()[:16]


@cache
def _code(kernel: str) -> str:
    return portable(kernel).digest


def _plain(value):
    return sorted((name, str(each)) for name, each in value.items()) if isinstance(value, Mapping) else value


def _row(variant: Shipped, arch: str, answer: Inspection | InspectError) -> Row:
    if isinstance(answer, InspectError):
        return Row(variant.name, arch, digest(variant), error=str(answer))
    moved = sum(bits * count for bits, count in answer.loads.items())
    wide = sum(bits * count for bits, count in answer.loads.items() if bits >= 128)
    full = answer.occupancy
    return Row(
        name=variant.name,
        arch=arch,
        digest=digest(variant),
        registers=answer.registers,
        spill_bytes=answer.spill_bytes,
        stack_bytes=answer.stack_bytes,
        shared_bytes=answer.shared_bytes,
        num_warps=answer.num_warps,
        blocks=full.blocks if full else None,
        occupancy=round(full.share, 4) if full else None,
        limiter=full.limiter if full else None,
        widest_load=max(answer.widest_load, 128 if answer.bulk_copies else 0),
        wide_share=round(wide / moved, 3) if moved else float(answer.bulk_copies > 0),
        tensor_core_instructions=answer.tensor_core_instructions,
    )


def faults(variant: Shipped, row: Row) -> list[str]:
    """What a variant must not have where it is promised, each in a few words; a stated reason excuses spills and narrow loads."""
    if row.error:
        return [row.error]
    found = []
    if variant.has_dot and not row.tensor_core_instructions:
        found.append("its tl.dot uses no tensor cores")
    if variant.reason is None:
        if row.spill_bytes:
            found.append(f"spills {row.spill_bytes} bytes a thread, with no reason stated")
        if variant.wide_loads and row.widest_load < 128:
            found.append(f"loads {row.widest_load} bits at most, not 128, with no reason stated")
        if row.blocks == 0:
            found.append(f"does not fit on a multiprocessor ({row.limiter}), with no reason stated")
    return found


def worse(before: Row, after: Row) -> list[str]:
    """What a change made worse, each in a few words."""
    if after.error:
        return [] if before.error else [after.error]
    if before.error:
        return []
    changes = [
        (after.spill_bytes > before.spill_bytes, "spilled bytes", "spill_bytes"),
        (after.registers > before.registers + MORE_REGISTERS, "registers", "registers"),
        (after.widest_load < before.widest_load, "bits of the widest load", "widest_load"),
        (after.wide_share < before.wide_share - LESS_WIDE, "share of wide loads", "wide_share"),
        (before.tensor_core_instructions > after.tensor_core_instructions == 0, "tensor-core ops", "tensor_core_instructions"),
        ((after.blocks or 0) < (before.blocks or 0), "blocks on a multiprocessor", "blocks"),
    ]
    return [f"{what} {getattr(before, name)} -> {getattr(after, name)}" for is_so, what, name in changes if is_so]


def recorded(path: Path = TABLE) -> dict[tuple[str, str], Row]:
    """The file's rows by (variant, architecture); none where there is no file, or where another Triton made it."""
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text("utf-8"))
    if kept["triton"] != triton.__version__:
        return {}
    return {row.key: row for row in (Row(**each) for each in kept["rows"])}


def write(found: Iterable[Row], path: Path = TABLE) -> None:
    """Replaces the file: a line a row, so that a change is a line's change."""
    lines = ",\n".join(json.dumps({k: v for k, v in asdict(row).items() if v is not None}) for row in found)
    head = json.dumps("How Triton compiles every shipped variant; computed by `minillm kernels --write`")
    path.write_text(f'{{"title": {head},\n"triton": {json.dumps(triton.__version__)},\n"rows": [\n{lines}\n]}}\n', "utf-8")


def text(found: Sequence[Row]) -> str:
    """As a table for a terminal."""
    head = (
        "variant",
        "for",
        "registers",
        "spilled B",
        "shared B",
        "warps",
        "occupancy",
        "limited by",
        "widest load",
        "tensor ops",
    )
    cells = [head, *(_cells(row) for row in found)]
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(len(head))]
    widths[2] = max(len(row[2]) for row in cells if len(row) > 3)  # an error runs on
    return "\n".join("  ".join(_justified(row, widths)).rstrip() for row in cells)


def _cells(row: Row) -> tuple[str, ...]:
    if row.error:
        return row.name, row.arch, row.error
    full = ("–", "–") if row.occupancy is None else (f"{row.occupancy:.0%}", row.limiter or "")
    numbers = (f"{row.registers}", f"{row.spill_bytes}", f"{row.shared_bytes:,}", f"{row.num_warps}")
    return (row.name, row.arch, *numbers, *full, f"{row.widest_load} bits", f"{row.tensor_core_instructions}")


def _justified(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    left = (0, 1, 7)
    return [
        cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=False))
    ]
