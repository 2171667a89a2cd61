"""Streaming a checkpoint's tensors into the memory that waits for them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from minillm.errors import CheckpointError
from minillm.model.linear import Rows


@torch.no_grad()
def copy_weights(weights: Iterable[tuple[str, Tensor]], targets: dict[str, Tensor | Rows]) -> None:
    """Copy each named tensor into the target of that name, casting; every target exactly once.

    Only one source tensor is held at a time. Raises CheckpointError naming the first that is missing, unknown,
    repeated or of the wrong shape.
    """
    waiting = dict(targets)
    for name, tensor in weights:
        if _is_derived(name, targets):
            continue
        if name not in waiting:
            problem = "twice" if name in targets else "which this architecture does not have"
            raise CheckpointError(f"the checkpoint holds {name} {problem}; does its config.json belong to these weights?")
        target = waiting.pop(name)
        if target.shape != tensor.shape:
            raise CheckpointError(f"{name} has shape {list(tensor.shape)} where config.json implies {list(target.shape)}")
        target.copy_(tensor)
    if waiting:
        name = next(iter(waiting))
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        raise CheckpointError(f"the checkpoint lacks {name}{more}; is the download complete?")


def _is_derived(name: str, targets: dict[str, Tensor | Rows]) -> bool:
    """Old checkpoints store rotary frequencies, and some store the output matrix although it is tied to the embedding."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and name not in targets)
