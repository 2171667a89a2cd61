"""Guards for what a learner writes inside the paged cache: its pool of blocks, and the search for a known beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minillm.kv.blocks import BlockPool
from minillm.kv.prefix_hash import BlockHash
from minillm.mine.faults import Origin, OwnPartError, call
from minillm.mine.guard import Guard
from minillm.request import Request


class PoolGuard(Guard):
    """No block is given to be written to while somebody holds it. See minillm.kv.blocks.BlockPool for what is promised."""

    def __init__(self, origin: Origin, factory: Callable, num_blocks: int):
        super().__init__(origin, factory, num_blocks)
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        free, expected = self._call(getattr, self._subject, "num_free"), self._references.count(0)
        if free != expected:
            raise self._fault(f"says that {free!r} blocks are free; requests hold all but {expected}")
        return free

    @property
    def renamed(self) -> set[int] | None:
        return self._call(getattr, self._subject, "renamed")

    @renamed.setter
    def renamed(self, blocks: set[int] | None) -> None:
        self._call(setattr, self._subject, "renamed", blocks)

    def allocate(self, count: int) -> list[int]:
        blocks = self._call(self._subject.allocate, count)
        if not _is_list_of_blocks(blocks, len(self._references)) or len(blocks) != count or len(set(blocks)) != count:
            raise self._fault(f"returned {blocks!r} from allocate({count}); a list of {count} different blocks is expected")
        for block in blocks:
            if self._references[block]:
                raise self._fault(f"gave block {block} in allocate, to write to, and it is held already")
            self._references[block] = 1
        return blocks

    def find(self, names: Iterable[BlockHash]) -> list[int]:
        names = list(names)
        blocks = self._call(self._subject.find, names)
        if not _is_list_of_blocks(blocks, len(self._references)) or len(blocks) > len(names):
            raise self._fault(f"returned {blocks!r} from find for {len(names)} names; a list of at most so many blocks is due")
        return blocks

    def hold(self, blocks: list[int]) -> None:
        self._call(self._subject.hold, blocks)
        for block in blocks:
            self._references[block] += 1

    def num_unheld(self, blocks: list[int]) -> int:
        count, expected = self._call(self._subject.num_unheld, blocks), sum(self._references[block] == 0 for block in blocks)
        if count != expected:
            raise self._fault(f"says that nobody holds {count!r} of the blocks {blocks}; it is {expected} of them")
        return count

    def release(self, blocks: list[int]) -> None:
        self._call(self._subject.release, blocks)
        for block in blocks:
            self._references[block] -= 1


def guarded_prefix(origin: Origin, subject: Callable) -> Callable:
    """For match_prefix: blocks of this pool, and one known token at least that they do not hold."""

    def checked(request: Request, block_size: int, pool: BlockPool) -> list[int]:
        blocks, most = call(origin, subject, request, block_size, pool), (request.num_tokens - 1) // block_size
        if not _is_list_of_blocks(blocks, pool.num_blocks) or len(blocks) > most:
            raise OwnPartError(
                origin,
                f"returned {blocks!r} for a request of {request.num_tokens} tokens; a list of at most {most} blocks of "
                f"{block_size} is expected: its last token is left to compute",
            )
        return blocks

    return checked


def _is_list_of_blocks(value: Any, num_blocks: int) -> bool:
    return isinstance(value, list) and all(type(block) is int and 0 <= block < num_blocks for block in value)
