"""A warp without a mask, for module 1.1's checks: 32 lanes that run alone, put together afterwards.

A lane by itself is ordinary Python. It notes where it is as a path of numbers that grow along the program, so that the warp's
trace is all lanes' notes in the order of the paths: whoever is behind goes first.
"""

from __future__ import annotations

from shared.simt import OPERATIONS


class Left(Exception):
    """A lane has exited."""


def alone(program: list, registers: dict, notes: list, prefix: tuple = ()) -> None:
    """Run one lane, changing its registers and adding (path, operation) to notes."""

    def value(operand):
        return registers.get(operand, 0) if isinstance(operand, str) else operand

    for i, (op, *arguments) in enumerate(program):
        here = (*prefix, i)
        match op:
            case "exit":
                notes.append((here, op))
                raise Left
            case "if":
                notes.append((here, op))
                side = 0 if value(arguments[0]) else 1
                alone(arguments[1 + side], registers, notes, (*here, side))
            case "while":
                for turn in range(10_000):
                    notes.append(((*here, 2 * turn), op))
                    if not value(arguments[0]):
                        break
                    alone(arguments[1], registers, notes, (*here, 2 * turn + 1))
            case _:
                notes.append((here, op))
                registers[arguments[0]] = OPERATIONS[op](value(arguments[1]), value(arguments[2]))


def put_together(program: list, inputs: dict, threads: int) -> tuple[list[dict], list[tuple]]:
    """Each lane's registers, and the warp's trace as (operation, lanes)."""
    registers, trace = [], {}
    for lane in range(32):
        mine, notes = {"lane": lane} | {name: values[lane] for name, values in inputs.items()}, []
        if lane < threads:
            try:
                alone(program, mine, notes)
            except Left:
                pass
        registers.append(mine)
        for at in notes:
            trace.setdefault(at, []).append(lane)
    return registers, [(op, tuple(lanes)) for (_, op), lanes in sorted(trace.items())]
