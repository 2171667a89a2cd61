"""From what a user types after --model to a checkpoint."""

from __future__ import annotations

import difflib
from pathlib import Path

from minillm.config import LOAD_FORMATS
from minillm.errors import CheckpointError, ConfigError
from minillm.model.checkpoints.checkpoint import Checkpoint
from minillm.model.checkpoints.dummy import SHAPES, open_random, open_shape
from minillm.model.checkpoints.folder import open_folder
from minillm.model.checkpoints.gguf_convert import convert_cached
from minillm.model.checkpoints.hub import fetch_from_hub, is_hub_id
from minillm.model.checkpoints.smollm2 import ALIAS, fetch_smollm2


def open_checkpoint(
    source: str, *, load_format: str = "auto", revision: str | None = None, seed: int = 0, progress: bool = True
) -> Checkpoint:
    """Find, fetch and convert a model as needed.

    source: "smollm2-135m", a .gguf file, a folder in Hugging Face's layout, or a Hugging Face id (org/name).
    load_format: "auto", or "dummy" for random weights drawn from `seed`; source may then also be a name in dummy.SHAPES.
    revision: branch, tag or commit of a Hugging Face id. progress: show bars on stderr. Raises CheckpointError, ConfigError.
    """
    source = _home_expanded(source)
    if load_format not in LOAD_FORMATS:
        raise ConfigError(f"--load-format {load_format}: choose one of {', '.join(LOAD_FORMATS)}")
    if load_format == "auto":
        return open_folder(pull(source, revision=revision, progress=progress), _display_name(source))
    if source in SHAPES:
        _refuse_revision(source, revision)
        return open_shape(source, seed)
    if source.endswith(".gguf"):
        raise CheckpointError(
            f"--load-format dummy takes no .gguf; give a folder, a Hugging Face id or one of {', '.join(SHAPES)}"
        )
    return open_random(_folder_of(source, revision, progress, weights=False), _display_name(source), seed)


def pull(source: str, *, revision: str | None = None, progress: bool = True) -> Path:
    """Make a model's files local and return their folder; quick if they are. Sources and errors as in open_checkpoint."""
    source = _home_expanded(source)
    if source == ALIAS:
        _refuse_revision(source, revision)
        return fetch_smollm2(progress=progress)
    if source.endswith(".gguf"):
        _refuse_revision(source, revision)
        return convert_cached(Path(source), progress=progress)
    return _folder_of(source, revision, progress, weights=True)


def _folder_of(source: str, revision: str | None, progress: bool, *, weights: bool) -> Path:
    path = Path(source)
    if source and path.is_dir():  # as in transformers, a folder in sight comes before a hub id of the same spelling
        _refuse_revision(source, revision)
        return path
    if is_hub_id(source):
        return fetch_from_hub(source, revision=revision, progress=progress, weights=weights)
    raise CheckpointError(_unknown(source))


def _home_expanded(source: str) -> str:
    """~ and ~user as the shell would have read them; anything that is no possible path is refused here, once."""
    try:
        expanded = str(Path(source).expanduser()) if source.startswith("~") else source
        Path(expanded).is_dir()
    except (OSError, RuntimeError, ValueError) as e:
        raise CheckpointError(f"{source[:80]!r} cannot be a model: {e}") from e
    return expanded


def _unknown(source: str) -> str:
    if source in SHAPES:
        return f"{source} is known by its shape only; add --load-format dummy for random weights, or give its org/name on the hub"
    if "/" in source or source in ("", ".", ".."):
        return f"there is no folder {source!r}; check the path"
    close = difflib.get_close_matches(source.lower(), [ALIAS, *SHAPES], n=1)
    guess = f"did you mean {close[0]}? Otherwise give" if close else "give smollm2-135m,"
    return f"there is no model {source!r}; {guess} a folder, a .gguf file or a Hugging Face id (org/name)"


def _refuse_revision(source: str, revision: str | None) -> None:
    if revision is not None:
        raise CheckpointError(f"--revision belongs to Hugging Face ids, and {source} is none; leave it out")


def _display_name(source: str) -> str:
    path = Path(source)
    if source.endswith(".gguf"):
        return path.stem
    return path.resolve().name if path.is_dir() and source != ALIAS else source
