"""The registry of replaceable parts."""

import pytest

from minillm.errors import ConfigError
from minillm.parts import PARTS, Parts, implementations


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_every_part_loads_and_names_what_it_is(part):
    assert part.name.count(".") == 1 and part.summary
    assert callable(part.load()) and part.load() is Parts().get(*part.name.split("."))


@pytest.mark.parametrize("part", [part for part in PARTS.values() if part.protocol], ids=lambda part: part.name)
def test_an_implementation_has_what_its_protocol_asks_for(part):
    protocol = type(part)(part.name, "", part.protocol).load()
    if not isinstance(protocol, type):
        return  # a function: there is nothing to it but its call
    asked = [name for name, value in vars(protocol).items() if callable(value) or type(value) is property]
    asked = [name for name in asked if name == "__call__" or not name.startswith("_")]
    assert asked and [name for name in asked if not hasattr(part.load(), name)] == []


def test_what_a_flag_may_be_set_to():
    assert set(implementations("kv")) == {"contiguous", "paged"}
    assert {"token_budget", "static", "prefill_first"} <= set(implementations("scheduler"))
    assert implementations("nothing") == []
    assert "gqa_attention" not in implementations("ops"), "it runs inside attention.torch, and no flag selects it"


def test_mine_takes_the_place_of_one_part_in_one_engine():
    class Mine:
        pass

    parts = Parts({"kv.paged": Mine})
    assert parts.get("kv", "paged") is Mine and parts.get("kv", "contiguous") is PARTS["kv.contiguous"].load()
    assert Parts().get("kv", "paged") is PARTS["kv.paged"].load()


def test_a_part_that_does_not_exist():
    with pytest.raises(ConfigError, match=r"no part 'kv\.magic'; there are .*kv\.paged"):
        Parts({"kv.magic": object})
    with pytest.raises(ConfigError, match="--kv magic: choose one of contiguous, paged"):
        Parts().get("kv", "magic")


def test_an_engine_runs_what_was_put_in_and_counts_on_it(tiny_llm):
    """A wrapper that counts: each replaced part is really the one that is called."""
    calls = dict.fromkeys(
        ("attention.sdpa", "kv.paged", "scheduler.token_budget", "sampling.pipeline", "text.stream", "text.stop"), 0
    )
    methods = {
        "attention.sdpa": "plan", "kv.paged": "allocate", "scheduler.token_budget": "schedule", "sampling.pipeline": "__call__",
        "text.stream": "push", "text.stop": "push",
    }  # fmt: skip

    def counting(name):
        original = getattr(PARTS[name].load(), methods[name])

        def method(self, *args, **kwargs):
            calls[name] += 1
            return original(self, *args, **kwargs)

        return type("Mine", (PARTS[name].load(),), {methods[name]: method})

    plain = tiny_llm().generate([[5, 6, 7]])[0].outputs[0]
    mine = tiny_llm(mine={name: counting(name) for name in calls}).generate([[5, 6, 7]])[0].outputs[0]
    assert mine.token_ids == plain.token_ids and mine.text == plain.text
    assert min(calls.values()) >= 1, calls


@pytest.mark.parametrize(
    "part, flag",
    [
        ("kv.contiguous", "--kv contiguous"),
        ("kv.blocks", "--kv paged"),
        ("ops.gqa_attention", "--attention torch"),
        ("kernels.rope", "--kernels triton"),
        ("kernels.gemm", "--linear triton"),
        ("kernels.paged_decode", "--attention triton"),
        ("kernels.w4a16", "--quantization int4 --kernels triton"),
        ("ops.rope", ""),
        ("text.stop", ""),
    ],
)
def test_what_selects_a_part(part, flag):
    assert PARTS[part].flag == flag
