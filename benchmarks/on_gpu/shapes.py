"""What is computed: the shapes of two models as a card meets them, and very small ones to rehearse with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A decoder layer's sizes, and the work it is given."""

    name: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tokens: int = 2048  # of a prompt
    many_tokens: int = 8192  # of a batch that leaves no cache large enough: bandwidth "at size"
    context: int = 4096  # of a decoding sequence
    batch: int = 32  # sequences that decode
    experts: int = 8  # of a grouped product
    group_size: int = 128  # of int4
    block_size: int = 16  # tokens a cache block

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


LLAMA_8B = Shape("llama-3.1-8b", 4096, 14336, 32, 8, 128, 128256)
SMOLLM2 = Shape("smollm2-135m", 576, 1536, 9, 3, 64, 49152, group_size=32)
# the interpreter takes a moment a program: few of them, and nothing that looks like a model
TINY = Shape("tiny", 64, 96, 4, 2, 16, 200, tokens=9, many_tokens=10, context=40, batch=2, experts=2, group_size=32, block_size=8)
