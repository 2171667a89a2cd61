"""`minillm kernels`: what the compiler makes of our Triton kernels, for GPUs that need not be there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer

from minillm.errors import ConfigError, MinillmError

if TYPE_CHECKING:
    from minillm.kernels.instruments.table import Row
    from minillm.kernels.shipped import Shipped


class Show(StrEnum):
    """What to print of one variant."""

    summary = "summary"
    ttgir = "ttgir"
    ptx = "ptx"
    sass = "sass"


class WorseError(MinillmError):
    """A change makes a kernel worse than the table says it was."""


def kernels(
    names: Annotated[list[str] | None, typer.Argument(help="Variants whose names begin so. Default: all.")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help="rtx-4090, sm_90, gfx942, …; may be repeated. Default: sm_80, sm_89 and sm_90.")
    ] = None,
    show: Annotated[Show | None, typer.Option(help="Print this of one variant for one GPU, in place of the table.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, an object a variant and architecture.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Bring the repository's table up to date; refused if a kernel became worse.")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="With --write: even then.")] = False,
) -> None:
    """List our kernels as compiled for GPUs: registers, spills, occupancy, width of loads. None of the GPUs need be here."""
    if accept and not write:
        raise ConfigError("--accept belongs to --write")
    if write and (names or gpu or show):
        raise ConfigError("--write takes all kernels for all architectures; leave names, --gpu and --show out")
    try:
        from minillm.kernels.catalog import shipped
    except ModuleNotFoundError as e:
        if e.name != "triton":
            raise
        raise ConfigError(str(e)) from e
    from minillm.kernels.instruments import table

    if write:
        typer.echo(_write(shipped(), accept))
        return
    chosen = _chosen(shipped(), names)
    try:
        if show:
            typer.echo(_shown(chosen, gpu or [], show))
            return
        found = table.rows(table.pairs(chosen, gpu or table.PROMISED), table.recorded(), _progress)
    except ValueError as e:  # an unknown GPU, a kernel that does not compile
        raise ConfigError(str(e)) from e
    typer.echo(json.dumps([asdict(row) for row in found], indent=2) if as_json else _as_text(found))


def _as_text(found: Sequence[Row]) -> str:
    from minillm.kernels.instruments import table

    return f"{table.text(found)}\n\ncomputed: counts from the code that Triton {version('triton')} generates, nothing was run"


def _chosen(variants: Sequence[Shipped], names: Sequence[str] | None) -> list[Shipped]:
    if not names:
        return list(variants)
    for name in names:
        if not any(variant.name.startswith(name) for variant in variants):
            raise ConfigError(f"no kernel's name begins with {name!r}; `minillm kernels` lists them")
    return [variant for variant in variants if variant.name.startswith(tuple(names))]


def _shown(chosen: Sequence[Shipped], gpus: Sequence[str], show: Show) -> str:
    from minillm.kernels.instruments.inspect import inspect

    exact = [variant for variant in chosen if len(chosen) == 1]
    if not exact or len(gpus) > 1:
        raise ConfigError(f"--show prints one variant for one GPU, and this is {len(chosen)} for {max(len(gpus), 1)}")
    found = inspect(exact[0], *gpus)
    return str(found) if show is Show.summary else getattr(found, show.value)


def _write(variants: Sequence[Shipped], accept: bool) -> str:
    from minillm.kernels.instruments import table

    before = table.recorded()
    found = table.rows(table.pairs(variants), before, _progress)
    by_name = {variant.name: variant for variant in variants}
    complaints = [
        f"{row.name} for {row.arch}: {what}"
        for row in found
        for what in (
            *(table.faults(by_name[row.name], row) if row.arch in table.PROMISED else ()),
            *(table.worse(before[row.key], row) if row.key in before else ()),
        )
    ]
    if complaints and not accept:
        raise WorseError(f"{'; '.join(complaints)}. Mend it, state a reason in SHIPPED, or write it down with --accept")
    table.write(found)
    changed = sum(before.get(row.key) != row for row in found)
    return f"{len(found)} rows, {changed} of them new or changed, in {table.TABLE.parent.name}/{table.TABLE.name}"


def _progress(done: int, total: int, name: str) -> None:
    typer.echo(f"[{done}/{total}] compiled {name}", err=True)
