"""Sending arrays between ranks: what a transport is, and one whose ranks are threads of this process.

    run_ranks(lambda transport: ring_all_reduce(np.ones(5) * transport.rank, transport), size=3)

A rank is one of `size` equal partners, numbered from 0. The transport in memory behaves like the strictest real one: it keeps no
copies, so a message is delivered when its receiver takes it and not before. It needs no clock to notice that everybody waits for
somebody, and it can let a rank die at a chosen moment. shared/gloo.py has the same over sockets.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

PATIENCE = 20  # errors a rank may ignore before its thread is stopped


class PeerLost(ConnectionError):
    """The other side is gone, or silent for longer than the transport waits."""


class Pending(Protocol):
    """A message under way."""

    def wait(self) -> None:
        """Return when the array may be changed again: the receiver has it. Raises PeerLost if it never will."""


class Transport(Protocol):
    """One rank's connection to all others."""

    rank: int
    size: int

    def isend(self, values: np.ndarray, to: int) -> Pending:
        """Begin to send a one-dimensional array and return at once. It must not change until wait() of the result returns."""

    def recv(self, out: np.ndarray, source: int) -> None:
        """Fill `out` with the next message from `source`, which must be as long. Waits for it; raises PeerLost."""


class _Stop(BaseException):
    """Ends a rank's thread; no `except Exception` holds it up."""


@dataclass(eq=False)
class _Message:
    values: np.ndarray
    source: int
    to: int
    taken: bool = False
    waited_for: bool = False


@dataclass
class MemoryNetwork:
    """What lies between the ranks. dies: {rank: its how-manieth call of isend or recv, from 0, kills it}.

    messages: (source, to, elements) of every isend, in order. abandoned: (source, to) of those that nobody waited for.
    """

    size: int
    dies: Mapping[int, int] = field(default_factory=dict)
    messages: list[tuple[int, int, int]] = field(default_factory=list)
    abandoned: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self):
        self._changed = threading.Condition()
        self._mail: dict[tuple[int, int], deque[_Message]] = {}
        self._sent: list[_Message] = []
        self._gone: set[int] = set()
        self._waiting: dict[int, Callable[[], bool]] = {}
        self._calls = [0] * self.size
        self._errors = [0] * self.size
        self._is_stuck = self._is_stopped = False

    def send(self, message: _Message) -> None:
        with self._changed:
            self._count(message.source)
            self.messages.append((message.source, message.to, len(message.values)))
            self._sent.append(message)
            self._mail.setdefault((message.source, message.to), deque()).append(message)
            self._changed.notify_all()

    def receive(self, out: np.ndarray, rank: int, source: int) -> None:
        with self._changed:
            self._count(rank)
            mail = self._mail.setdefault((source, rank), deque())
            self._wait(rank, lambda: bool(mail), source)
            message = mail.popleft()
            if (message.values.shape, message.values.dtype) != (out.shape, out.dtype):
                got, room = (f"{len(a)} elements of {a.dtype}" for a in (message.values, out))
                raise ValueError(f"rank {rank} has room for {room}, and rank {source} sent {got}")
            out[:] = message.values
            message.taken = True
            self._changed.notify_all()

    def until_taken(self, message: _Message) -> None:
        with self._changed:
            message.waited_for = True
            self._wait(message.source, lambda: message.taken, message.to)

    def leave(self, rank: int) -> None:
        """The rank is done, or dead: what it sent and did not wait for is lost, and whoever waits for it learns so."""
        with self._changed:
            self._gone.add(rank)
            self.abandoned += [(m.source, m.to) for m in self._sent if m.source == rank and not m.waited_for]
            for (source, _), mail in self._mail.items():
                if source == rank:
                    mail.clear()
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _count(self, rank: int) -> None:
        if self._is_stopped or self.dies.get(rank) == self._calls[rank]:
            raise _Stop
        self._calls[rank] += 1

    def _wait(self, rank: int, is_ready: Callable[[], bool], peer: int) -> None:
        """Hold until is_ready. If every rank that is left holds and none is ready, nobody ever will be."""
        self._waiting[rank] = lambda: is_ready() or peer in self._gone
        try:
            while not is_ready():
                alive = set(range(self.size)) - self._gone
                everybody_waits = alive <= self._waiting.keys()
                if everybody_waits and not any(ready() for ready in self._waiting.values()):
                    self._is_stuck = True
                    self._changed.notify_all()
                if self._is_stopped or self._errors[rank] > PATIENCE:
                    raise _Stop
                if peer in self._gone or self._is_stuck:
                    self._errors[rank] += 1
                    why = "every rank waits for another: a deadlock" if self._is_stuck else f"rank {peer} is gone"
                    raise PeerLost(f"rank {rank}: {why}")
                self._changed.wait()
        finally:
            del self._waiting[rank]


@dataclass(frozen=True)
class MemoryTransport:
    """A rank of a MemoryNetwork."""

    network: MemoryNetwork
    rank: int

    @property
    def size(self) -> int:
        return self.network.size

    def isend(self, values: np.ndarray, to: int) -> Pending:
        message = _Message(values, self.rank, to)
        self.network.send(message)
        return _MemoryPending(self.network, message)

    def recv(self, out: np.ndarray, source: int) -> None:
        self.network.receive(out, self.rank, source)


@dataclass(frozen=True)
class _MemoryPending:
    network: MemoryNetwork
    message: _Message

    def wait(self) -> None:
        self.network.until_taken(self.message)


def run_ranks(
    function: Callable[[MemoryTransport], Any], size: int, *, network: MemoryNetwork | None = None, timeout: float = 20
) -> list[Any]:
    """function(transport) on `size` ranks at once, each a thread. What each returned, or the exception that it raised.

    network: to read messages from, or to let ranks die; None: a fresh one. A rank that died by `dies` gives None. One that is
    still busy after `timeout` seconds is stopped and gives a TimeoutError.
    """
    network = network or MemoryNetwork(size)
    outcomes: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            outcomes[rank] = function(MemoryTransport(network, rank))
        except _Stop:
            if rank not in network.dies:
                outcomes[rank] = TimeoutError(f"rank {rank} went on and on after its peer was gone")
        except Exception as e:  # noqa: BLE001  handed to the caller
            outcomes[rank] = e
        finally:
            network.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(timeout)
        if thread.is_alive():
            network.stop()
            outcomes[rank] = TimeoutError(f"rank {rank} was still busy after {timeout:g} s")
    return outcomes
