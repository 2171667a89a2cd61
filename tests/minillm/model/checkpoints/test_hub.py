"""Hugging Face ids: what is asked for, and what each failure is turned into. Nothing here reaches a network."""

import errno

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from minillm.errors import CheckpointError
from minillm.model.checkpoints import open_checkpoint
from minillm.model.checkpoints.hub import fetch_from_hub, is_hub_id


class Response:
    """As much of an HTTP answer as the errors of huggingface_hub look at."""

    headers: dict = {}  # noqa: RUF012
    request = None
    status_code = 404


@pytest.fixture(autouse=True)
def online(monkeypatch):
    """Tests run with HF_HUB_OFFLINE set; what is said about a failure depends on it."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def snapshot(monkeypatch):
    """snapshot(result) makes snapshot_download return it, or raise it, and returns the list of calls."""

    def install(result):
        calls = []

        def fake(repo_id, **options):
            calls.append((repo_id, options))
            if isinstance(result, Exception):
                raise result
            return str(result)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
        return calls

    return install


def test_asks_for_safetensors_and_descriptions_only(snapshot, tmp_path):
    calls = snapshot(tmp_path)
    assert fetch_from_hub("a/b", revision="v1", progress=True) == tmp_path
    repo_id, options = calls[0]
    assert (repo_id, options["revision"], options["tqdm_class"]) == ("a/b", "v1", None)
    expected = ["model.safetensors", "config.json", "chat_template.jinja", "tokenizer.json", "model.safetensors.index.json"]
    files = [*expected, "pytorch_model.bin", "onnx/config.json", "original/model.safetensors", "consolidated.safetensors"]
    wanted = huggingface_hub.utils.filter_repo_objects(
        files, allow_patterns=options["allow_patterns"], ignore_patterns=options["ignore_patterns"]
    )
    assert list(wanted) == expected


def test_without_weights(snapshot, tmp_path):
    calls = snapshot(tmp_path)
    fetch_from_hub("a/b", revision=None, progress=True, weights=False)
    assert "*.safetensors" not in calls[0][1]["allow_patterns"]


def test_no_progress_prints_nothing(snapshot, tmp_path, capsys):
    calls = snapshot(tmp_path)
    fetch_from_hub("a/b", revision=None, progress=False)
    for _ in calls[0][1]["tqdm_class"](range(3), desc="files", name="huggingface_hub.snapshot_download"):
        pass
    assert capsys.readouterr() == ("", "")


def http(kind):
    return kind("the server's words", response=Response())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http(errors.GatedRepoError), "a/b is gated: accept its licence .* set HF_TOKEN"),
        (http(errors.RepositoryNotFoundError), "no model a/b that you may read; check the spelling, or set HF_TOKEN"),
        (http(errors.RevisionNotFoundError), "a/b has no revision 'v1'; leave --revision out"),
        (errors.OfflineModeIsEnabled("off"), "HF_HUB_OFFLINE is set; unset it"),
        (
            errors.LocalEntryNotFoundError("no connection\nand no copy"),
            r"could not fetch a/b .*no connection and no copy.*network",
        ),
        (ConnectionError("refused"), r"could not fetch a/b from the hub \(refused\); check the network"),
        (TimeoutError(), r"could not fetch a/b from the hub \(TimeoutError\)"),
        (OSError(errno.ENOSPC, "No space left"), "the disk is full: a/b does not fit.*HF_HOME"),
    ],
)
def test_failures(snapshot, error, message):
    snapshot(error)
    with pytest.raises(CheckpointError, match=message) as e:
        fetch_from_hub("a/b", revision="v1", progress=False)
    assert "\n" not in str(e.value)


def test_offline_without_a_copy(monkeypatch, tmp_path):
    """huggingface_hub itself, told to stay offline, with an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(CheckpointError, match=r"org/absent is not \(wholly\) in the local cache and HF_HUB_OFFLINE is set"):
        open_checkpoint("org/absent", progress=False)


@pytest.mark.parametrize(("source", "yes"), [("org/name", True), ("o-r.g/n_1.5-B", True), ("name", False), ("a/b/c", False),
                                             ("./x", False), ("../x", False), ("/x/y", False), ("~/x", False)])  # fmt: skip
def test_spelling_of_ids(source, yes):
    assert is_hub_id(source) == yes
