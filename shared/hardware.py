"""Accelerators from shared/hardware.toml: peaks, bandwidths, memory, with the source of every value.

    gpu = load("rtx-4090")
    gpu.ceilings("bf16")            Ceilings(peak_flops=165.2e12, bandwidth=1.008e12)
    gpu.memory_bytes                25757220864.0: 24,564 MiB, not 24e9
    gpu.fact("l2").source.title     who says so

A value written from memory is refused unless asked for with allow_unverified=True. Peaks are dense, for one format and one
accumulate format: that is what a peak belongs to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared.sources import Source, TableError, UnverifiedError, read_sources, source_named
from shared.units import convert, positive

TABLE = Path(__file__).with_name("hardware.toml")

# What a table entry may state, and the base unit it is given back in ("" for a count).
FACTS = {
    "memory": "B",
    "bandwidth": "B/s",
    "l2": "B",
    "shared_memory": "B",  # per multiprocessor, the most that can be configured
    "multiprocessors": "",
    "power": "W",
    "gemm_share": "",  # best measured share of the bf16 peak in a matrix product
    "price_per_hour": "$/h",
}
DTYPES = ("bf16", "fp16", "fp8", "int8", "fp4")
DIRECTIONS = ("each way", "both ways")


@dataclass(frozen=True)
class Fact:
    """A value in base units, where it comes from, and what else one must know to use it."""

    value: float
    source: Source
    note: str = ""


@dataclass(frozen=True)
class Peak:
    """dtype: of the operands; accumulate: "fp32", "fp16" or "int32"; fact.value: FLOP/s (OP/s for int8), dense."""

    dtype: str
    accumulate: str
    fact: Fact


@dataclass(frozen=True)
class Link:
    """kind: "NVLink 4"; fact.value: bytes/s. direction: whether that is "each way" or "both ways" added up."""

    kind: str
    direction: str
    fact: Fact

    @property
    def each_way(self) -> float:
        """Bytes/s in one direction, verified or not."""
        return self.fact.value / (1 if self.direction == "each way" else 2)


@dataclass(frozen=True)
class Ceilings:
    """What a roofline needs of a machine. peak_flops: FLOP/s; bandwidth: bytes/s. Both above zero, or ValueError."""

    peak_flops: float
    bandwidth: float

    def __post_init__(self):
        positive(peak_flops=self.peak_flops, bandwidth=self.bandwidth)


@dataclass(frozen=True)
class Accelerator:
    """One device. Values that are not in the table raise TableError; those from memory UnverifiedError, unless allowed."""

    id: str
    name: str
    facts: Mapping[str, Fact]
    peaks: tuple[Peak, ...]
    links: tuple[Link, ...]
    allow_unverified: bool = False

    def fact(self, name: str) -> Fact:
        """Any of FACTS with its source, verified or not."""
        if name not in self.facts:
            raise TableError(f"{self.id}: {TABLE.name} states no {name!r}; it has {', '.join(self.facts)}")
        return self.facts[name]

    def value(self, name: str) -> float:
        """One of FACTS, in its base unit."""
        return self._checked(name, self.fact(name))

    @property
    def memory_bytes(self) -> float:
        return self.value("memory")

    @property
    def bandwidth(self) -> float:
        """Bytes/s between memory and chip."""
        return self.value("bandwidth")

    def peak(self, dtype: str = "bf16", accumulate: str | None = None) -> float:
        """Dense FLOP/s (OP/s for int8). accumulate: "fp32" unless dtype is int8, which has "int32"."""
        accumulate = accumulate or ("int32" if dtype == "int8" else "fp32")
        for peak in self.peaks:
            if (peak.dtype, peak.accumulate) == (dtype, accumulate):
                return self._checked(f"the {dtype} peak", peak.fact)
        known = ", ".join(f"{p.dtype} into {p.accumulate}" for p in self.peaks) or "none"
        raise TableError(f"{self.id}: {TABLE.name} states no peak for {dtype} accumulated in {accumulate}; it has {known}")

    def ceilings(self, dtype: str = "bf16", accumulate: str | None = None) -> Ceilings:
        """Peak and bandwidth for a roofline."""
        return Ceilings(self.peak(dtype, accumulate), self.bandwidth)

    def link_bandwidth(self, kind: str) -> float:
        """Bytes/s in one direction over the link whose kind begins so: "NVLink", "PCIe"."""
        for link in self.links:
            if link.kind.startswith(kind):
                self._checked(link.kind, link.fact)
                return link.each_way
        known = ", ".join(link.kind for link in self.links) or "none"
        raise TableError(f"{self.id}: {TABLE.name} states no link {kind!r}; it has {known}")

    def _checked(self, what: str, fact: Fact) -> float:
        if not fact.source.verified and not self.allow_unverified:
            raise UnverifiedError(
                f"{self.id}: {what} ({fact.value:g}) is unverified ({fact.source.title}); "
                "load it with allow_unverified=True and say so beside the result"
            )
        return fact.value


def load(name: str, *, allow_unverified: bool = False) -> Accelerator:
    """An accelerator by its id, such as "rtx-4090" or "h100-sxm". Raises TableError for an unknown one."""
    table = _table()
    if name not in table:
        raise TableError(f"there is no accelerator {name!r} in {TABLE.name}; it has {', '.join(table)}")
    return replace(table[name], allow_unverified=allow_unverified)


def names() -> tuple[str, ...]:
    """All ids, in the order of the table."""
    return tuple(_table())


@cache
def _table() -> Mapping[str, Accelerator]:
    raw = tomllib.loads(TABLE.read_text("utf-8"))
    sources = read_sources(raw.pop("sources"), TABLE.name)
    return MappingProxyType({name: _accelerator(name, entry, sources) for name, entry in raw.items()})


def _accelerator(name: str, entry: dict[str, Any], sources: Mapping[str, Source]) -> Accelerator:
    try:
        label = entry.pop("name")
        peaks = tuple(_peak(raw, sources) for raw in entry.pop("peaks", []))
        links = tuple(_link(raw, sources) for raw in entry.pop("links", []))
        if unknown := entry.keys() - FACTS.keys():
            raise TableError(f"no fact is called {', '.join(sorted(unknown))}; there are {', '.join(FACTS)}")
        facts = {what: _fact(raw, FACTS[what], sources) for what, raw in entry.items()}
    except (KeyError, TypeError, ValueError) as e:
        raise TableError(f"{TABLE.name}, [{name}]: {f'{e} is missing' if isinstance(e, KeyError) else e}") from e
    return Accelerator(name, label, MappingProxyType(facts), peaks, links)


def _peak(raw: dict[str, Any], sources: Mapping[str, Source]) -> Peak:
    dtype, accumulate = raw.pop("dtype"), raw.pop("accumulate")
    if dtype not in DTYPES:
        raise TableError(f"a peak's dtype is {dtype!r}, not one of {', '.join(DTYPES)}")
    return Peak(dtype, accumulate, _fact(raw, "OP/s" if dtype == "int8" else "FLOP/s", sources))


def _link(raw: dict[str, Any], sources: Mapping[str, Source]) -> Link:
    kind, direction = raw.pop("kind"), raw.pop("direction")
    if direction not in DIRECTIONS:
        raise TableError(f"a link's direction is {direction!r}, not one of {', '.join(DIRECTIONS)}")
    return Link(kind, direction, _fact(raw, "B/s", sources))


def _fact(raw: dict[str, Any], unit: str, sources: Mapping[str, Source]) -> Fact:
    """{ value, unit, source, note }; without `unit`, the value is a count, a share, watts or dollars an hour."""
    raw = dict(raw)
    value, given = raw.pop("value"), raw.pop("unit", None)
    if given is None and unit not in ("", "W", "$/h"):
        raise TableError(f"the value {value} needs a unit of {unit}")
    number = float(value) if given is None else convert(value, given, unit)
    return Fact(number, source_named(sources, raw.pop("source")), **raw)
