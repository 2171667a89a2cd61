"""Counts the bytes that kernels ask of global memory, tensor by tensor, while they run in Triton's interpreter.

    with trace(x=x) as counted:
        y = softmax(x)
    report = counted.report()
    report["x"].load_bytes          what the kernels asked for; masked lanes ask for nothing
    report["x"].unique_load_bytes   how much of it was different bytes
    report.total.reuse              their quotient: how often a byte was loaded
    print(report)                   a table

Tensors that were not named are found among the arguments of each launch, and go by the kernel's name for them.

Bytes are exact. Coalescing is a model: the interpreter has no threads, so 32 neighbouring lanes of a block, along the axis whose
addresses lie closest, stand for the warp that asks together, which is how Triton lays a block out; it says which share of the
32-byte sectors so moved was asked for. Caches are not modelled: what a GPU's memory delivers lies between the unique bytes and
the requested ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
from minillm.kernels.instruments.regions import Elsewhere, Region
from minillm.kernels.runtime import INTERPRETED
from torch import Tensor

SECTOR = 32  # bytes that a GPU's memory delivers at once
WARP = 32  # lanes


@dataclass(frozen=True)
class Traffic:
    """Bytes a tensor was asked for and given. What an atomic operation touches counts as atomic only."""

    load_bytes: int = 0
    store_bytes: int = 0
    atomic_bytes: int = 0
    unique_load_bytes: int = 0
    unique_store_bytes: int = 0  # stored or changed by an atomic operation
    sectors: int = 0  # moved, by the model: 32 bytes each
    fewest_sectors: int = 0  # that would have done, had the lanes of each warp lain side by side

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Traffic)))

    @property
    def bytes(self) -> int:
        return self.load_bytes + self.store_bytes + self.atomic_bytes

    @property
    def reuse(self) -> float:
        """How often a byte was loaded, on average; 0 if none was."""
        return self.load_bytes / self.unique_load_bytes if self.unique_load_bytes else 0.0

    @property
    def coalescing(self) -> float:
        """Share of the moved sectors that an ideal arrangement needs: 1.0 is best, 1/8 is every 4 bytes from another sector."""
        return self.fewest_sectors / self.sectors if self.sectors else 1.0


@dataclass(frozen=True)
class Report:
    """Traffic by tensor. report["x"] is that of x; a tensor that nothing touched has zeros. KeyError for an unknown name."""

    tensors: Mapping[str, Traffic]

    def __getitem__(self, name: str) -> Traffic:
        return self.tensors[name]

    @property
    def total(self) -> Traffic:
        return sum(self.tensors.values(), Traffic())

    @property
    def load_bytes(self) -> int:
        return self.total.load_bytes

    @property
    def store_bytes(self) -> int:
        return self.total.store_bytes

    def __str__(self) -> str:
        head = ("tensor", "loaded", "unique", "reuse", "stored", "unique", "atomic", "coalescing")
        rows = [head, *(_row(name, each) for name, each in self.tensors.items()), _row("total", self.total)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        aligned = [
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))] for row in rows
        ]
        return "\n".join("  ".join(row) for row in aligned)


def _row(name: str, t: Traffic) -> tuple[str, ...]:
    numbers = (t.load_bytes, t.unique_load_bytes, f"{t.reuse:.2f}x", t.store_bytes, t.unique_store_bytes, t.atomic_bytes)
    return (name, *(each if isinstance(each, str) else f"{each:,}" for each in numbers), f"{t.coalescing:.0%}")


@contextmanager
def trace(**tensors: Tensor) -> Iterator[Trace]:
    """Counts the traffic of every kernel launched inside. tensors: those to tell apart by a name of your choice.

    Overlapping tensors: an address belongs to the first named that holds it. Raises RuntimeError where kernels run natively.
    """
    if not INTERPRETED:
        raise RuntimeError("traffic is counted in Triton's interpreter: start Python with TRITON_INTERPRET=1")
    from triton.runtime import interpreter

    traced = Trace(tensors)
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    replaced = {
        (builder, "create_masked_load"): traced.counting(builder.create_masked_load, "load", mask=1),
        (builder, "create_masked_store"): traced.counting(builder.create_masked_store, "store", mask=2),
        (builder, "create_atomic_rmw"): traced.counting(builder.create_atomic_rmw, "atomic", pointer=1, mask=3),
        (builder, "create_atomic_cas"): traced.counting(builder.create_atomic_cas, "atomic"),
        (executor, "__call__"): traced.naming(executor.__call__),
    }
    before = {(owner, name): vars(owner).get(name) for owner, name in replaced}
    try:
        for (owner, name), function in replaced.items():
            setattr(owner, name, function)
        yield traced
    finally:
        for (owner, name), function in before.items():
            if function is None:
                delattr(owner, name)  # the class has it
            else:
                setattr(owner, name, function)


class Trace:
    """What trace() counts so far."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._regions = [Region(name, tensor) for name, tensor in tensors.items()]
        self._asked_for = set(tensors)
        self._elsewhere = Elsewhere("(others)")  # reached through a table of pointers, say
        self._counts: dict[tuple[str, str], np.ndarray] = {}  # (tensor, kind): requested bytes, sectors, fewest sectors
        self._counting = True

    def report(self) -> Report:
        places = [*self._regions, self._elsewhere]
        found = {place.name: self._traffic(place) for place in places}
        return Report({name: traffic for name, traffic in found.items() if traffic.bytes or name in self._asked_for})

    def _traffic(self, place: Region | Elsewhere) -> Traffic:
        counts = {kind: self._counts.get((place.name, kind), np.zeros(3, np.int64)) for kind in ("load", "store", "atomic")}
        requested = [int(each[0]) for each in counts.values()]
        sectors, fewest = (int(each) for each in sum(counts.values())[1:])
        return Traffic(*requested, place.touched(["load"]), place.touched(["store", "atomic"]), sectors, fewest)

    def naming(self, launch: Callable) -> Callable:
        """A kernel's launch that first makes its tensors known under their arguments' names."""

        def named(executor, *args, **kwargs):
            for argument, value in [*zip(executor.arg_names, args, strict=False), *kwargs.items()]:
                tensor = getattr(value, "base", value) if not isinstance(value, Tensor) else value  # a descriptor has a base
                if isinstance(tensor, Tensor) and not any(region.is_of(tensor) for region in self._regions):
                    taken = {region.name for region in self._regions}
                    names = (argument if i == 1 else f"{argument}_{i}" for i in range(1, len(taken) + 2))
                    self._regions.append(Region(next(name for name in names if name not in taken), tensor))
            return launch(executor, *args, **kwargs)

        return named

    def counting(self, access: Callable, kind: str, *, pointer: int = 0, mask: int | None = None) -> Callable:
        """An operation of the interpreter that counts, then does what it did. pointer, mask: positions of its arguments."""

        def counted(*args, **kwargs):
            if not self._counting:
                return access(*args, **kwargs)
            active = None if mask is None else args[mask]
            self._add(kind, args[pointer], active)
            self._counting = False  # what it is made of is not counted again
            try:
                return access(*args, **kwargs)
            finally:
                self._counting = True

        return counted

    def _add(self, kind: str, pointers, mask) -> None:
        addresses = np.asarray(pointers.data)
        active = np.ones(addresses.shape, bool) if mask is None else np.broadcast_to(np.asarray(mask.data, bool), addresses.shape)
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)  # a bool takes a byte
        for place in [*self._regions, self._elsewhere]:
            if not active.any():
                return
            here = active & place.holds(addresses)
            if here.any():
                count = self._counts.setdefault((place.name, kind), np.zeros(3, np.int64))
                count += (int(here.sum()) * width, *_sectors(addresses, here, width))
                place.touch(kind, addresses[here], width)
                active = active & ~here


def _sectors(addresses: np.ndarray, active: np.ndarray, width: int) -> tuple[int, int]:
    """(sectors that the warps of one block touch, the fewest they could). addresses: any shape; active: bool, same shape."""
    first = addresses.ravel()[0].astype(np.int64)
    strides = [
        abs(int(np.take(addresses, 1, axis).ravel()[0].astype(np.int64) - first)) if n > 1 else 0
        for axis, n in enumerate(addresses.shape)
    ]
    slowest_first = sorted(range(addresses.ndim), key=lambda axis: (strides[axis] > 0, -strides[axis]))
    flat, on = (np.transpose(each, slowest_first).ravel() for each in (addresses, active))
    lanes = -(-flat.size // WARP) * WARP
    nowhere = np.iinfo(np.uint64).max
    sector = np.full(lanes, nowhere, np.uint64)
    sector[: flat.size] = np.where(on, flat // SECTOR, nowhere)
    sector = np.sort(sector.reshape(-1, WARP), axis=1)
    new = np.concatenate([np.ones((len(sector), 1), bool), sector[:, 1:] != sector[:, :-1]], axis=1) & (sector != nowhere)
    requested = (sector != nowhere).sum(axis=1) * width
    return int(new.sum()), int(np.minimum(-(-requested // SECTOR), new.sum(axis=1)).sum())
