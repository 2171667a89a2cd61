"""Ranks in memory and over sockets: what is delivered, what a deadlock, a dead rank and a silent one come to."""

import threading
import time

import numpy as np
import pytest

from shared.rank_processes import RankError, run_rank_processes
from shared.ring import ring_all_reduce
from shared.transports import MemoryNetwork, PeerLost, run_ranks


def ring(transport):
    return ring_all_reduce(np.arange(5.0) + transport.rank, transport)


def test_a_ring_in_memory():
    network = MemoryNetwork(3)
    for result in run_ranks(ring, 3, network=network):
        assert result.tolist() == [3, 6, 9, 12, 15]
    assert len(network.messages) == 12 and network.abandoned == []


def test_all_send_first_is_a_deadlock_without_a_clock():
    def greedy(transport):
        transport.isend(np.ones(1), 1 - transport.rank).wait()

    results = run_ranks(greedy, 2)
    assert [isinstance(r, PeerLost) and "deadlock" in str(r) for r in results] == [True, True]


@pytest.mark.parametrize("at", range(8))
def test_a_death_reaches_everybody(at):
    results = run_ranks(ring, 3, network=MemoryNetwork(3, dies={1: at}))
    assert results[1] is None
    for rank in (0, 2):
        assert isinstance(results[rank], PeerLost) or results[rank].tolist() == [3, 6, 9, 12, 15]
    if at < 7:  # later deaths leave nobody in want
        assert any(isinstance(results[rank], PeerLost) for rank in (0, 2))


def test_a_message_is_read_when_it_is_taken():
    def rewrite(transport):
        values = np.zeros(1)
        if transport.rank == 0:
            sending = transport.isend(values, 1)
            values[0] = 7.0  # too early: nobody has waited
            transport.recv(np.empty(1), 1)
            sending.wait()
            return None
        transport.isend(values, 0).wait()
        transport.recv(values, 0)
        return values[0]

    assert run_ranks(rewrite, 2) == [None, 7.0]


def test_what_nobody_waited_for_is_lost():
    def careless(transport):
        if transport.rank == 0:
            transport.isend(np.ones(1), 1)
        else:
            while 0 not in network._gone:
                time.sleep(0.001)
            transport.recv(np.empty(1), 0)

    network = MemoryNetwork(2)
    assert isinstance(run_ranks(careless, 2, network=network)[1], PeerLost)
    assert network.abandoned == [(0, 1)]


def test_another_length_or_dtype_is_refused():
    def unequal(transport):
        if transport.rank == 0:
            transport.isend(np.ones(2), 1).wait()
        else:
            transport.recv(np.ones(3), 0)

    results = run_ranks(unequal, 2)
    assert isinstance(results[1], ValueError) and "room for 3 elements of float64" in str(results[1])


def test_endless_retries_end():
    def stubborn(transport):
        while transport.rank == 0:
            try:
                transport.recv(np.empty(1), 1)
            except PeerLost:
                continue

    assert isinstance(run_ranks(stubborn, 2)[0], TimeoutError)


def test_a_busy_rank_is_given_up():
    release = threading.Event()
    results = run_ranks(lambda transport: release.wait(10) if transport.rank else 5, 2, timeout=0.2)
    release.set()
    assert results[0] == 5 and isinstance(results[1], TimeoutError)


SCRIPT = """
import os
import numpy as np
from shared.ring import ring_all_reduce
from shared.transports import PeerLost

def main(t, n):
    mine = np.arange(n, dtype=np.float32) * (t.rank + 1)
    total = ring_all_reduce(mine, t)
    theirs = mine.copy()
    t.all_reduce(theirs)
    if t.rank == 1:
        os._exit(0)
    try:
        ring_all_reduce(mine, t)
    except PeerLost as e:
        return [total.tolist(), theirs.tolist(), str(e)]
"""


def test_two_processes_and_then_one():
    (total, theirs, lost), nothing = run_rank_processes(SCRIPT, 2, timeout=60, arguments={"n": 5})
    assert total == theirs == [0, 3, 6, 9, 12]
    assert lost.startswith("rank 0: rank 1 is gone: ") and "\n" not in lost and "/" not in lost
    assert nothing is None


def test_a_faulty_script_says_why():
    with pytest.raises(RankError, match=r"rank \d failed: ZeroDivisionError"):
        run_rank_processes("def main(t):\n    return 1 / 0", 1)


def test_a_silent_peer_is_lost():
    import torch.distributed as dist

    from shared.gloo import GlooTransport

    store, errors, done = dist.HashStore(), [], threading.Event()

    def silent():
        GlooTransport(store, 1, 2, timeout=5)
        done.wait(20)

    thread = threading.Thread(target=silent, daemon=True)
    thread.start()
    try:
        GlooTransport(store, 0, 2, timeout=1).recv(np.empty(3, np.float32), 1)
    except PeerLost as e:
        errors.append(str(e))
    done.set()
    thread.join()
    assert len(errors) == 1 and "\n" not in errors[0]
