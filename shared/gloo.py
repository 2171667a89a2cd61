"""The same transport over sockets: torch.distributed's gloo, for ranks that are threads or processes of one machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from shared.transports import PeerLost, Pending


class GlooTransport:
    """One rank of a gloo group on the loopback interface. shared.transports.Transport says what isend and recv promise.

    store: where the ranks find one another: a dist.HashStore for threads of one process, a dist.FileStore for processes.
    timeout: seconds after which a silent peer counts as lost. Raises PeerLost if the others do not come within that time.
    """

    def __init__(self, store: Any, rank: int, size: int, *, timeout: float = 10):
        self.rank, self.size = rank, size
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=timeout)
        try:
            self._group = dist.ProcessGroupGloo(store, rank, size, options)
        except RuntimeError as e:
            raise PeerLost(f"rank {rank}: not all of {size} ranks have come: {_first_line(e)}") from e

    def isend(self, values: np.ndarray, to: int) -> Pending:
        if not len(values):  # gloo has no empty messages; recv expects none either
            return _Done()
        tensor = torch.from_numpy(values)
        return _GlooPending(self._call(to, self._group.send, [tensor], to, 0), self.rank, to, tensor)

    def recv(self, out: np.ndarray, source: int) -> None:
        if len(out):
            tensor = torch.from_numpy(out)
            _GlooPending(self._call(source, self._group.recv, [tensor], source, 0), self.rank, source, tensor).wait()

    def all_reduce(self, values: np.ndarray) -> None:
        """gloo's own, in place: the sum of everyone's values. Raises PeerLost."""
        tensor = torch.from_numpy(values)
        _GlooPending(self._call(None, self._group.allreduce, [tensor]), self.rank, None, tensor).wait()

    def _call(self, peer: int | None, begin: Any, *args: Any) -> Any:
        try:
            return begin(*args)
        except RuntimeError as e:
            raise _lost(self.rank, peer, e) from e


@dataclass(frozen=True)
class _GlooPending:
    work: Any
    rank: int
    peer: int | None
    tensor: torch.Tensor  # held: gloo reads or writes its memory until the work is done

    def wait(self) -> None:
        try:
            self.work.wait()
        except RuntimeError as e:
            raise _lost(self.rank, self.peer, e) from e


class _Done:
    def wait(self) -> None:
        pass


def _lost(rank: int, peer: int | None, error: Exception) -> PeerLost:
    return PeerLost(f"rank {rank}: {'a peer' if peer is None else f'rank {peer}'} is gone: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """gloo's message without the place in its source, and without its advice."""
    return str(error).split("] ", 1)[-1].split(". ")[0].splitlines()[0]
