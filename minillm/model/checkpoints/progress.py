"""One progress bar for every slow stage of getting a model, on stderr, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def byte_bar(label: str, total_bytes: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar from 0 to total_bytes; the body calls what it is given with the bytes done so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda done: progress.update(task, completed=min(done, total_bytes))
