"""What every source of a model is turned into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from minillm.config import ModelConfig

NamedTensors = Iterator[tuple[str, Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to load.

    name: what a server lists it as. folder: holds config.json, tokenizer.json and tokenizer_config.json.
    config: its shape, with the end-of-sequence ids of config.json and generation_config.json together.
    """

    name: str
    folder: Path
    config: ModelConfig
    read: Callable[[], NamedTensors] = field(repr=False, compare=False)

    def weights(self) -> NamedTensors:
        """Every tensor of `names.expected_tensors(config)` once, under its Hugging Face name and in its stored dtype.

        One at a time, so that memory holds the model being filled and not a second copy of it. Names, shapes and
        dtypes are checked before the first is yielded; raises CheckpointError.
        """
        return self.read()
