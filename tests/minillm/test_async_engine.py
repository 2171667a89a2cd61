"""The engine thread and its streams."""

import asyncio
import threading

import pytest

from minillm.async_engine import AsyncEngine, QueueFullError, ShuttingDownError
from minillm.errors import EngineDeadError, RequestError
from minillm.request import SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)


@pytest.fixture
def served(tiny_llm):
    """An AsyncEngine over the tiny model, stopped afterwards."""
    engine = AsyncEngine(tiny_llm(max_num_seqs=4).engine)
    engine.start()
    yield engine
    engine.shutdown()
    assert not engine._thread.is_alive()


async def collect(stream) -> list[int]:
    return [token async for output in stream for token in output.token_ids]


async def idle(engine: AsyncEngine) -> None:
    """Wait until nothing runs or waits; the test's timeout catches a leak."""
    async with asyncio.timeout(20):
        while engine.stats() != {"running": 0, "waiting": 0, "kv_cache_usage_perc": 0}:
            await asyncio.sleep(0.01)


def test_streams_equal_offline_generation(served, tiny_llm):
    prompts = [[5], [7, 8, 9], list(range(3, 60)), [250] * 20, [4, 5] * 15, [100]]
    expected = [g.outputs[0].token_ids for g in tiny_llm().generate(prompts, PARAMS)]

    async def main():
        got = await asyncio.gather(*(collect(served.submit(p, PARAMS)) for p in prompts))
        await idle(served)
        return got

    assert asyncio.run(main()) == expected


def test_a_closed_stream_frees_its_request_running_or_waiting(served):
    async def main():
        streams = [served.submit([5, 6], SamplingParams(max_tokens=120, ignore_eos=True)) for _ in range(10)]  # 4 run, 6 wait
        await anext(streams[0])
        for stream in streams:
            await stream.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        await idle(served)

    asyncio.run(main())
    served.engine.scheduler.check_integrity()


def test_n_samples_come_on_one_stream(served):
    async def main():
        params = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True)
        counts = {0: 0, 1: 0, 2: 0}
        async for output in served.submit([5], params):
            counts[output.index] += len(output.token_ids)
        return counts

    assert asyncio.run(main()) == {0: 5, 1: 5, 2: 5}


def test_bad_requests_are_refused_before_they_queue(served):
    async def main():
        with pytest.raises(RequestError, match="empty"):
            served.submit([], PARAMS)

    asyncio.run(main())


def test_a_taken_id_fails_only_the_second(served):
    async def main():
        first = served.submit([5], PARAMS, "same")
        second = served.submit([5], PARAMS, "same")
        with pytest.raises(RequestError, match="already being served"):
            await collect(second)
        tokens = len(await collect(first))
        await idle(served)
        return tokens

    assert asyncio.run(main()) == 30


def test_closing_a_stream_whose_id_was_taken_leaves_the_other_alone(served):
    async def main():
        first = served.submit([5], PARAMS, "same")
        second = served.submit([5], PARAMS, "same")
        await second.aclose()  # before its error was read
        return len(await collect(first))

    assert asyncio.run(main()) == 30


def test_a_reader_that_never_reads_delays_nobody(served):
    async def main():
        served.submit([5], PARAMS)
        assert len(await collect(served.submit([6], PARAMS))) == 30
        await idle(served)

    asyncio.run(main())


def test_an_engine_that_breaks_tells_every_stream_and_the_next_submit(served, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(served.engine, "sampler", broken)

    async def main():
        streams = [served.submit([5], PARAMS) for _ in range(6)]
        for stream in streams:
            with pytest.raises(EngineDeadError, match="ZeroDivisionError: planted"):
                await collect(stream)
        with pytest.raises(EngineDeadError, match="restart the server"):
            served.submit([5], PARAMS)

    asyncio.run(main())
    assert isinstance(served.error, ZeroDivisionError)


def test_shutdown_ends_open_streams(tiny_llm):
    engine = AsyncEngine(tiny_llm().engine)
    engine.start()

    async def main():
        stream = engine.submit([5], SamplingParams(max_tokens=120, ignore_eos=True))
        await anext(stream)
        await engine.stop()
        with pytest.raises(EngineDeadError):
            await collect(stream)

    asyncio.run(main())
    assert threading.active_count() < 10


def test_a_closed_event_loop_does_not_kill_the_engine(served):
    async def leave():
        await anext(served.submit([5], SamplingParams(max_tokens=100, ignore_eos=True)))

    asyncio.run(leave())  # the client's loop is gone while its request still runs

    async def main():
        assert len(await collect(served.submit([6], PARAMS))) == 30
        await idle(served)

    asyncio.run(main())


LONG = SamplingParams(max_tokens=120, ignore_eos=True)


@pytest.fixture
def narrow(tiny_llm):
    """Two run, three wait."""
    engine = AsyncEngine(tiny_llm(max_num_seqs=2).engine, max_queue_size=3)
    engine.start()
    yield engine
    engine.shutdown()


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(narrow):
    async def main():
        streams = narrow.submit_all([[5]] * 5, LONG)
        assert narrow.num_unfinished == 5
        with pytest.raises(QueueFullError, match="5 requests"):
            narrow.submit([6], PARAMS)
        for stream in streams:
            await stream.aclose()
        await idle(narrow)
        return len(await collect(narrow.submit([6], PARAMS)))

    assert asyncio.run(main()) == 30


def test_several_prompts_are_taken_all_or_none(narrow):
    async def main():
        first = narrow.submit_all([[5]] * 3, LONG)
        with pytest.raises(QueueFullError):
            narrow.submit_all([[6], [7], [8]], PARAMS)
        with pytest.raises(RequestError, match="empty"):
            narrow.submit_all([[6], []], PARAMS)
        assert narrow.num_unfinished == 3
        for stream in first:
            await stream.aclose()
        await idle(narrow)

    asyncio.run(main())


def test_more_than_could_ever_be_taken_is_no_matter_of_later(narrow):
    async def main():
        with pytest.raises(RequestError, match="6 answers"):
            narrow.submit([5], SamplingParams(n=6))

    asyncio.run(main())


def test_draining_finishes_what_was_accepted_and_takes_nothing_new(narrow):
    async def main():
        streams = narrow.submit_all([[5]] * 4, PARAMS)  # two of them still wait
        narrow.drain()
        with pytest.raises(ShuttingDownError):
            narrow.submit([6], PARAMS)
        counts = [len(await collect(stream)) for stream in streams]
        await idle(narrow)
        return counts

    assert asyncio.run(main()) == [30] * 4


def test_priority_decides_who_goes_first(tiny_llm):
    engine = AsyncEngine(tiny_llm(max_num_seqs=1, scheduling_policy="priority").engine)
    finished = []

    async def read(name, stream):
        await collect(stream)
        finished.append(name)

    async def main():
        priorities = {"low": 5, "high": -5, "middle": 0}
        streams = {name: engine.submit_all([[5], [6]], PARAMS, priority=p) for name, p in priorities.items()}
        work = [read(name, stream) for name, pair in streams.items() for stream in pair]
        engine.start()  # only now, so that all three wait
        await asyncio.gather(*work)

    asyncio.run(main())
    engine.shutdown()
    assert finished == ["high", "high", "middle", "middle", "low", "low"]


def test_a_salt_keeps_prefixes_apart(served):
    prompt = list(range(3, 60))

    async def cached(salt):
        return [output.num_cached_tokens async for output in served.submit(prompt, PARAMS, cache_salt=salt)][-1]

    async def main():
        return [await cached(salt) for salt in ("a", "b", "a", None, None)]

    first, other, again, none, none_again = asyncio.run(main())
    assert (first, other, none) == (0, 0, 0)
    assert again == none_again > 0


class Log:
    """An observer that writes down what it is told."""

    def __init__(self):
        self.admitted, self.tokens, self.ended, self.aborted = [], {}, [], []

    def on_admit(self, requests):
        self.admitted.append([r.index for r in requests])

    def on_step(self, outputs):
        for request, output in outputs:
            assert output.request_id == request.request_id
            assert request.times.last_token >= request.times.first_token >= request.times.scheduled >= request.times.arrival
            self.tokens.setdefault(request.request_id, []).extend(output.token_ids)
            if output.finished:
                assert request.times.finished is not None
                self.ended.append(request.request_id)

    def on_abort(self, request):
        self.aborted.append(request.request_id)


def test_an_observer_is_told_everything_once(tiny_llm):
    engine, log = AsyncEngine(tiny_llm(max_num_seqs=4).engine), Log()
    engine.observers.append(log)
    engine.start()

    async def main():
        n_samples = engine.submit([5], SamplingParams(n=2, max_tokens=3, ignore_eos=True), "two")
        read = [output async for output in n_samples]
        leaving = engine.submit([6], LONG, "gone")
        await anext(leaving)
        await leaving.aclose()
        await idle(engine)
        return read

    read = asyncio.run(main())
    engine.shutdown()
    assert log.admitted == [[0, 1], [0]]
    assert sorted(log.ended) == ["two/0", "two/1"]
    assert log.aborted == ["gone"]
    for request_id in ("two/0", "two/1"):
        assert log.tokens[request_id] == [t for o in read if o.request_id == request_id for t in o.token_ids]
