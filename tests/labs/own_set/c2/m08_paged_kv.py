"""Answers to labs/c2/m08_paged_kv.py, from its docstrings alone: see tests/labs/test_own_set.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labs.kit import exercise
from minillm.kv.prefix_hash import BlockHash, block_hash, root_hash
from minillm.request import Request


@exercise(reference="minillm.kv.blocks:BlockPool", part="kv.blocks")
class BlockPool:
    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self.renamed: set[int] | None = None
        self._references = [0] * num_blocks
        self._name_of: dict[int, BlockHash] = {}
        self._block_of: dict[BlockHash, int] = {}
        # dicts for their order: the first key has been free for longest
        self._free_unnamed: dict[int, None] = dict.fromkeys(range(num_blocks))
        self._free_named: dict[int, None] = {}

    @property
    def num_free(self) -> int:
        return len(self._free_unnamed) + len(self._free_named)

    def allocate(self, count: int) -> list[int]:
        blocks = []
        for _ in range(count):
            free = self._free_unnamed or self._free_named
            block = next(iter(free))
            del free[block]
            self._unname(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def find(self, names: Iterable[BlockHash]) -> list[int]:
        found = []
        for name in names:
            if name not in self._block_of:
                break
            found.append(self._block_of[name])
        return found

    def hold(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._free_unnamed.pop(block, None)
            self._free_named.pop(block, None)
            self._references[block] += 1

    def num_unheld(self, blocks: Iterable[int]) -> int:
        return sum(self._references[block] == 0 for block in blocks)

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise ValueError(f"block {block} is released, and nobody holds it: was its request freed twice?")
            self._references[block] -= 1
            if self._references[block] == 0:
                free = self._free_named if self.is_named(block) else self._free_unnamed
                free[block] = None

    def name(self, block: int, name: BlockHash) -> None:
        if name in self._block_of or self.is_named(block):
            return
        self._block_of[name], self._name_of[block] = block, name
        self._note_renamed(block)

    def is_named(self, block: int) -> bool:
        return block in self._name_of

    def forget_all(self) -> None:
        for block in list(self._name_of):
            self._unname(block)
        self._free_unnamed |= self._free_named
        self._free_named = {}

    def check_integrity(self, held: Iterable[list[int]]) -> None:
        lists = Counter()
        for blocks in held:
            if len(set(blocks)) != len(blocks):
                raise AssertionError(f"a request holds a block twice: {blocks}")
            lists.update(blocks)
        for block, references in enumerate(self._references):
            if references != lists[block]:
                raise AssertionError(f"block {block} has {references} references, and {lists[block]} requests hold it")
        free = sorted([*self._free_unnamed, *self._free_named])
        expected = [block for block in range(self.num_blocks) if not lists[block]]
        if free != expected:
            raise AssertionError(f"free are the blocks {free}; nobody holds {expected}")

    def _unname(self, block: int) -> None:
        name = self._name_of.pop(block, None)
        if name is not None:
            del self._block_of[name]
            self._note_renamed(block)

    def _note_renamed(self, block: int) -> None:
        if self.renamed is not None:
            self.renamed.add(block)


@exercise(reference="minillm.kv.prefix:match_prefix", part="kv.prefix")
def match_prefix(request: Request, block_size: int, pool: BlockPool) -> list[int]:
    usable = max(request.num_tokens - 1, 0) // block_size
    names = request.block_hashes
    while len(names) < usable:
        start = len(names) * block_size
        parent = names[-1] if names else root_hash(request.cache_salt)
        names.append(block_hash(parent, request.token_ids[start : start + block_size]))
    return pool.find(names[:usable])
