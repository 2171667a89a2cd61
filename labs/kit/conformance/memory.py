"""A cache's contents without a model: for each slot, *which* token's key and value would lie there."""

from __future__ import annotations

from minillm.kv.base import KVCache
from minillm.request import Request


class Memory:
    """Remembers what was written where, so that a read can be compared with what it should find.

    A token's key and value depend on all tokens up to it. So what is "written" to a slot is the sequence up to and
    including the token, and with it the cache salt: whoever finds anything else in a slot of his would attend to
    somebody else's text.
    """

    def __init__(self, kv: KVCache):
        self.kv = kv
        self._slots: dict[tuple[int, int], int] = {}  # (block, offset) -> hash of the sequence that ends there

    def write(self, request: Request, num_new_tokens: int) -> None:
        """As the forward pass does: the next num_new_tokens known tokens, from num_computed_tokens on."""
        start = request.num_computed_tokens
        for position in range(start, start + num_new_tokens):
            self._slots[self._slot(request, position)] = _content(request, position)

    def check(self, request: Request, num_tokens: int) -> None:
        """The first num_tokens tokens of the request can be read back from its slots."""
        for position in range(num_tokens):
            found = self._slots.get(self._slot(request, position))
            assert found == _content(request, position), (
                f"{request.request_id}: token {position} is counted as computed, but block {request.block_ids} position "
                f"{position} holds {'nothing' if found is None else 'another sequence’s key and value'}. Was a block shared "
                "whose beginning differs, given to two writers, or reused while somebody still read it?"
            )

    def _slot(self, request: Request, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self.kv.block_size)
        assert index < len(request.block_ids), (
            f"{request.request_id}: token {position} has no slot: {len(request.block_ids)} blocks of "
            f"{self.kv.block_size} tokens are held"
        )
        return request.block_ids[index], offset


def _content(request: Request, position: int) -> int:
    return hash((request.cache_salt, tuple(request.token_ids[: position + 1])))
