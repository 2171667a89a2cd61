import pytest

from shared import models
from shared.sources import TableError, UnverifiedError


def test_a_model_by_id_and_by_alias():
    model = models.load("llama-3.1-8b")
    assert (model.num_layers, model.num_kv_heads, model.head_dim, model.vocab_size) == (32, 8, 128, 128_256)
    assert model.max_context == 131_072
    assert models.load("deepseek-r1") is models.load("deepseek-v3")


def test_the_table_is_whole():
    assert len(models.names()) == 28
    for name in models.names():
        model = models.load(name, allow_unverified=True)
        assert model.source_of("hidden_size").title and model.source_of("hidden_size").date
        assert model.num_heads % model.num_kv_heads == 0
        assert bool(model.sliding_window) == bool(model.num_window_layers)
        assert model.intermediate_size > 0 or (model.moe and not model.moe.num_dense_layers)


def test_head_dim_is_not_always_hidden_over_heads():
    odd = {n for n in models.names() if (m := models.load(n, allow_unverified=True)).hidden_size != m.num_heads * m.head_dim}
    assert {"qwen3-0.6b", "gemma-3-1b", "gpt-oss-20b"} <= odd
    assert not odd & {"llama-3.1-8b", "smollm2-135m", "llama-2-7b"}


def test_shapes_from_memory_are_refused_unless_asked_for():
    with pytest.raises(UnverifiedError, match=r"deepseek-v2: .*unverified .*allow_unverified=True"):
        models.load("deepseek-v2")
    model = models.load("deepseek-v2", allow_unverified=True)
    assert model.published_params == 236e9
    assert model.source_of("published_params").verified
    assert not model.source_of("num_layers").verified


def test_one_doubtful_value_does_not_spoil_the_others():
    model = models.load("gemma-3-1b")
    with pytest.raises(UnverifiedError, match="gemma-3-1b: the context length 32768"):
        _ = model.max_context
    assert model.stated_context == 32_768


def test_unknown_names():
    with pytest.raises(TableError, match=r"no model 'gpt-5'.*llama-3.1-8b"):
        models.load("gpt-5")
    with pytest.raises(TableError, match="no field 'layers'"):
        models.load("llama-3.1-8b").source_of("layers")


GOOD = """
[sources.a]
title = "a page"
date = "2026-11"
how = "read"
[x]
name = "X"
source = "a"
num_layers = 1
hidden_size = 8
num_heads = 2
num_kv_heads = 1
head_dim = 4
intermediate_size = 16
vocab_size = 10
stated_context = 100
moe = { num_experts = 4, num_active = 2, expert_size = 8 }
"""


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("head_dim = 4\n", "", r"\[x\]: .*head_dim"),
        ("head_dim", "head_dims", "head_dims"),
        ('source = "a"', 'source = "b"', "no source 'b'"),
        ("num_layers", 'other_sources = { layers = "a" }\nnum_layers', "names 'layers', which is no field"),
        ("num_active = 2, ", "", "num_active"),
    ],
)
def test_a_faulty_table_says_where(tmp_path, monkeypatch, old, new, message):
    table = tmp_path / "models.toml"
    monkeypatch.setattr(models, "TABLE", table)
    models._table.cache_clear()
    try:
        table.write_text(GOOD)
        assert models.load("x").num_moe_layers == 1
        models._table.cache_clear()
        assert old in GOOD
        table.write_text(GOOD.replace(old, new, 1))
        with pytest.raises(TableError, match=message):
            models.load("x")
    finally:
        models._table.cache_clear()
