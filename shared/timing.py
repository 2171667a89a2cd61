"""What `shared.benchmarking` answers with: a timing, or a refusal."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """Seconds a call: the median of the samples, the smallest and the largest, what no call at all takes, and the samples."""

    median: float
    low: float
    high: float
    floor: float
    samples: tuple[float, ...]


class TooFastError(ValueError):
    """The call takes no longer than what the measuring itself does: there is no number to report."""


def nothing_to_wait_for() -> None:
    """For work that is done when the call returns, as on a CPU. On a GPU: torch.cuda.synchronize."""
