"""Attention backends, by the name `--attention` takes."""

from minillm.attention.base import Attend, AttentionBackend, AttentionMetadata
from minillm.attention.sdpa import SdpaAttention
from minillm.attention.torch_ref import TorchAttention
from minillm.attention.triton import TritonAttention
from minillm.errors import ConfigError

# TritonAttention imports Triton when one is made, so that this module needs none.
BACKENDS: dict[str, type[AttentionBackend]] = {"torch": TorchAttention, "sdpa": SdpaAttention, "triton": TritonAttention}


def make_attention(name: str) -> AttentionBackend:
    """A new backend of that name. Raises ConfigError for a name that is not in BACKENDS."""
    if name not in BACKENDS:
        raise ConfigError(f"--attention {name}: choose one of {', '.join(BACKENDS)}")
    return BACKENDS[name]()


__all__ = [
    "BACKENDS",
    "Attend",
    "AttentionBackend",
    "AttentionMetadata",
    "SdpaAttention",
    "TorchAttention",
    "TritonAttention",
    "make_attention",
]
