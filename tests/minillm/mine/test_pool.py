"""A learner's pool and prefix search inside the paged cache of an engine: they are called, watched, and named when wrong."""

from pathlib import Path

import pytest

from minillm.config import EngineConfig
from minillm.kv.blocks import BlockPool
from minillm.kv.prefix import match_prefix
from minillm.mine.choose import choose
from minillm.mine.faults import Origin, OwnPartError
from minillm.mine.guards import guarded
from minillm.replay import replay
from minillm.request import SamplingParams

PROMPT = list(range(5, 40))
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
POOL = Origin("kv.blocks", "BlockPool", "2.8", Path("m08.py"), "m08.py", 1)
PREFIX = Origin("kv.prefix", "match_prefix", "2.8", Path("m08.py"), "m08.py", 1)


@pytest.fixture
def engine(tiny_llm):
    return lambda objects: tiny_llm(mine=objects, max_model_len=64, max_num_seqs=2).engine


def serve(engine, prompt=PROMPT):
    [request] = engine.make_requests(prompt, GREEDY)
    engine.add(request)
    while engine.has_unfinished:
        engine.step_text()
    return request


class Counting(BlockPool):
    calls = 0

    def release(self, blocks):
        Counting.calls += 1
        super().release(blocks)


def test_both_run_in_the_engine_and_events_see_their_names(engine):
    found = []

    def prefix(request, block_size, pool):
        blocks = match_prefix(request, block_size, pool)
        found.append(list(blocks))
        return blocks

    mine = engine({"kv.blocks": guarded(POOL, Counting), "kv.prefix": guarded(PREFIX, prefix)})
    events = []
    mine.events.subscribe(events.append)
    answers = [serve(mine) for _ in range(2)]
    assert Counting.calls == 2 and list(map(len, found)) == [0, 2]
    assert [r.num_cached_tokens for r in answers] == [0, 32]
    assert answers[0].token_ids == answers[1].token_ids == serve(engine({})).token_ids
    blocks = replay(events)
    assert blocks.num_free == blocks.num_blocks and len(blocks.cached) == 2, "free, and still to be found"


def test_they_belong_to_the_paged_cache():
    objects = {"kv.blocks": BlockPool, "kv.prefix": match_prefix}
    assert choose(objects, EngineConfig()).names == ("kv.blocks", "kv.prefix")
    assert choose(objects, EngineConfig(kv="contiguous")).names == ()


class GivesTwice(BlockPool):
    def allocate(self, count):
        blocks = super().allocate(count)
        self._free.update(dict.fromkeys(blocks))
        return blocks


@pytest.mark.parametrize("wrong, message", [
    (type("P", (BlockPool,), {"allocate": lambda self, count: [0] * count}), "different blocks"),
    (type("P", (BlockPool,), {"allocate": lambda self, count: None}), "different blocks"),
    (type("P", (BlockPool,), {"find": lambda self, names: None}), "from find"),
    (type("P", (BlockPool,), {"num_unheld": lambda self, blocks: len(blocks) + 1}), "nobody holds"),
    (type("P", (BlockPool,), {"release": lambda self, blocks: None}), "says that"),
    (GivesTwice, "says that"),
])  # fmt: skip
def test_a_wrong_pool_is_named(engine, wrong, message):
    mine = engine({"kv.blocks": guarded(POOL, wrong)})
    with pytest.raises(OwnPartError, match=message) as error:
        [serve(mine) for _ in range(2)]
    assert "your kv.blocks (lab 2.8, BlockPool" in str(error.value)


def test_a_block_that_is_held_is_not_given_again():
    pool = guarded(POOL, type("P", (BlockPool,), {"allocate": lambda self, count: list(range(count))}))(4)
    pool.allocate(2)
    with pytest.raises(OwnPartError, match="block 0 in allocate, to write to, and it is held"):
        pool.allocate(1)


@pytest.mark.parametrize("blocks", [[0, 1, 2], [99999], None])
def test_a_wrong_prefix_is_named(engine, blocks):
    mine = engine({"kv.prefix": guarded(PREFIX, lambda request, block_size, pool: blocks)})
    with pytest.raises(OwnPartError, match=r"at most 2 blocks of 16|kv\.prefix"):
        serve(mine)
