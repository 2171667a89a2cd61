"""Compiles a kernel for a GPU that need not be there, and says what the compiler made of it.

    found = inspect(softmax_kernel, "rtx-4090", signature={"x": "*bf16", "out": "*bf16", "n": "i32"},
                    constexprs={"BLOCK": 4096}, aligned=("x", "out", "n"), num_warps=8)
    found.registers, found.spill_bytes, found.shared_bytes      a thread's, a thread's, a block's
    found.occupancy                                             blocks on a multiprocessor, and what limits them
    found.loads                                                 {128: 4}: four instructions that load 128 bits a thread
    found.tensor_core_instructions, found.instructions          how many, and the histogram of all
    print(found); print(found.sass)                             a summary; the machine code

The work is done in processes without Triton's interpreter, which cannot coexist with its compiler in one. A compilation takes 0.3
to 3 s, and the process 3 s to start; answers are kept under MINILLM_HOME, keyed by the source, so that asking again is quick.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minillm.kernels.instruments import pool, sass
from minillm.kernels.instruments.portable import portable
from minillm.kernels.instruments.targets import Target, target
from minillm.kernels.runtime import tl
from minillm.kernels.shipped import Shipped

from shared.occupancy import MULTIPROCESSORS, Occupancy, occupancy

FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+@~-]+/)+")  # of this machine, in a compiler's message: nobody else has them


class InspectError(ValueError):
    """A kernel does not compile. One line: which, for what, and why."""


@dataclass(frozen=True)
class Inspection:
    """What a compiler made of one kernel for one GPU. Counts are of instructions in the code, not of how often they run."""

    name: str
    gpu: str  # as it was asked for
    arch: str  # "sm_89", "gfx942"
    num_warps: int
    registers: int  # a thread
    spill_instructions: int
    spill_bytes: int  # a thread: moved by those instructions, each run once
    stack_bytes: int  # a thread
    shared_bytes: int  # a block
    occupancy: Occupancy | None  # None for AMD, and where the kernel's limits are not known
    loads: Mapping[int, int]  # from global memory: bits a thread -> instructions
    stores: Mapping[int, int]
    bulk_copies: int  # of the tensor memory accelerator
    tensor_core_instructions: int
    instructions: Mapping[str, int]
    ttgir: str = field(repr=False)
    ptx: str = field(repr=False)  # "" for AMD
    sass: str = field(repr=False)  # AMD: its own assembly

    @property
    def widest_load(self) -> int:
        """Bits a thread; 0 where nothing is loaded from global memory by threads."""
        return max(self.loads, default=0)

    def __str__(self) -> str:
        spills = (
            f"{self.spill_bytes} B spilled by {self.spill_instructions} instructions" if self.spill_instructions else "no spills"
        )
        lines = [
            f"{self.name} for {self.gpu} ({self.arch})",
            f"  registers     {self.registers} a thread, {spills}, stack {self.stack_bytes} B",
            f"  shared memory {self.shared_bytes:,} B a block of {self.num_warps} warps",
        ]
        if full := self.occupancy:
            lines.append(f"  occupancy     {full.share:.0%}: {full.blocks} blocks, limited by {full.limiter}")
        lines += [f"  global loads  {_widths(self.loads)}", f"  global stores {_widths(self.stores)}"]
        if self.bulk_copies:
            lines.append(f"  bulk copies   {self.bulk_copies}")
        return "\n".join(
            [*lines, f"  tensor cores  {self.tensor_core_instructions} instructions of {sum(self.instructions.values())}"]
        )


def _widths(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{count} of {bits} bits" for bits, count in counts.items()) or "none"


def inspect(
    kernel: Any,
    gpu: str = "rtx-4090",
    *,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    aligned: Sequence[str] = (),
    num_warps: int = 4,
    num_stages: int = 3,
    **options: Any,
) -> Inspection:
    """kernel: a @triton.jit function, "module:name" of one, or a Shipped, which brings all of the arguments below.

    gpu: a name of shared/hardware.toml, or an architecture. signature: argument -> "*bf16", "i32", "fp32". constexprs: argument
    -> value; an integer that is 1 belongs here, as Triton's launcher would find it out. aligned: arguments divisible by 16.
    options: more of Triton's, such as maxnreg.
    Raises InspectError, ValueError for an unknown GPU or a source that cannot be found, TypeError for what is no kernel.
    """
    if not isinstance(kernel, Shipped):
        name = kernel.partition(":")[2] if isinstance(kernel, str) else portable(kernel).name
        variant = Shipped(name, "", signature or {}, constexprs or {}, tuple(aligned), num_warps, num_stages)
        request = _request(kernel, variant, target(gpu), options)
    else:
        variant, request = kernel, _request(kernel.kernel, kernel, target(gpu), options)
    (answer,) = pool.answers([request])
    return _inspection(variant.name, gpu, answer)


def inspect_all(
    pairs: Sequence[tuple[Shipped, str]], *, jobs: int | None = None, progress: pool.Progress | None = None
) -> list[Inspection | InspectError]:
    """The Inspection of each (variant, gpu), or the error in its place. jobs: processes; by default as many as are worth it."""
    requests = [_request(variant.kernel, variant, target(gpu), {}) for variant, gpu in pairs]
    found: list[Inspection | InspectError] = []
    for (variant, gpu), answer in zip(pairs, pool.answers(requests, jobs, progress), strict=True):
        try:
            found.append(_inspection(variant.name, gpu, answer))
        except InspectError as e:
            found.append(e)
    return found


def _request(kernel: Any, variant: Shipped, wanted: Target, options: Mapping[str, Any]) -> dict[str, Any]:
    """What worker.py compiles; `digest` makes it the key of its answer."""
    code = portable(kernel)
    return {
        "name": code.name,
        "module": code.module,
        "source": code.source,
        "digest": code.digest,
        "signature": {name: kind for name, kind in variant.signature.items() if kind != "constexpr"},
        "constexprs": {name: _encoded(value) for name, value in variant.constexprs.items()},
        "aligned": list(variant.aligned),
        "target": [wanted.backend, wanted.capability or wanted.arch, wanted.warp],
        "options": {"num_warps": variant.num_warps, "num_stages": variant.num_stages, **options},
    }


def _encoded(value: Any) -> Any:
    value = value.value if isinstance(value, tl.constexpr) else value
    return {"dtype": value.name} if isinstance(value, tl.dtype) else value


def _inspection(name: str, gpu: str, answer: Mapping[str, Any]) -> Inspection:
    if "error" in answer:
        cause = FOLDERS.sub("", answer["error"])
        raise InspectError(f"{name} does not compile for {gpu}: {cause}")
    wanted = target(gpu)
    found = sass.instructions(answer["sass"], wanted.backend)
    spills = sass.widths(found, sass.SPILL)
    return Inspection(
        name=name,
        gpu=gpu,
        arch=wanted.arch,
        num_warps=answer["num_warps"],
        registers=answer["registers"],
        spill_instructions=sum(spills.values()),
        spill_bytes=sum(bits // 8 * count for bits, count in spills.items()),
        stack_bytes=answer["stack_bytes"],
        shared_bytes=answer["shared_bytes"],
        occupancy=_occupancy(wanted, answer),
        loads=sass.widths(found, sass.GLOBAL_LOAD),
        stores=sass.widths(found, sass.GLOBAL_STORE),
        bulk_copies=sass.bulk_copies(found),
        tensor_core_instructions=sass.tensor_core_instructions(found),
        instructions=dict(found.most_common()),
        ttgir=answer["ttgir"],
        ptx=answer["ptx"],
        sass=answer["sass"],
    )


def _occupancy(wanted: Target, answer: Mapping[str, Any]) -> Occupancy | None:
    if wanted.compute_capability not in MULTIPROCESSORS:
        return None
    threads = answer["num_warps"] * wanted.warp
    return occupancy(wanted.compute_capability, threads, answer["registers"], answer["shared_bytes"])
