"""What the scheduler and the runner need of a KV cache."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from minillm.request import Request


class KVCache(Protocol):
    """Gives requests slots for their tokens' keys and values: `request.block_ids` says which, `layers` holds them.

    Token p of a request lies in block `block_ids[p // block_size]`, at offset `p % block_size`.
    """

    block_size: int  # tokens a block
    num_blocks: int
    layers: list[Tensor]  # a tensor a layer: see minillm.kv.storage.allocate_layers

    def start(self, request: Request, keep_free: int = 0) -> bool:
        """Admit a request that holds nothing, if all tokens it knows will fit and `keep_free` blocks stay free beside them.

        May find the beginning of the request computed already: then sets num_computed_tokens, always leaving at least
        one known token to compute. False: no room now, and nothing changed.
        """
        ...

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        """Make room for the next num_new_tokens tokens of an admitted request. False: no room now, and nothing changed."""
        ...

    def commit(self, request: Request, num_new_tokens: int) -> None:
        """These next tokens will be computed in this step: full blocks may from now on be found by others."""
        ...

    def forget(self) -> None:
        """Let nothing be found any more: a step has died, and what its plan promised may never have been computed."""
        ...

    def free(self, request: Request) -> None:
        """Take everything back from a request; one that holds nothing is left alone."""
        ...

    def fits_alone(self, num_tokens: int) -> bool:
        """Whether a request of so many tokens could ever run here, with nobody beside it."""
        ...

    @property
    def usage(self) -> float:
        """Share of the cache that is held by requests, 0 to 1."""
        ...

    @property
    def num_free(self) -> int:
        """Blocks that no request holds."""
        ...

    def check_integrity(self) -> None:
        """Raise AssertionError where the books do not balance. For tests."""
        ...
