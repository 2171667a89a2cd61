"""Numbers with units, read and written without a guess: GB is 1e9 bytes, GiB is 2**30, a bit is not a byte.

    parse("24 GiB", "B")            25769803776.0
    parse("1008 GB/s", "B/s")       1.008e12
    bytes_text(16.06e9)             "16.06 GB"
    bytes_text(16.06e9, "GiB")      "14.96 GiB"

Symbols are those of SI and IEC, case matters: `Gb` could mean either and is refused, `Gbit` and `GB` are read.
"""

from __future__ import annotations

import math
import re

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
SMALL = {"": 1.0, "m": 1e-3, "µ": 1e-6, "u": 1e-6, "n": 1e-9}
BYTES = {f"{prefix}B": float(size) for prefix, size in (DECIMAL | BINARY).items()} | {
    f"{prefix}bit": size / 8 for prefix, size in (DECIMAL | BINARY).items()
}
FLOPS = {f"{prefix}FLOP": float(size) for prefix, size in DECIMAL.items()}
OPS = {f"{prefix}OP": float(size) for prefix, size in DECIMAL.items()}  # of whole numbers: int8 and int4 are not FLOPs
TOKENS = {"tokens": 1.0, "ktokens": 1e3, "Mtokens": 1e6}

# What each base unit may be written as. A rate is its amount and "/s".
UNITS: dict[str, dict[str, float]] = {
    "B": BYTES,
    "FLOP": FLOPS,
    "OP": OPS,
    "tokens": TOKENS,
    "s": {f"{prefix}s": size for prefix, size in SMALL.items()} | {"min": 60.0, "h": 3600.0},
    "Hz": {f"{prefix}Hz": float(size) for prefix, size in DECIMAL.items()},
    "W": {f"{prefix}W": float(size) for prefix, size in DECIMAL.items()},
}
UNITS |= {f"{base}/s": {f"{name}/s": size for name, size in UNITS[base].items()} for base in ("B", "FLOP", "OP", "tokens")}
AMBIGUOUS = {
    f"{prefix}b": f"write {prefix}bit for bits or {prefix}B for bytes"
    for prefix in ("", "k", "K", "M", "G", "T", "Ki", "Mi", "Gi")
}
AMBIGUOUS |= {prefix: f"write {prefix}B for 1000s or {prefix}iB for 1024s" for prefix in ("K", "M", "G", "T")}
AMBIGUOUS |= {"KB": "write kB for 1000 bytes or KiB for 1024"}
QUANTITY = re.compile(r"\s*([+-]?\d+(?:_\d+)*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ]\S*)\s*")


class UnitError(ValueError):
    """A quantity that cannot be read, or that has another unit than the one asked for."""


def parse(text: str, unit: str) -> float:
    """A quantity in base units. unit: the base expected: "B", "B/s", "FLOP", "FLOP/s", "OP/s", "tokens/s", "s", "Hz" or "W".

    Raises UnitError for a number without a unit, an unknown or ambiguous one, or one of another kind.
    """
    match = QUANTITY.fullmatch(text)
    if not match:
        raise UnitError(f"{text!r} is not a number followed by a unit, such as '24 GiB'")
    return convert(float(match[1]), match[2], unit)


def convert(value: float, name: str, unit: str) -> float:
    """value, given in `name` ("GB/s"), in the base unit `unit` ("B/s"). Raises UnitError as parse does."""
    if unit not in UNITS:
        raise UnitError(f"there is no base unit {unit!r}; choose one of {', '.join(UNITS)}")
    size = UNITS[unit].get(name)
    if size is not None:
        return value * size
    if hint := AMBIGUOUS.get(name.removesuffix("/s")):
        raise UnitError(f"{name!r} is ambiguous; {hint}")
    kind = next((base for base, names in UNITS.items() if name in names), None)
    why = f"a unit of {kind}, not of {unit}" if kind else f"not a unit of {unit}; examples: {', '.join(list(UNITS[unit])[:6])}"
    raise UnitError(f"{name!r} is {why}")


def bytes_text(num_bytes: float, unit: str | None = None) -> str:
    """Bytes with four significant digits, in the unit asked for ("GB", "GiB", ...), or in the decimal one that fits."""
    if unit is None:
        return _scaled(num_bytes, "B", DECIMAL)
    return f"{_digits(num_bytes / convert(1, unit, 'B'))} {unit}"


def flops_text(flops: float) -> str:
    """Floating-point operations: "61.6 TFLOP". Add "/s" yourself for a speed."""
    return _scaled(flops, "FLOP", DECIMAL)


def seconds_text(seconds: float) -> str:
    """A duration in s, ms, µs or ns: "15.93 ms". Longer ones stay in seconds, so that two can be compared."""
    for prefix in ("", "m", "µ"):
        if abs(seconds) >= SMALL[prefix]:
            return f"{_digits(seconds / SMALL[prefix])} {prefix}s"
    return f"{_digits(seconds / SMALL['n'])} ns" if seconds else "0 s"


def rate_text(tokens_per_s: float) -> str:
    """Tokens a second: "62.76 tokens/s"."""
    return f"{_digits(tokens_per_s)} tokens/s"


def positive(**values: float) -> None:
    """Refuse nonsense before it becomes a plausible number. Raises ValueError for a value that is not finite and above zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be above zero, got {value}")


def not_negative(**values: float) -> None:
    """Raises ValueError for a value that is not finite or is below zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must not be negative, got {value}")


def _scaled(value: float, base: str, prefixes: dict[str, int]) -> str:
    prefix = max((p for p, size in prefixes.items() if abs(value) >= size), key=prefixes.__getitem__, default="")
    return f"{_digits(value / prefixes[prefix])} {prefix}{base}"


def _digits(value: float) -> str:
    """Four significant digits, no exponent, thousands grouped."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
