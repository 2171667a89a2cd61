"""Models from anywhere, in one form: see open_checkpoint."""

from minillm.model.checkpoints.cache import cache_home
from minillm.model.checkpoints.checkpoint import Checkpoint
from minillm.model.checkpoints.names import check_names, expected_tensors
from minillm.model.checkpoints.sources import open_checkpoint, pull

__all__ = ["Checkpoint", "cache_home", "check_names", "expected_tensors", "open_checkpoint", "pull"]
