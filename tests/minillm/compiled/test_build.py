"""Building, finding and running compiled graphs, with a real compiler, on a tiny model: about half a minute."""

import dataclasses
import logging

import pytest
import torch

from minillm.compiled import build as building
from minillm.compiled.build import bucket_folder, build, dequantized, prefill_folder
from minillm.compiled.dispatch import CompiledDecoder, default_buckets, find
from minillm.compiled.graph import DecodeGraph
from minillm.compiled.key import graph_key, weights_digest
from minillm.compiled.prefill import Prefill
from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.kv.storage import allocate_layers
from minillm.loading import load_model
from minillm.request import SamplingParams

PROMPTS = [[5, 9, 200], list(range(60)), [1, 2] * 9, [3, 1, 4, 1, 5], [250, 251]]
TOLERANCE = 2e-3  # of float32 logits: int8 weights, another order of summation


@pytest.fixture(scope="module")
def config(tiny_folder):
    return EngineConfig(
        str(tiny_folder), load_format="dummy", dtype="float32", quantization="int8", threads=1, max_num_seqs=5, max_model_len=128
    )


@pytest.fixture(scope="module")
def built(config, tmp_path_factory):
    """Prompts, and batch sizes 1 (int8 in the inner loop) and 4, in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINILLM_HOME", str(tmp_path_factory.mktemp("home")))
        reports = []
        folder = build(config, [4, 1], lambda *report: reports.append(report))
        yield folder, reports


def test_what_is_built_and_reported(built, config):
    folder, reports = built
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == ["batch-1", "batch-4", "prefill"]
    assert {p.name for p in bucket_folder(folder, 1).iterdir()} == {"decode.pt2", "head.pt2", "minillm.json"}
    assert {p.name for p in prefill_folder(folder).iterdir()} == {"before.pt2", "after.pt2", "minillm.json"}
    assert reports[0][:2] == (0, 3) and "prompts and batch sizes 1, 4: about" in reports[0][2]
    assert reports[-1][:2] == (3, 3)
    again = []
    assert build(config, [1, 4], lambda *report: again.append(report)) == folder
    assert again == [(0, 0, "everything is compiled already")]


@torch.inference_mode()
def test_compiled_logits_equal_eager_ones(built, config):
    _, decoder = load_model(config)
    compiled = find(config, decoder)
    assert isinstance(compiled, CompiledDecoder) and list(compiled.buckets) == [1, 4]
    for batch, bucket in compiled.buckets.items():
        caches = [allocate_layers(decoder.config, 12, 16, torch.float32) for _ in range(2)]
        for layer, other in zip(*caches, strict=True):
            other.copy_(layer.copy_(torch.randn(layer.shape)))
        tables = torch.randperm(12).view(4, 3)[:batch]
        positions, token_ids = torch.tensor([33, 0, 47, 15])[:batch], torch.randint(0, 300, (batch,))
        want = decoder.logits(DecodeGraph(decoder)(token_ids, positions, tables, caches[0]))
        got = bucket.head(bucket.decode(token_ids, positions, tables, caches[1]))
        assert (got - want).abs().max() < TOLERANCE * want.abs().max()
        for ours, theirs in zip(*caches, strict=True):
            torch.testing.assert_close(ours, theirs, atol=TOLERANCE * 10, rtol=0)


@torch.inference_mode()
def test_compiled_prompts_equal_eager_ones(built, config, prompts_of):
    """Alone (attention's result is then laid out by head), together, and with a past."""
    _, decoder = load_model(config)
    prefill = find(config, decoder).prefill
    assert isinstance(prefill, Prefill)
    for lengths, past in (([2], 0), ([50], 0), ([3, 20], 0), ([7, 33], 40)):
        token_ids, positions, meta = prompts_of(lengths, past, block_size=16)
        caches = [allocate_layers(decoder.config, 20, 16, torch.float32) for _ in range(2)]
        for layer, other in zip(*caches, strict=True):
            other.copy_(layer.copy_(torch.randn(layer.shape)))
        want, got = (model(token_ids, positions, c, meta) for model, c in zip((decoder, prefill), caches, strict=True))
        assert (got - want).abs().max() < TOLERANCE * want.abs().max()
        for ours, theirs in zip(*caches, strict=True):
            torch.testing.assert_close(ours, theirs, atol=TOLERANCE * 10, rtol=0)


def test_without_compiled_prompts_they_run_eager(built, config, caplog):
    """As after a build that was interrupted."""
    folder, _ = built
    _, decoder = load_model(config)
    manifest = prefill_folder(folder) / "minillm.json"
    whole = manifest.read_bytes()
    manifest.unlink()
    try:
        with caplog.at_level(logging.INFO, "minillm"):
            assert find(config, decoder).prefill is decoder
    finally:
        manifest.write_bytes(whole)
    assert "compiled decode for batch sizes 1, 4; prompts eager" in caplog.text


def test_an_engine_picks_them_up_and_enforce_eager_does_not(built, config, tiny_llm, caplog):
    options = {"quantization": "int8", "max_num_seqs": 5, "max_model_len": 128}
    with caplog.at_level(logging.INFO, "minillm"):
        compiled = tiny_llm(sharpen=False, **options)
    assert "compiled decode for batch sizes 1, 4; prompts compiled" in caplog.text
    eager = tiny_llm(sharpen=False, **options, enforce_eager=True)
    assert isinstance(compiled.engine.runner.model, CompiledDecoder) and not isinstance(
        eager.engine.runner.model, CompiledDecoder
    )
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, logprobs=0)
    for ours, theirs in zip(compiled.generate(PROMPTS, params), eager.generate(PROMPTS, params), strict=True):
        assert len(ours.outputs[0].token_ids) == 20
        assert ours.outputs[0].token_ids[0] == theirs.outputs[0].token_ids[0]
    compiled.engine.scheduler.check_integrity()


@pytest.mark.parametrize(
    "change", [{"quantization": None}, {"dtype": "bfloat16"}, {"block_size": 32}, {"threads": 2}, {"seed": 1}], ids=str
)
def test_other_settings_find_nothing_and_say_so(built, config, caplog, change):
    other = dataclasses.replace(config, **change)
    _, decoder = load_model(other)
    try:
        with caplog.at_level(logging.INFO, "minillm"):
            assert find(other, decoder) is decoder
    finally:
        torch.set_num_threads(1)
    assert "running eager: nothing is compiled" in caplog.text and "`minillm compile`" in caplog.text


def test_one_changed_weight_changes_the_key(config):
    _, decoder = load_model(config)
    key, digest = graph_key(config, decoder), weights_digest(decoder)
    assert graph_key(config, decoder) == key
    decoder.layers[1].down_proj.qweight[3, 7] += 1
    assert weights_digest(decoder) != digest and graph_key(config, decoder) != key


def test_a_bucket_that_is_cut_short_is_not_used(built, config):
    """A copy of the folder whose package lost its end, as after a full disk."""
    folder, _ = built
    _, decoder = load_model(config)
    package = bucket_folder(folder, 4) / "head.pt2"
    whole = package.read_bytes()
    package.write_bytes(whole[:-1])
    try:
        assert list(find(config, decoder).buckets) == [1]
    finally:
        package.write_bytes(whole)


def test_without_a_compiler(config, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(building.shutil, "which", lambda name: None)
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler and there is none; install g\+\+"):
        build(config)
    _, decoder = load_model(config)
    with caplog.at_level(logging.INFO, "minillm"):
        assert find(config, decoder) is decoder
    assert [r.levelname for r in caplog.records if "compiler" in r.message] == ["WARNING"]


def test_what_cannot_be_compiled(config, monkeypatch):
    with pytest.raises(ConfigError, match="--kv contiguous always runs eager"):
        build(dataclasses.replace(config, kv="contiguous"))
    with pytest.raises(ConfigError, match="a batch size must be at least 1; got 0"):
        build(config, [0, 2])


def test_default_buckets():
    assert default_buckets(32) == [1, 4, 8, 16, 32] and default_buckets(6) == [1, 4, 6] and default_buckets(1) == [1]
    assert default_buckets(200) == [1, 4, 8, 16, 32]


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@torch.inference_mode()
def test_dequantized_is_the_same_model(make_decoder, quantization):
    decoder = make_decoder("biases", quantization=quantization)
    plain = dequantized(decoder)
    x = torch.randn(3, 64)
    for ours, theirs in zip(plain.layers, decoder.layers, strict=True):
        for name in ("qkv_proj", "gate_up_proj"):
            torch.testing.assert_close(getattr(ours, name)(x), getattr(theirs, name)(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(plain.logits(x), decoder.logits(x), atol=1e-4, rtol=1e-4)
    assert torch.equal(plain.embed_tokens.weight, decoder.embed_tokens.weight)
