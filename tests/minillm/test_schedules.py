"""What a request gets does not depend on what runs beside it, nor on where its keys and values lie, nor on the order of work.

Random traffic is played through the engine in one way of running it after another; each request is then compared, logits and
tokens, with the same request alone in the plainest engine: one at a time, nothing cached, whole prompts, one row of cache.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labs.kit.conformance.same_tokens import LOGITS_ATOL, Answer, Recorder, assert_same
from minillm.engine import Engine
from minillm.request import SamplingParams

PLAIN = {
    "kv": "contiguous", "attention": "torch", "scheduler": "static", "max_num_seqs": 1, "max_num_batched_tokens": 4096,
}  # fmt: skip
BYTES_PER_TOKEN = 256  # of the tiny model's cache
TINY_POOL = {"block_size": 4, "kv_cache_memory_bytes": 64 * BYTES_PER_TOKEN, "max_model_len": 64, "watermark": 0.0}

# every way of running the engine, by what must make no difference
WAYS = {
    "in a batch": {},
    "in a batch, attention torch": {"attention": "torch"},
    "paged, blocks of one token": {"block_size": 1},
    "paged, blocks of 5": {"block_size": 5},
    "contiguous": {"kv": "contiguous"},
    "uncached": {"enable_prefix_caching": False, "block_size": 4},
    "cached": {"block_size": 4},
    "chunked": {"max_num_batched_tokens": 5, "max_num_seqs": 4, "block_size": 4},
    "chunked by the threshold": {"long_prefill_token_threshold": 3},
    "whole prompts only": {"enable_chunked_prefill": False},
    "preempted": {**TINY_POOL, "max_num_seqs": 8},
    "preempted, uncached": {**TINY_POOL, "max_num_seqs": 8, "enable_prefix_caching": False},
    "preempted and chunked": {**TINY_POOL, "max_num_seqs": 6, "max_num_batched_tokens": 7},
    "preempted by priority": {**TINY_POOL, "max_num_seqs": 8, "scheduling_policy": "priority"},
    "static batches": {"scheduler": "static", "max_num_seqs": 3},
    "prefill first": {"scheduler": "prefill_first", "max_num_seqs": 4, "block_size": 4},
    "prefill first, preempted": {**TINY_POOL, "scheduler": "prefill_first", "max_num_seqs": 8},
    "continuous": {"scheduler": "continuous", "max_num_seqs": 4, "block_size": 4},
    "continuous, preempted": {**TINY_POOL, "scheduler": "continuous", "max_num_seqs": 8},
}


@dataclass(frozen=True)
class Ask:
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int | None  # None: greedy
    arrival: int = 0  # step before which it is added
    abort: int | None = None  # step before which its client leaves
    priority: int = 0
    salt: str | None = None

    @property
    def params(self) -> SamplingParams:
        sampled = {"temperature": 0} if self.seed is None else {"temperature": 0.9, "top_p": 0.95, "seed": self.seed}
        return SamplingParams(max_tokens=self.max_tokens, ignore_eos=True, **sampled)


def play(engine: Engine, asks: list[Ask]) -> tuple[list[Answer], int]:
    """Run the traffic to its end; each request's answer, and the number of preemptions."""
    requests = [
        engine.make_requests(list(a.prompt), a.params, f"ask-{i}", priority=a.priority, cache_salt=a.salt)[0]
        for i, a in enumerate(asks)
    ]
    step, last = 0, max(max(a.arrival, a.abort or 0) for a in asks)
    with Recorder(engine) as recorded:
        while engine.has_unfinished or step <= last:
            for ask, request in zip(asks, requests, strict=True):
                if ask.arrival == step:
                    engine.add(request)
                if ask.abort == step:
                    engine.abort([request.request_id])
            engine.step_text()
            engine.scheduler.check_integrity()
            step += 1
            assert step < 3000, "it does not end"
    assert engine.runner.kv.usage == 0, "all is done, and cache is still held"
    answers = [recorded.get(r.request_id, Answer([], [], a.seed is None)) for r, a in zip(requests, asks, strict=True)]
    return answers, sum(r.num_preemptions for r in requests)


class Oracle:
    """Each request alone in the plainest engine, remembered."""

    def __init__(self, engine: Engine):
        self.engine, self._known = engine, {}

    def __call__(self, ask: Ask) -> Answer:
        key = replace(ask, arrival=0, abort=None, priority=0, salt=None)
        if key not in self._known:
            (self._known[key],), _ = play(self.engine, [key])
        return self._known[key]


def compare(engine: Engine, asks: list[Ask], oracle: Oracle) -> int:
    """Play and compare all; the number of preemptions."""
    answers, preemptions = play(engine, asks)
    for i, (ask, answer) in enumerate(zip(asks, answers, strict=True)):
        assert_same(answer, oracle(ask), f"request {i}", complete=ask.abort is None)
    return preemptions


def sharpened(llm) -> Engine:
    """A random model of two layers mostly repeats its last token. Louder layers make it listen to everything before."""
    for layer in llm.engine.runner.model.layers:
        layer.o_proj.weight.mul_(40)
        layer.down_proj.weight.mul_(40)
    return llm.engine


@pytest.fixture
def engine_of(tiny_llm):
    return lambda **options: sharpened(tiny_llm(**options))


SHARED = [tuple(range(20, 20 + n)) for n in (0, 4, 9, 16)]
ASKS = st.builds(
    Ask,
    prompt=st.builds(
        lambda a, b: (*a, *b), st.sampled_from(SHARED), st.lists(st.integers(3, 9), min_size=1, max_size=14).map(tuple)
    ),
    max_tokens=st.sampled_from([1, 2, 7, 12]),
    seed=st.sampled_from([None, 1, 2]),
    arrival=st.integers(0, 6),
    priority=st.integers(0, 2),
    salt=st.sampled_from([None, None, "a"]),
)
with_fixture = [HealthCheck.function_scoped_fixture]


def test_the_model_listens_to_all_of_its_context(engine_of):
    """Or these tests would prove little."""
    a, b = (play(engine_of(), [Ask((first, *range(20, 40)), 12, seed=1)])[0][0] for first in (5, 6))
    assert (a.logits[0] - b.logits[0]).abs().max() > 100 * LOGITS_ATOL
    assert len(set(a.token_ids)) > 6


@pytest.mark.parametrize("way", WAYS)
def test_a_request_in_any_traffic_equals_the_request_alone(engine_of, way):
    oracle, engine, preemptions = Oracle(engine_of(**PLAIN)), engine_of(**WAYS[way]), 0

    @settings(max_examples=20, suppress_health_check=with_fixture)
    @given(st.lists(ASKS, min_size=1, max_size=7))
    def run(asks):
        nonlocal preemptions
        preemptions += compare(engine, asks, oracle)

    run()
    assert (preemptions > 0) is ("preempted" in way)


@pytest.mark.parametrize("way", ["in a batch", "cached", "preempted", "chunked"])
def test_neighbours_that_leave_change_nothing(engine_of, way):
    oracle, engine = Oracle(engine_of(**PLAIN)), engine_of(**WAYS[way])
    leaving = st.builds(lambda ask, after: replace(ask, abort=ask.arrival + after), ASKS, st.integers(0, 8))

    @settings(max_examples=20, suppress_health_check=with_fixture)
    @given(st.lists(st.one_of(ASKS, leaving), min_size=2, max_size=7))
    def run(asks):
        compare(engine, asks, oracle)

    run()


def test_shared_prefixes_are_found_and_change_nothing(engine_of):
    engine, oracle = engine_of(block_size=4), Oracle(engine_of(**PLAIN))
    asks = [Ask((*SHARED[3], *tail), 6, seed) for tail in ((), (3,), (4, 5, 6)) for seed in (None, 1)]
    compare(engine, asks, oracle)
    requests = [engine.make_requests(list(a.prompt), a.params)[0] for a in asks]
    for request in requests:
        engine.add(request)
    while engine.has_unfinished:
        engine.step_text()
    assert [r.num_cached_tokens for r in requests] == [12, 12, 16, 16, 16, 16]
    compare(engine, asks, oracle)
