"""Checkpoints from the Hugging Face hub, kept in its own cache, where other programs find them too.

HF_TOKEN, HF_HOME, HF_HUB_OFFLINE and HF_ENDPOINT mean what they mean everywhere.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from minillm.errors import CheckpointError

_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_DESCRIPTION = ["*.json", "*.jinja"]
_WEIGHTS = ["*.safetensors"]
# Subfolders hold other formats (onnx/, original/); consolidated.* repeats the weights under other names.
_UNWANTED = ["*/*", "consolidated*"]


def is_hub_id(source: str) -> bool:
    """Whether `source` is spelled like org/name."""
    return _ID.fullmatch(source) is not None


def fetch_from_hub(repo_id: str, *, revision: str | None, progress: bool, weights: bool = True) -> Path:
    """The local snapshot folder. Without weights: configuration and tokenizer only. Raises CheckpointError."""
    from huggingface_hub import snapshot_download  # slow to import, and not needed for local models

    try:
        return Path(
            snapshot_download(
                repo_id,
                revision=revision,
                allow_patterns=_DESCRIPTION + (_WEIGHTS if weights else []),
                ignore_patterns=_UNWANTED,
                tqdm_class=None if progress else _silent_tqdm(),
            )
        )
    except Exception as e:  # network, HTTP, file system and validation errors share no base class
        raise CheckpointError(_explain(e, repo_id, revision)) from e


def _explain(error: Exception, repo_id: str, revision: str | None) -> str:
    from huggingface_hub import errors

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: {repo_id} does not fit; free some space or set HF_HOME to a folder on another disk"
    if isinstance(error, errors.GatedRepoError):
        return f"{repo_id} is gated: accept its licence on its hub page, then set HF_TOKEN to a token of that account"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no model {repo_id} that you may read; check the spelling, or set HF_TOKEN if it is private"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo_id} has no revision {revision!r}; leave --revision out or give an existing branch, tag or commit"
    if isinstance(error, errors.OfflineModeIsEnabled) or _offline():
        return f"{repo_id} is not (wholly) in the local cache and HF_HUB_OFFLINE is set; unset it, or use a local folder"
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"could not fetch {repo_id} from the hub ({reason[:200]}); check the network, or use a local folder or smollm2-135m"


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _silent_tqdm() -> type:
    from tqdm.auto import tqdm

    class SilentTqdm(tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **{**{k: v for k, v in kwargs.items() if k != "name"}, "disable": True})

    return SilentTqdm
