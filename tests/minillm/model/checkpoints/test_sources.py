"""Which of the sources a spelling means, and what is said of one that means none."""

import pytest

from minillm.errors import CheckpointError
from minillm.model.checkpoints import open_checkpoint, pull, sources


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("smollm2-135", "there is no model 'smollm2-135'; did you mean smollm2-135m"),
        ("SmolLM2-135M", "did you mean smollm2-135m"),
        ("zzz", "there is no model 'zzz'; give smollm2-135m, a folder, a .gguf file or a Hugging Face id"),
        ("qwen3-8b", "known by its shape only; add --load-format dummy"),
        ("./nowhere", "there is no folder './nowhere'; check the path"),
        ("/nowhere/at/all", "there is no folder '/nowhere/at/all'"),
        ("~/nowhere-at-all", "there is no folder '/.*/nowhere-at-all'"),  # as the shell would have read it
        ("~nosuchuser-at-all/x", "cannot be a model"),
        ("m" * 300, "cannot be a model|there is no model"),
        ("a\0b", "cannot be a model|there is no model"),
        ("", "there is no folder ''"),
    ],
)
def test_unknown(source, message):
    with pytest.raises(CheckpointError, match=message) as e:
        open_checkpoint(source)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("source", ["smollm2-135m", "x.gguf", "."])
def test_revision_is_for_hub_ids(source):
    with pytest.raises(CheckpointError, match="--revision belongs to Hugging Face ids"):
        pull(source, revision="main")


def test_revision_of_a_shape():
    with pytest.raises(CheckpointError, match="--revision belongs to Hugging Face ids"):
        open_checkpoint("qwen3-8b", load_format="dummy", revision="main")


def test_hub_id(monkeypatch, make_folder, raw_config):
    calls, folder = [], make_folder(raw_config)
    monkeypatch.setattr(sources, "fetch_from_hub", lambda *args, **options: calls.append((args, options)) or folder)
    checkpoint = open_checkpoint("org/tiny-0.1", revision="abc", progress=False)
    assert (checkpoint.name, checkpoint.folder) == ("org/tiny-0.1", folder)
    open_checkpoint("org/tiny-0.1", load_format="dummy", progress=False)
    assert calls == [
        (("org/tiny-0.1",), {"revision": "abc", "progress": False, "weights": True}),
        (("org/tiny-0.1",), {"revision": None, "progress": False, "weights": False}),
    ]


def test_a_folder_in_sight_comes_before_the_hub(monkeypatch, tmp_path, make_folder, raw_config):
    folder = make_folder(raw_config, name="model")
    (tmp_path / "org").mkdir()
    folder.rename(tmp_path / "org" / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "fetch_from_hub", lambda *_, **__: pytest.fail("asked the hub"))
    assert open_checkpoint("org/model").name == "model"
    monkeypatch.chdir(tmp_path / "org" / "model")
    assert open_checkpoint(".").name == "model"
