"""Folders in Hugging Face's layout: what loads, and what is refused with which words."""

import json

import pytest
import torch
from safetensors.torch import save_file

from minillm.config import ModelConfig
from minillm.errors import CheckpointError
from minillm.model.checkpoints import expected_tensors, open_checkpoint

LAYER_0 = "model.layers.0"


def state_of(raw):
    generator = torch.Generator().manual_seed(1)
    return {n: torch.randn(s, generator=generator) for n, s in expected_tensors(ModelConfig.from_hf(raw)).items()}


def load(folder):
    return dict(open_checkpoint(str(folder)).weights())


def same(loaded, state):
    return loaded.keys() == state.keys() and all(
        loaded[n].dtype == state[n].dtype and torch.equal(loaded[n], state[n]) for n in state
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_single_file(make_folder, raw_config, dtype):
    state = {n: t.to(dtype) for n, t in state_of(raw_config).items()}
    folder = make_folder(raw_config, state)
    checkpoint = open_checkpoint(str(folder))
    assert (checkpoint.name, checkpoint.folder) == ("tiny", folder)
    assert checkpoint.config == ModelConfig.from_hf(raw_config)
    assert same(dict(checkpoint.weights()), state)
    assert same(dict(checkpoint.weights()), state)  # and once more


def shard(folder, state):
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for i, name in enumerate(state):
        weight_map[name] = f"model-0000{i % 3 + 1}-of-00003.safetensors"
    for file in set(weight_map.values()):
        save_file({n: state[n] for n, f in weight_map.items() if f == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards(make_folder, raw_config):
    state = state_of(raw_config)
    folder = make_folder(raw_config, state)
    shard(folder, state)
    assert same(load(folder), state)


def test_missing_shard(make_folder, raw_config):
    folder = make_folder(raw_config)
    shard(folder, state_of(raw_config))
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00003\.safetensors \(one of 3 shards\); fetch"):
        open_checkpoint(str(folder))


def test_tensors_that_can_be_left_out(make_folder, raw_config):
    state = state_of(raw_config)
    surplus = {"lm_head.weight": torch.zeros(300, 64), f"{LAYER_0}.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    assert same(load(make_folder(raw_config, state | surplus)), state)


def test_untied_head_is_a_weight(make_folder, raw_config):
    raw_config["tie_word_embeddings"] = False
    assert load(make_folder(raw_config))["lm_head.weight"].shape == (300, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop(f"{LAYER_0}.mlp.up_proj.weight"), r"model\.layers\.0\.mlp\.up_proj\.weight is missing"),
        (lambda s: s.update({"model.norm.weight": torch.ones(63)}), r"model\.norm\.weight is \[63\].*asks for \[64\]"),
        (lambda s: s.update({f"{LAYER_0}.mlp.experts.0": torch.ones(2)}), r"mlp\.experts\.0 has no place in llama"),
        (
            lambda s: s.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}),
            r"norm\.weight is stored as I8.*unquantized",
        ),
        (lambda s: s.update({"model.norm.weight": torch.ones(64).to(torch.float8_e4m3fn)}), "is stored as F8_E4M3"),
    ],
)
def test_wrong_tensors_are_refused_before_the_first_is_given(make_folder, raw_config, change, message):
    state = state_of(raw_config)
    change(state)
    weights = open_checkpoint(str(make_folder(raw_config, state))).weights()
    with pytest.raises(CheckpointError, match=message):
        next(weights)


@pytest.mark.parametrize("keep", [0, 5, 200, -10])
def test_truncated_safetensors(make_folder, raw_config, keep):
    folder = make_folder(raw_config)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged or cut short.*fetch it again"):
        load(folder)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "has no config.json, so it is not a Hugging Face checkpoint"),
        ("tokenizer.json", "has no tokenizer.json; save the tokenizer"),
        ("model.safetensors", "has no model.safetensors; minillm reads no other"),
    ],
)
def test_missing_file(make_folder, raw_config, missing, message):
    folder = make_folder(raw_config)
    (folder / missing).unlink()
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(folder))


def test_pickled_weights_are_not_opened(make_folder, raw_config):
    folder = make_folder(raw_config)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"only pickled weights .*convert them to safetensors"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_broken_config(make_folder, raw_config, text):
    folder = make_folder(raw_config)
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config.json .*fetch it again"):
        open_checkpoint(str(folder))


def test_quantized_checkpoint(make_folder, raw_config):
    raw_config["quantization_config"] = {"quant_method": "gptq"}
    with pytest.raises(CheckpointError, match=r"quantized \(gptq\); use the original"):
        open_checkpoint(str(make_folder(raw_config)))


@pytest.mark.parametrize(
    ("in_config", "in_generation", "expected"),
    [(1, [1, 2], (1, 2)), ([3, 1], 2, (3, 1, 2)), (None, 5, (5,)), (4, None, (4,)), (None, None, ())],
)
def test_every_end_of_sequence_id_counts(make_folder, raw_config, in_config, in_generation, expected):
    raw_config["eos_token_id"] = in_config
    folder = make_folder(raw_config)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": in_generation}))
    assert open_checkpoint(str(folder)).config.eos_token_ids == expected


def test_without_generation_config(make_folder, raw_config):
    assert open_checkpoint(str(make_folder(raw_config))).config.eos_token_ids == (258,)
