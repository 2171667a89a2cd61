"""A warp, slowly: 32 lanes that share one instruction stream, and a mask that says which of them it is for (SIMT).

    ABS = [
        ("less", "negative", "x", 0),
        ("if", "negative", [("sub", "x", 0, "x")], []),
    ]
    run = run_warp(ABS, {"x": [-5, 7] * 16})
    run.registers["x"]      [5, 7, 5, 7, ...]
    run.issued              3: less, if, sub
    run.utilisation         0.83: the sub was for half of the lanes

A program is a list of instructions. A register holds one whole number a lane; an operand is a register's name or a number.

    (op, target, a, b)                  target = a op b; op is one of OPERATIONS
    ("if", register, then, otherwise)   two programs: the first for lanes where the register is not 0, the second for the others
    ("while", register, body)           again and again, for lanes where the register is not 0
    ("exit",)                           the lane has finished

What it leaves out: time. An instruction costs one issue here, whether it adds or waits for memory, and nobody takes turns with
other warps. Compilers also turn short branches into predicated instructions, which have a mask of their own, and chips from Volta
on may interleave the two sides of a branch: neither lets both sides share an issue.
After "SIMT architecture" in the CUDA C++ Programming Guide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shared.concurrency import LANES

Program = Sequence[tuple]
OPERATIONS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "mod": operator.mod,
        "less": lambda a, b: int(a < b),
        "equal": lambda a, b: int(a == b),
    }
)


@dataclass(frozen=True)
class Issue:
    """One instruction sent out: its name, and the lanes it is for, in ascending order."""

    op: str
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class WarpRun:
    """registers: {name: a number for each of 32 lanes} at the end. trace: every issue, in order."""

    registers: Mapping[str, Sequence[int]]
    trace: Sequence[Issue]

    @property
    def issued(self) -> int:
        """Instructions sent out: what the warp's run costs."""
        return len(self.trace)

    @property
    def utilisation(self) -> float:
        """Share of the lanes that an instruction was for, on average. ValueError if there was none."""
        if not self.trace:
            raise ValueError("nothing was issued, so there is no average")
        return sum(len(issue.lanes) for issue in self.trace) / (LANES * len(self.trace))


def run_warp(
    program: Program, inputs: Mapping[str, Sequence[int]] | None = None, threads: int = 32, limit: int = 10_000
) -> WarpRun:
    """Run a program for one warp.

    inputs: registers to begin with, 32 numbers each; they are not changed. Beside them there is "lane": 0, 1, ... 31. A register
    that nobody has written holds 0 in every lane.
    threads: lanes below this number take part, the others never do (the last warp of a block of 40 threads has 8).
    limit: instructions that may be issued.

    Raises ValueError for threads outside 1 to 32, an input of another length, and an unknown instruction once it is reached;
    RuntimeError when more than `limit` would be issued.
    """
    if not 1 <= threads <= LANES:
        raise ValueError(f"a warp has 1 to {LANES} threads, not {threads}")
    registers = {"lane": list(range(LANES))} | {name: list(values) for name, values in (inputs or {}).items()}
    if wrong := [name for name, values in registers.items() if len(values) != LANES]:
        raise ValueError(f"input {wrong[0]!r} has {len(registers[wrong[0]])} values; it needs one for each of {LANES} lanes")
    warp = _Warp(registers, limit)
    warp.run(program, list(range(threads)))
    return WarpRun(warp.registers, tuple(warp.trace))


class _Warp:
    def __init__(self, registers: dict[str, list[int]], limit: int):
        self.registers = registers
        self.limit = limit
        self.trace: list[Issue] = []

    def run(self, program: Program, lanes: list[int]) -> list[int]:
        """The program for these lanes; returns those of them that have not left for good."""
        for op, *arguments in program:
            if not lanes:
                break
            self.issue(op, lanes)
            match op:
                case "exit":
                    lanes = []
                case "if":
                    condition, then, otherwise = arguments
                    yes, no = self.split(condition, lanes)
                    lanes = sorted(self.run(then, yes) + self.run(otherwise, no))
                case "while":
                    lanes = self.loop(*arguments, lanes)
                case _:
                    self.compute(op, *arguments, lanes)
        return lanes

    def loop(self, condition: str, body: Program, lanes: list[int]) -> list[int]:
        inside, done = self.split(condition, lanes)
        while inside:
            inside = self.run(body, inside)
            if inside:
                self.issue("while", inside)
                inside, left = self.split(condition, inside)
                done += left
        return sorted(done)

    def compute(self, op: str, target: str, a: str | int, b: str | int, lanes: list[int]) -> None:
        for lane in lanes:  # the others' operands are not even looked at
            value = OPERATIONS[op](self.value(a, lane), self.value(b, lane))
            self.registers.setdefault(target, [0] * LANES)[lane] = value

    def split(self, condition: str, lanes: list[int]) -> tuple[list[int], list[int]]:
        """Lanes where the register is not 0, and the others."""
        yes = [lane for lane in lanes if self.value(condition, lane)]
        return yes, [lane for lane in lanes if lane not in yes]

    def value(self, operand: str | int, lane: int) -> int:
        return self.registers[operand][lane] if operand in self.registers else 0 if isinstance(operand, str) else operand

    def issue(self, op: str, lanes: list[int]) -> None:
        if op not in (*OPERATIONS, "if", "while", "exit"):
            raise ValueError(f"there is no instruction {op!r}; there are {', '.join(OPERATIONS)}, if, while and exit")
        if len(self.trace) >= self.limit:
            raise RuntimeError(f"more than {self.limit} instructions: a loop that never ends, or a higher limit is needed")
        self.trace.append(Issue(op, tuple(lanes)))
