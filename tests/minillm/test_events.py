"""Events say all there is to say about the cache: replayed, they give the pool, after every step of any schedule."""

import errno
import io
import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minillm.config import EngineConfig, ModelConfig
from minillm.engine import Engine
from minillm.errors import ConfigError
from minillm.event_items import QUEUE_SHOWN, kind_of
from minillm.kv.contiguous import ContiguousKV
from minillm.kv.paged import PagedKV
from minillm.loading import scheduler_config
from minillm.parts import Parts
from minillm.recording import record_events
from minillm.replay import EngineState, ReplayError, replay
from minillm.request import SampledToken, SamplingParams
from minillm.text.output import OutputProcessor
from minillm.text.tokenizer import Tokenizer

MODEL = ModelConfig("llama", 300, 8, 8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, max_position_embeddings=256)
MAX_LEN = 96


class NoModel:
    """Stands for runner and sampler: every request that is due gets a random byte."""

    def __init__(self, seed: int):
        self._rng = random.Random(seed)

    def prepare(self, plan):
        return SimpleNamespace(requests=[r for i, r in enumerate(plan.requests) if plan.yields_token(i)], broken=[])

    def forward(self, batch):
        return torch.zeros(len(batch.requests), 1)

    def __call__(self, logits, requests):
        return [SampledToken(self._rng.randrange(97, 123)) for _ in requests]


@pytest.fixture
def make_engine(tiny_folder):
    """An engine whose every part is the real one but the model."""

    def make(num_blocks=24, block_size=4, kv="paged", **options) -> Engine:
        config = EngineConfig(**{"max_num_seqs": 6, "max_num_batched_tokens": 32} | options)
        if kv == "paged":
            cache = PagedKV(MODEL, num_blocks, block_size, torch.float32, enable_prefix_caching=config.enable_prefix_caching)
        else:
            cache = ContiguousKV(MODEL, 4, MAX_LEN, torch.float32)
        tokenizer, stub = Tokenizer.from_folder(tiny_folder), NoModel(seed=1)
        scheduler = Parts().get("scheduler", config.scheduler)(cache, scheduler_config(config))
        return Engine(config, MODEL, tokenizer, scheduler, stub, stub, OutputProcessor(tokenizer), "none", MAX_LEN)

    return make


def add(engine: Engine, prompt: list[int], **params) -> str:
    (request,) = engine.make_requests(prompt, SamplingParams(**{"max_tokens": 8, "ignore_eos": True} | params))
    engine.add(request)
    return request.request_id


def assert_same_as_the_cache(state: EngineState, engine: Engine) -> None:
    kv, running = engine.scheduler.kv, engine.scheduler.running
    blocks = state.blocks
    assert blocks.tables == {r.request_id: r.block_ids for r in running}
    assert blocks.num_free == kv.num_free
    assert {i: (r.num_tokens, r.num_computed_tokens) for i, r in state.requests.items()} == {
        r.request_id: (r.num_tokens, r.num_computed_tokens) for r in running
    }
    assert state.queue["num_waiting"] == len(engine.scheduler.waiting)
    if hasattr(kv, "pool"):
        assert blocks.references() == kv.pool._references
        assert blocks.named == set(kv.pool._named.values())
        assert blocks.cached == blocks.named & set(kv.pool._free)


@pytest.mark.parametrize("options", [
    {},
    {"num_blocks": 60},
    {"max_num_batched_tokens": 9},
    {"scheduling_policy": "priority"},
    {"enable_prefix_caching": False},
    {"scheduler": "static"},
    {"scheduler": "prefill_first"},
    {"kv": "contiguous"},
], ids=str)  # fmt: skip
def test_the_replayed_block_map_is_the_pool_after_every_step(make_engine, options):
    engine, rng, events, live = make_engine(**options), random.Random(2), [], []
    engine.events.subscribe(events.append)
    state, read, kinds, seen = EngineState(events[0]), 1, set(), dict.fromkeys(("preempted", "shared", "cached", "aborted"), 0)
    system = [rng.randrange(97, 123) for _ in range(22)]
    for _ in range(800):
        if rng.random() < 0.35 and len(live) < 20:
            own = [rng.randrange(97, 123) for _ in range(rng.randint(1, 20))]
            stop = ("a",) if rng.random() < 0.2 else ()
            live.append(add(engine, rng.choice([system, []]) + own, max_tokens=rng.randint(1, 40), stop=stop))
        if live and rng.random() < 0.08:
            engine.abort([live.pop(rng.randrange(len(live)))])
            seen["aborted"] += 1
        engine.step_text()
        engine.scheduler.check_integrity()
        for event in events[read:]:
            state.apply(json.loads(json.dumps(event)))
            kinds |= {item["kind"] for item in event.get("scheduled", ())}
            seen["preempted"] += len(event.get("preempted", ()))
        read = len(events)
        assert_same_as_the_cache(state, engine)
        seen["shared"] += state.blocks.num_shared > 0
        seen["cached"] += len(state.blocks.cached) > 0
        live = [i for i in live if i in engine._requests]
    engine.abort(live)
    assert [event["type"] for event in events].count("snapshot") == 1
    final = replay(events)
    assert final.num_free == engine.scheduler.kv.num_free and not final.tables
    if not options:  # the plain case must have shown everything, or this test shows little
        assert kinds == {"chunk", "prefill", "decode"} and min(seen.values()) > 10, seen


def test_a_step_event_says_what_was_computed(make_engine):
    engine, events = make_engine(max_num_batched_tokens=8), []
    engine.events.subscribe(events.append)
    request_id = add(engine, [100] * 12, max_tokens=3)
    while engine.has_unfinished:
        engine.step_text()
    snapshot, *steps = events
    assert snapshot["engine"] == {
        "model": "none", "num_blocks": 24, "block_size": 4, "max_model_len": MAX_LEN, "max_num_seqs": 6,
        "max_num_batched_tokens": 8,
    }  # fmt: skip
    items = [event["scheduled"][0] for event in steps]
    assert [
        (i["kind"], i["num_new_tokens"], i["num_computed_tokens"], i["num_tokens"], i["num_sampled_tokens"]) for i in items
    ] == [
        ("chunk", 8, 0, 12, 0),
        ("prefill", 4, 8, 12, 1),
        ("decode", 1, 12, 13, 1),
        ("decode", 1, 13, 14, 1),
    ]
    assert [("num_cached_tokens" in i, "ttft_s" in i) for i in items] == [
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]
    assert [event["kv"]["tables"] for event in steps] == [
        {request_id: {"from": 0, "ids": [0, 1]}},
        {request_id: {"from": 2, "ids": [2]}},
        {request_id: {"from": 3, "ids": [3]}},
        {},
    ]
    assert [event["kv"]["named"] for event in steps] == [[0, 1], [2], [], []]
    (ended,) = steps[-1]["finished"]
    assert (ended["id"], ended["reason"], ended["num_output_tokens"]) == (request_id, "length", 3)
    assert ended["tpot_s"] > 0 and all(event["seconds"] > 0 and event["budget"] == 8 for event in steps)
    assert [event["seq"] for event in events] == [-1, 0, 1, 2, 3] and [event["step"] for event in steps] == [1, 2, 3, 4]


def test_a_request_that_ends_between_steps_has_an_event_of_its_own(make_engine):
    engine, events = make_engine(max_num_seqs=2), []
    engine.events.subscribe(events.append)
    ids = [add(engine, [100] * 6) for _ in range(3)]
    engine.step_text()
    engine.abort([ids[0], ids[2]])  # one runs, one waits
    last = events[-2:]
    assert [(e["type"], [f["id"] for f in e["finished"]], e["kv"]["released"]) for e in last] == [
        ("end", [ids[0]], [ids[0]]),
        ("end", [ids[2]], []),
    ]
    assert last[1]["finished"][0]["reason"] == "abort" and last[1]["queue"]["num_waiting"] == 0


def test_a_prefix_hit_and_a_second_admission_are_told(make_engine):
    engine, events = make_engine(num_blocks=10), []
    engine.events.subscribe(events.append)
    for _ in range(2):  # the second waits for the first's blocks to be named, then grows until one must give way
        add(engine, [100] * 9, max_tokens=20)
        engine.step_text()
    while engine.has_unfinished:
        engine.step_text()
    admissions = [
        (i["id"], i["num_cached_tokens"]) for e in events[1:] for i in e.get("scheduled", ()) if "num_cached_tokens" in i
    ]
    assert admissions[:2] == [("request-0", 0), ("request-1", 8)]
    assert [i for e in events for i in e.get("preempted", ())] == ["request-1"]
    assert admissions[2][0] == "request-1", "taken in again after its preemption"


def test_a_long_queue_is_counted_and_not_listed(make_engine):
    engine, events = make_engine(max_num_seqs=1), []
    engine.events.subscribe(events.append)
    for _ in range(100):
        add(engine, [100] * 3)
    engine.step_text()
    assert events[-1]["queue"]["num_waiting"] == 99 and len(events[-1]["queue"]["head"]) == QUEUE_SHOWN


def test_who_joins_late_begins_with_a_snapshot(make_engine):
    engine, early, late = make_engine(), [], []
    engine.events.subscribe(early.append)
    add(engine, [100] * 10, max_tokens=20)
    engine.step_text()
    engine.events.subscribe(late.append)
    add(engine, [100] * 10, max_tokens=20)
    for _ in range(5):
        engine.step_text()
    assert late[0]["type"] == "snapshot" and late[1:] == early[-5:]
    assert replay(late) == replay(early)


def test_who_comes_first_to_a_busy_engine_gets_its_snapshot_after_the_step(make_engine):
    engine, events = make_engine(), []
    add(engine, [100] * 10, max_tokens=20)
    engine.step_text()
    engine.events.subscribe(events.append)
    assert events == []
    engine.step_text()
    assert [event["type"] for event in events] == ["snapshot"]
    engine.step_text()
    state = EngineState(events[0])
    state.apply(events[1])
    assert_same_as_the_cache(state, engine)


def test_a_request_that_begins_while_somebody_looks_is_not_missed(make_engine):
    """An idle engine is looked at from the listener's thread. If it was not idle after all, a second snapshot puts it right."""
    engine, events = make_engine(), []
    stale = engine.events._look
    add(engine, [100] * 10, max_tokens=20)
    engine.step_text()
    empty = stale() | {"running": [], "named": []}
    engine.events._look = lambda: empty
    engine._requests, requests = {}, engine._requests  # as if the engine were idle
    engine.events.subscribe(events.append)
    engine._requests = requests
    del engine.events._look
    engine.step_text()
    assert [event["type"] for event in events] == ["snapshot", "step", "snapshot"]
    assert_same_as_the_cache(EngineState(events[-1]), engine)


def test_nobody_listening_costs_nothing(make_engine, monkeypatch):
    engine, events = make_engine(), []
    pool = engine.scheduler.kv.pool
    engine.events.subscribe(events.append)
    engine.events.unsubscribe(events.append)
    engine.events.unsubscribe(events.append)
    monkeypatch.setattr(engine.events, "after_step", None)  # calling it would fail
    monkeypatch.setattr(engine.events, "after_end", None)
    add(engine, [100] * 10)
    while engine.has_unfinished:
        engine.step_text()
    assert pool.renamed is None


def test_a_recording_is_json_lines_that_replay(make_engine, tmp_path):
    engine, path = make_engine(), tmp_path / "events.jsonl"
    with record_events(engine, path):
        for _ in range(8):
            add(engine, [100] * 15, max_tokens=12)
        for _ in range(9):
            engine.step_text()
    blocks = replay(json.loads(line) for line in path.read_text().splitlines())
    assert blocks.references() == engine.scheduler.kv.pool._references
    assert not engine.events.is_on


def test_a_file_that_cannot_be_written_is_said_at_once(make_engine, tmp_path):
    with pytest.raises(ConfigError, match="record-events"), record_events(make_engine(), tmp_path / "no" / "folder"):
        pass


def test_a_disk_that_fills_up_ends_the_recording_and_not_the_engine(make_engine, tmp_path, monkeypatch, caplog):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda *args, **kwargs: Full())
    engine = make_engine()
    with record_events(engine, tmp_path / "events.jsonl"):
        add(engine, [100] * 5, max_tokens=2)
        while engine.has_unfinished:
            engine.step_text()
    assert [r.message.split(": ")[1:] for r in caplog.records] == [
        ["the recording of events ends here", "No space left on device"]
    ]


def test_events_that_do_not_fit_together_are_refused(make_engine):
    engine, events = make_engine(), []
    engine.events.subscribe(events.append)
    add(engine, [100] * 5, max_tokens=4)
    while engine.has_unfinished:
        engine.step_text()
    with pytest.raises(ReplayError, match="gap"):
        replay(events[:2] + events[3:])
    with pytest.raises(ReplayError, match="begin with a snapshot"):
        replay(events[1:])
    with pytest.raises(ReplayError, match="no events"):
        replay([])


@pytest.mark.parametrize("num_new, num_left, kind", [(1, 1, "decode"), (7, 7, "prefill"), (7, 8, "chunk"), (1, 2, "chunk")])
def test_kinds(num_new, num_left, kind):
    assert kind_of(num_new, num_left) == kind
