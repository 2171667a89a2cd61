"""Five fixed schedules on the real model: each request equals itself alone, uncached, in logits and tokens."""

import itertools

import pytest

from labs.kit.conformance.same_tokens import Recorder, assert_same
from minillm.kv.paged import PagedKV
from minillm.request import SamplingParams
from minillm.runner import Runner
from minillm.scheduler import Scheduler, SchedulerConfig
from minillm.schedulers import PrefillFirstScheduler, StaticScheduler

SYSTEM = "You are a careful assistant. Answer in one short sentence, and say so if you do not know.\n\n"
PROMPTS = [SYSTEM + "Q: What is the capital of Vietnam?\nA:", SYSTEM + "Q: 12 + 30?\nA:", "def fibonacci(n):\n    ", "Hà Nội"]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=0.8, top_p=0.95, seed=7, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=1.0, top_k=40, seed=8, max_tokens=12, ignore_eos=True),
]

# name: scheduler, blocks of 16 tokens, its config, and the steps at which the four arrive
SCHEDULES = {
    "all at once": (Scheduler, 64, {"max_num_seqs": 8, "max_num_batched_tokens": 256}, [0, 0, 0, 0]),
    "in chunks, one after another": (Scheduler, 64, {"max_num_seqs": 8, "max_num_batched_tokens": 16}, [0, 1, 2, 3]),
    "preempted": (Scheduler, 4, {"max_num_seqs": 8, "max_num_batched_tokens": 256, "watermark": 0.0}, [0, 0, 1, 1]),
    "static": (StaticScheduler, 64, {"max_num_seqs": 2, "max_num_batched_tokens": 256}, [0, 0, 0, 0]),
    "prefill first": (PrefillFirstScheduler, 64, {"max_num_seqs": 8, "max_num_batched_tokens": 256}, [0, 2, 3, 5]),
}


def play(engine, scheduler, arrivals, prompts=PROMPTS, params=PARAMS):
    """The engine with another scheduler and cache for the time of one schedule: loading the model once is enough."""
    before = engine.scheduler, engine.runner
    engine.scheduler, engine.runner = scheduler, Runner(engine.runner.model, scheduler.kv)
    try:
        requests = [engine.make_requests(engine.tokenizer.encode(p), q)[0] for p, q in zip(prompts, params, strict=True)]
        with Recorder(engine) as answers:
            for step in itertools.count():
                for request, arrival in zip(requests, arrivals, strict=True):
                    if arrival == step:
                        engine.add(request)
                engine.step_text()
                scheduler.check_integrity()
                if step >= max(arrivals) and not engine.has_unfinished:
                    break
    finally:
        engine.scheduler, engine.runner = before
    return [answers[request.request_id] for request in requests], requests


def scheduler_of(engine, kind, num_blocks, caching=True, **config):
    model = engine.runner.model
    return kind(PagedKV(model.config, num_blocks, 16, model.dtype, enable_prefix_caching=caching), SchedulerConfig(**config))


@pytest.fixture(scope="module")
def alone(smollm2):
    engine, plain = smollm2.engine, {"max_num_seqs": 1, "max_num_batched_tokens": 4096}
    return [
        play(engine, scheduler_of(engine, Scheduler, 8, caching=False, **plain), [0], [prompt], [params])[0][0]
        for prompt, params in zip(PROMPTS, PARAMS, strict=True)
    ]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(smollm2, alone, name):
    kind, num_blocks, config, arrivals = SCHEDULES[name]
    answers, requests = play(smollm2.engine, scheduler_of(smollm2.engine, kind, num_blocks, **config), arrivals)
    for i, (got, expected) in enumerate(zip(answers, alone, strict=True)):
        assert_same(got, expected, f"request {i}")
    assert (sum(r.num_preemptions for r in requests) > 0) is (name == "preempted")
    assert requests[1].num_cached_tokens == 16, "the system prompt's first block is shared"
