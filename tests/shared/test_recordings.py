"""Recorded answers of other engines: that their books balance, and what minillm's scheduler makes of the same work."""

import itertools
from pathlib import Path

import pytest
import torch

from minillm.config import ModelConfig
from minillm.kv.paged import PagedKV
from minillm.request import Request, SampledToken, SamplingParams
from minillm.scheduler import Scheduler, SchedulerConfig
from shared import recordings
from shared.engines import PINS, EngineError, EngineMissing
from shared.recordings import SCRIPTS, live_or_recorded, recorded

NAMES = {"vllm_scheduler": "vllm", "sglang_radix": "sglang"}


def tokens(ranges: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(range(first, end) for first, end in ranges))


@pytest.fixture
def vllm():
    return recorded("vllm_scheduler")


@pytest.fixture
def sglang():
    return recorded("sglang_radix")


# ---- how one gets at them


@pytest.mark.parametrize("name, engine", NAMES.items())
def test_a_recording_is_of_the_pinned_version_and_says_so(name, engine):
    kept = recorded(name)
    assert (kept.engine, kept.data["version"]) == (engine, kept.version)
    assert f"{engine}=={kept.version}" in (PINS / f"{engine}.in").read_text().splitlines()
    assert kept.label == f"recorded: {engine} {kept.version}, {kept.date}"
    assert len(kept.date) == 10


def test_where_the_engine_is_absent_the_recording_answers_its_own_payload_only(monkeypatch, tmp_path, vllm):
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path))
    script = SCRIPTS / "vllm_scheduler.py"
    assert live_or_recorded("vllm", script, vllm.payload, "vllm_scheduler") == (vllm.data, vllm.label)
    with pytest.raises(EngineMissing, match=r"answers another payload; run `make engines NAME=vllm`"):
        live_or_recorded("vllm", script, {**vllm.payload, "block_size": 32}, "vllm_scheduler")


def test_where_the_engine_is_there_it_is_asked(monkeypatch, vllm):
    asked = []

    def run_script(*arguments, timeout_s):
        asked.append(arguments)
        return {"version": "9.9"}

    monkeypatch.setattr(recordings, "is_installed", lambda name: True)
    monkeypatch.setattr(recordings, "run_script", run_script)
    assert live_or_recorded("vllm", Path("s.py"), {"a": 1}, "vllm_scheduler") == ({"version": "9.9"}, "live: vllm 9.9")
    assert asked == [("vllm", Path("s.py"), {"a": 1})]


def test_no_such_recording(tmp_path):
    with pytest.raises(EngineError, match=r"no recording 'nothing' in .*record_engines.py"):
        recorded("nothing", tmp_path)
    with pytest.raises(EngineError, match=r"peers.json is no recording of an engine"):
        recorded("peers")


# ---- vLLM's scheduler


def test_vllm_never_spends_more_than_its_budget_nor_a_block_twice(vllm):
    job, computed, tables = vllm.payload, {}, {}
    for step in vllm.data["steps"]:
        assert 0 < sum(step["scheduled"].values()) <= job["max_num_batched_tokens"]
        for name in step["preempted"]:
            computed.pop(name), tables.pop(name)
        computed.update(step["admitted"])
        tables.update({name: [] for name in step["admitted"]})
        for name, blocks in step["new_blocks"].items():
            tables[name] = [*tables[name], *blocks]
        for name, n in step["scheduled"].items():
            computed[name] += n
            assert computed[name] <= len(tables[name]) * job["block_size"], f"{name} computes more than its blocks hold"
        held = set(itertools.chain.from_iterable(tables.values()))
        assert 0 not in held, "block 0 is vLLM's null block"
        assert step["free"] == job["num_blocks"] - 1 - len(held)
        for name in step["finished"]:
            del tables[name], computed[name]
    assert tables == {}


def test_vllm_computes_each_known_token_once_and_those_lost_again(vllm):
    """A request's steps add up: every admission's found tokens and computed tokens, up to where it was put out or done."""
    for request in vllm.payload["requests"]:
        name, reached, prompt = request["id"], 0, len(tokens(request["prompt"]))
        for step in vllm.data["steps"]:
            reached = step["admitted"].get(name, reached) + step["scheduled"].get(name, 0)
            if name in step["finished"]:
                assert reached == prompt + request["max_tokens"] - 1, "the last token is never computed, only sampled"
                break
        else:
            pytest.fail(f"{name} never finishes")


def test_the_trace_shows_what_it_is_there_for(vllm):
    steps = vllm.data["steps"]
    assert [s["scheduled"].get("A") for s in steps[:3]] == [64, 64, 22], "a prompt in chunks"
    assert steps[2]["admitted"] == {"B": 48, "C": 0}, "a prefix hit"
    assert vllm.data["preemptions"] == {"A": 0, "B": 0, "C": 0, "D": 1, "E": 1, "F": 0}


def minillm_steps(job: dict) -> list[dict]:
    """The same trace through minillm's scheduler and paged cache, in the same form."""
    config = ModelConfig("llama", 10, 8, 8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, max_position_embeddings=512)
    kv = PagedKV(config, job["num_blocks"] - 1, job["block_size"], torch.float32)  # vLLM's null block holds nothing
    scheduler = Scheduler(kv, SchedulerConfig(job["max_num_seqs"], job["max_num_batched_tokens"], watermark=0.0))
    params = SamplingParams(max_tokens=None, ignore_eos=True)
    requests = []
    for i, spec in enumerate(job["requests"]):
        prompt = tokens(spec["prompt"])
        requests.append(Request(spec["id"], prompt, len(prompt), params, spec["max_tokens"], 0, serial=i))
    made_up = {r.request_id: 40_000 + 1_000 * i for i, r in enumerate(requests)}
    steps, tables = [], {}
    for now in range(job["max_steps"]):
        for request, spec in zip(requests, job["requests"], strict=True):
            if spec["arrives"] == now:
                scheduler.add(request)
        ran = {r.request_id for r in scheduler.running}
        plan = scheduler.schedule()
        admitted = [r for r in plan.requests if r.request_id not in ran]
        new_blocks = {}
        for r in plan.requests:
            known = [] if r in admitted else tables[r.request_id]
            tables[r.request_id] = list(r.block_ids)
            if r.block_ids[len(known) :]:
                new_blocks[r.request_id] = len(r.block_ids) - len(known)
        yields = [r for i, r in enumerate(plan.requests) if plan.yields_token(i)]
        steps.append(
            {
                "scheduled": {r.request_id: n for r, n in zip(plan.requests, plan.num_new_tokens, strict=True)},
                "admitted": {r.request_id: r.num_computed_tokens for r in admitted},
                "preempted": sorted(r.request_id for r in plan.preempted),
                "new_blocks": new_blocks,
                "free": kv.num_free,
                "waiting": [r.request_id for r in scheduler.waiting],
            }
        )
        outputs = scheduler.update(plan, [SampledToken(made_up[r.request_id] + r.num_output_tokens) for r in yields])
        scheduler.check_integrity()
        steps[-1]["finished"] = [o.request.request_id for o in outputs if o.finish_reason]
        if all(r.is_finished for r in requests):
            return steps
    pytest.fail("the requests do not finish")


def test_minillm_schedules_the_trace_as_vllm_does(vllm):
    """Step by step: who computes how much, what is found in the cache, who gives way, how many blocks are handed out and left.

    Which block it is may differ: the two free lists are kept in orders of their own.
    """
    ours = minillm_steps(vllm.payload)
    assert len(ours) == len(vllm.data["steps"])
    for number, (mine, theirs) in enumerate(zip(ours, vllm.data["steps"], strict=True)):
        theirs = {**theirs, "new_blocks": {name: len(blocks) for name, blocks in theirs["new_blocks"].items()}}
        assert mine == theirs, f"step {number}"


# ---- SGLang's radix cache


def test_the_tree_s_sizes_add_up(sglang):
    for step in sglang.data["steps"]:
        assert step["total"] == step["evictable"] + step["protected"] == sum(size for _, _, size, _ in step["tree"])
        assert step["protected"] == sum(size for _, _, size, locks in step["tree"] if locks)


def test_the_tree_answers_as_a_set_of_prefixes_would(sglang):
    """An oracle without a tree, until something is evicted: each token of the tree ends one distinct prefix."""
    prefixes, numbers = set(), []
    for operation, step in zip(sglang.payload["operations"], sglang.data["steps"], strict=True):
        if operation["op"] == "evict":
            break
        wanted = tokens(operation["tokens"])
        starts = [tuple(wanted[:n]) for n in range(1, len(wanted) + 1)]
        found = sum(start in prefixes for start in starts)
        if operation["op"] == "finish":
            prefixes.update(starts)
        assert step["matched" if operation["op"] == "start" else "known"] == found
        assert step["total"] == len(prefixes)
        numbers.append(found)
    assert numbers == [0, 0, 64, 64, 64, 40, 40]


def test_an_insertion_adds_what_was_not_known_and_an_eviction_takes_whole_leaves(sglang):
    total, tree = 0, []
    for operation, step in zip(sglang.payload["operations"], sglang.data["steps"], strict=True):
        match operation["op"]:
            case "start":
                assert step["total"] == total, "a match adds nothing"
            case "finish":
                assert step["total"] == total + len(tokens(operation["tokens"])) - step["known"]
            case "evict":
                assert step["total"] == total - step["evicted"]
                assert all(row in tree for row in step["tree"]), "what stays is not cut"
        total, tree = step["total"], step["tree"]


def test_a_locked_path_outlives_any_eviction(sglang):
    locked = [s for o, s in zip(sglang.payload["operations"], sglang.data["steps"], strict=True) if o.get("num_tokens") == 100]
    assert [(s["evicted"], s["evictable"], s["protected"]) for s in locked] == [(30, 0, 64)]
