"""Where a value in a table comes from, and whether anybody looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# read: in the source itself; copy: in a second-hand copy of it; computed: from values that were read; memory: nobody looked
HOW = ("read", "copy", "computed", "memory")


class TableError(ValueError):
    """A table that cannot be read, or that lacks what was asked of it."""


class UnverifiedError(TableError):
    """A value that was written down from memory, asked for where only looked-up ones will do."""


@dataclass(frozen=True)
class Source:
    """title: what was read, with its version; date: YYYY[-MM[-DD]], of the source or of the reading; how: one of HOW."""

    id: str
    title: str
    date: str
    how: str

    @property
    def verified(self) -> bool:
        return self.how != "memory"


def read_sources(raw: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Source]:
    """The [sources] table of a file called `where`. Raises TableError for an entry that lacks something."""
    sources = {}
    for name, entry in raw.items():
        try:
            sources[name] = Source(name, **entry)
        except TypeError as e:
            raise TableError(f"{where}, [sources.{name}]: {e}") from e
        if sources[name].how not in HOW:
            raise TableError(f"{where}, [sources.{name}]: how is {sources[name].how!r}, not one of {', '.join(HOW)}")
    return sources


def source_named(sources: Mapping[str, Source], name: str) -> Source:
    """Raises TableError for a name that [sources] does not have."""
    if name not in sources:
        raise TableError(f"there is no source {name!r}; [sources] has {', '.join(sources)}")
    return sources[name]
