"""The load generators without a network, and the watch on the client itself."""

import asyncio
import time

import pytest

from minillm.bench.client import Exchange
from minillm.bench.load import LoopLag, client_warning, closed_loop, open_loop


class Server:
    """Answers after a moment; remembers what was in flight."""

    def __init__(self, moment=0.002):
        self.moment, self.order, self.now, self.most = moment, [], 0, 0

    async def send(self, body: bytes) -> Exchange:
        exchange = Exchange()
        exchange.sent = time.perf_counter()
        self.order.append(body)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.moment)
        self.now -= 1
        exchange.failure = f"no answer to {body.decode()}"
        return exchange


BODIES = [str(i).encode() for i in range(30)]


@pytest.mark.parametrize("users", [1, 4, 30, 50])
def test_a_closed_loop_keeps_its_users_busy(users):
    server, done = Server(), []
    records = asyncio.run(closed_loop(server.send, BODIES, users, lambda: done.append(1)))
    assert server.order == BODIES
    assert server.most == min(users, 30)
    assert len(done) == 30
    assert [r.failure for r in records] == [f"no answer to {i}" for i in range(30)]  # in the order asked, not answered


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_an_open_loop_sends_in_order_within_its_limit(limit):
    server, arrivals = Server(), [i * 0.0005 for i in range(30)]
    records = asyncio.run(open_loop(server.send, BODIES, arrivals, limit))
    assert server.order == BODIES
    assert limit is None or server.most <= limit
    assert [r.scheduled for r in records] == arrivals
    assert all(r.sent >= r.scheduled for r in records)
    assert [r.failure for r in records] == [f"no answer to {i}" for i in range(30)]


def test_a_client_that_is_busy_itself_says_so():
    async def blocked():
        async with LoopLag() as lag:
            for _ in range(4):
                await asyncio.sleep(0.02)
                time.sleep(0.1)
        return lag.report()

    report = asyncio.run(blocked())
    assert report["client_lag_max_ms"] >= 50
    assert report["client_lag_p99_ms"] <= report["client_lag_max_ms"]
    assert "late itself" in client_warning(report)
    quiet = {"client_lag_p99_ms": 1.0, "client_lag_max_ms": 400.0, "client_cpu_share": 0.3}
    assert client_warning(quiet) is None
    assert "95%" in client_warning(quiet | {"client_cpu_share": 0.95})


def test_a_run_too_short_to_sample_has_a_report():
    async def nothing():
        async with LoopLag() as lag:
            pass
        return lag.report()

    assert asyncio.run(nothing()).keys() == set(LoopLag.FIELDS)
