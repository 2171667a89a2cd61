"""Random weights: right shapes, reproducible, and a tokenizer whose every id decodes."""

import math

import pytest
import torch
from tokenizers import Tokenizer

from minillm.config import ModelConfig
from minillm.errors import CheckpointError, ConfigError
from minillm.model.checkpoints import expected_tensors, open_checkpoint
from minillm.model.checkpoints.dummy import SHAPES

# Published parameter counts; a tied embedding counts once.
PARAMETERS = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
}


def test_every_shape_is_counted():
    assert PARAMETERS.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    shapes = expected_tensors(ModelConfig.from_hf(SHAPES[name])).values()
    assert sum(math.prod(shape) for shape in shapes) == PARAMETERS[name]


def test_named_shape(home):
    checkpoint = open_checkpoint("smollm2-135m", load_format="dummy", seed=3)
    assert checkpoint.name == "smollm2-135m"
    assert home in checkpoint.folder.parents
    tensors = dict(checkpoint.weights())
    assert {n: tuple(t.shape) for n, t in tensors.items()} == expected_tensors(checkpoint.config)
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    embedding = tensors["model.embed_tokens.weight"].float()
    assert abs(embedding.mean()) < 1e-4 and abs(embedding.std() - 0.02) < 1e-4
    assert torch.equal(tensors["model.norm.weight"].float(), torch.ones(576))


def test_seed_decides(make_folder, raw_config):
    folder = str(make_folder(raw_config))

    def draw(seed):
        return dict(open_checkpoint(folder, load_format="dummy", seed=seed).weights())

    a, b, c = draw(0), draw(0), draw(1)
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert not torch.equal(a["model.embed_tokens.weight"], c["model.embed_tokens.weight"])
    assert not torch.equal(a["model.layers.0.mlp.up_proj.weight"], a["model.layers.1.mlp.up_proj.weight"])


def test_folder_needs_no_weights(make_folder, raw_config):
    folder = make_folder(raw_config | {"attention_bias": True})
    (folder / "model.safetensors").unlink()
    checkpoint = open_checkpoint(str(folder), load_format="dummy")
    assert checkpoint.name == "tiny"
    assert dict(checkpoint.weights())["model.layers.0.self_attn.q_proj.bias"].shape == (64,)


def test_tokenizer():
    checkpoint = open_checkpoint("qwen3-0.6b", load_format="dummy")
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    text = "héllo 😀\n\t<|im_end|>"
    ids = tokenizer.encode(text).ids
    assert ids == [*"héllo 😀\n\t".encode(), 258]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert checkpoint.config.eos_token_ids == (258,)
    assert tokenizer.get_vocab_size() == checkpoint.config.vocab_size == 151936
    assert tokenizer.decode([1000, 151935]) == " 1000 151935"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x.gguf", "dummy takes no .gguf; give a folder"),
        ("smollm2-135", "did you mean smollm2-135m"),
        ("./nowhere", "there is no folder './nowhere'"),
    ],
)
def test_refused(source, message):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(source, load_format="dummy")


def test_folder_without_tokenizer(make_folder, raw_config):
    folder = make_folder(raw_config)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer.json; copy one there, or name a shape: smollm2-135m"):
        open_checkpoint(str(folder), load_format="dummy")


def test_unknown_load_format():
    with pytest.raises(ConfigError, match="--load-format pickle: choose one of auto, dummy"):
        open_checkpoint("smollm2-135m", load_format="pickle")
