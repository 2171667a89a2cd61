"""20,000 random operations on schedulers and caches, without a model: the books balance after each, and nobody starves.

How long can a request take? Served first come, first served, the oldest unfinished request computes at least one token in
every step: it is first to get budget, it is never the one to give way, and if it waits, nobody runs (whoever runs is older
than whoever waits), so all the budget and all the cache are there for it. It needs at most prompt + max_tokens - 1 of such
steps. So a request is done no later than the sum of that number over itself and all that were unfinished when it came; what
comes later does not matter. Under priorities the sum holds for everything that goes before it, and is paid at most twice:
once more for less urgent requests that already ran when it came. Where prompts go first, each step of a decode may be
followed by as many admitting steps as requests may run at once.
"""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from labs.kit.conformance.requests import NO_MODEL, make_request
from labs.kit.conformance.simulation import Simulation, arithmetic_model
from minillm.kv.contiguous import ContiguousKV
from minillm.kv.paged import PagedKV
from minillm.scheduler import Scheduler, SchedulerConfig
from minillm.schedulers import ContinuousScheduler, PrefillFirstScheduler, StaticScheduler

MAX_LEN = 24


@dataclass(frozen=True)
class Setup:
    kind: type = Scheduler
    kv: type = PagedKV
    num_blocks: int = 8
    block_size: int = 4
    seqs: int = 4
    budget: int = 9
    policy: str = "fcfs"
    threshold: int = 0
    chunked: bool = True
    watermark: float = 0.01
    caching: bool = True

    def simulation(self) -> Simulation:
        options = {"enable_prefix_caching": self.caching} if self.kv is PagedKV else {}
        kv = self.kv(NO_MODEL, self.num_blocks, self.block_size, torch.float32, **options)
        config = SchedulerConfig(self.seqs, self.budget, self.policy, self.threshold, self.chunked, self.watermark)
        return Simulation(self.kind(kv, config), self._model, serves_all=self.kind is not PrefillFirstScheduler)

    @staticmethod
    def _model(request) -> int:
        """Now and then the end of the answer."""
        token = arithmetic_model(request)
        return 2 if token % 17 == 0 else token

    @property
    def is_fair(self) -> bool:
        """The oldest request computes something in every step."""
        return self.policy == "fcfs" and self.kind is not PrefillFirstScheduler

    def steps_to_drain(self, live) -> int:
        work = sum(map(work_of, live))
        return (
            {True: work, False: 2 * work}[self.is_fair] if self.kind is not PrefillFirstScheduler else 2 * work * (self.seqs + 1)
        )


SETUPS = [
    Setup(),
    Setup(num_blocks=6, seqs=6),
    Setup(block_size=1, num_blocks=25),
    Setup(block_size=8, num_blocks=3, seqs=3, budget=3),
    Setup(num_blocks=7, policy="priority"),
    Setup(num_blocks=12, policy="priority", watermark=0.3),
    Setup(num_blocks=9, threshold=2),
    Setup(num_blocks=9, chunked=False, budget=MAX_LEN),
    Setup(num_blocks=7, caching=False),
    Setup(num_blocks=7, watermark=0.3),
    Setup(kv=ContiguousKV, num_blocks=3, block_size=MAX_LEN),
    Setup(StaticScheduler),
    Setup(StaticScheduler, num_blocks=6, policy="priority"),
    Setup(StaticScheduler, kv=ContiguousKV, num_blocks=3, block_size=MAX_LEN, budget=4),
    Setup(PrefillFirstScheduler),
    Setup(PrefillFirstScheduler, num_blocks=6, seqs=6),
    Setup(PrefillFirstScheduler, num_blocks=7, policy="priority", watermark=0.2),
    Setup(PrefillFirstScheduler, num_blocks=9, chunked=False, budget=MAX_LEN),
    Setup(ContinuousScheduler, num_blocks=6, seqs=6),
    Setup(ContinuousScheduler, num_blocks=7, policy="priority", threshold=2),
    Setup(ContinuousScheduler, num_blocks=9, chunked=False, budget=MAX_LEN),
    Setup(ContinuousScheduler, kv=ContiguousKV, num_blocks=3, block_size=MAX_LEN),
]
OPERATIONS = 1200  # each: about 26,400 in all


def work_of(request) -> int:
    """Tokens it may have to compute: the last one of its answer is never computed."""
    return request.num_prompt_tokens + request.max_tokens - 1


class Traffic:
    """Random operations, and the deadline of each request."""

    def __init__(self, setup: Setup):
        self.setup, self.sim = setup, setup.simulation()
        self.deadlines: dict[str, int] = {}
        self.num_preemptions = self.num_found = 0

    def add(self, shared: int, own: list[int], max_tokens: int, priority: int = 0, salt: str | None = None):
        prompt = [*range(10, 10 + shared), *own]
        request = make_request(prompt, min(max_tokens, MAX_LEN - len(prompt)), priority, salt)
        self.sim.add(request)
        self.deadlines[request.request_id] = self.sim.num_steps + sum(map(work_of, self.sim.live))
        self.sim.scheduler.check_integrity()

    def step(self):
        oldest = self.sim.live[0] if self.sim.live else None
        plan = self.sim.step()
        self.num_preemptions += len(plan.preempted)
        self.num_found += sum(r.num_cached_tokens for r in plan.requests)
        if self.setup.is_fair and oldest is not None:
            assert oldest in plan.requests, f"{oldest.request_id} is the oldest and computes nothing"
            late = [r.request_id for r in self.sim.live if self.sim.num_steps >= self.deadlines[r.request_id]]
            assert not late, f"{late} are past their bound"

    def evict(self):
        """Everything that is only remembered is forgotten."""
        if self.setup.kv is PagedKV:
            self.sim.scheduler.kv.pool.forget_all()
            self.sim.scheduler.check_integrity()

    def drain(self):
        self.sim.run(max_steps=self.setup.steps_to_drain(self.sim.live) + 1)


@pytest.mark.parametrize("setup", SETUPS, ids=lambda s: f"{s.kind.__name__}-{SETUPS.index(s)}")
def test_random_operations(setup):
    rng, traffic = random.Random(SETUPS.index(setup)), Traffic(setup)
    live = traffic.sim.live
    for _ in range(OPERATIONS):
        action = rng.random()
        if action < 0.25 and len(live) < 12:
            own = [rng.randint(3, 6) for _ in range(rng.randint(1, 10))]
            salt = rng.choice([None, None, None, "a"])
            traffic.add(rng.choice([0, 4, 8, 12]), own, rng.randint(1, 12), rng.randint(0, 2), salt)
        elif action < 0.30 and live:
            traffic.sim.abort(rng.choice(live))
        elif action < 0.32:
            traffic.evict()
        else:
            traffic.step()
    traffic.drain()
    assert len(traffic.sim.finished) > 60, "the test itself must get somewhere"
    if setup.kv is PagedKV:
        assert traffic.num_preemptions > 0 and (traffic.num_found > 0) is setup.caching


class SchedulerMachine(RuleBasedStateMachine):
    """The same operations, chosen by hypothesis, which reduces a failure to the few that matter."""

    @initialize(setup=st.sampled_from(SETUPS))
    def start(self, setup):
        self.traffic = Traffic(setup)

    @rule(shared=st.sampled_from([0, 4, 8]), own=st.lists(st.integers(3, 4), min_size=1, max_size=9),
          max_tokens=st.integers(1, 12), priority=st.integers(0, 2), salt=st.sampled_from([None, "a"]))  # fmt: skip
    def add(self, shared, own, max_tokens, priority, salt):
        self.traffic.add(shared, own, max_tokens, priority, salt)

    @rule(times=st.integers(1, 6))
    def step(self, times):
        for _ in range(times):
            self.traffic.step()

    @precondition(lambda self: self.traffic.sim.live)
    @rule(data=st.data())
    def abort(self, data):
        self.traffic.sim.abort(data.draw(st.sampled_from(self.traffic.sim.live)))

    @rule()
    def evict(self):
        self.traffic.evict()

    @invariant()
    def books_balance(self):
        if hasattr(self, "traffic"):
            self.traffic.sim.scheduler.check_integrity()

    def teardown(self):
        if hasattr(self, "traffic"):
            self.traffic.drain()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40)
