"""The pool of cache blocks: who holds which, which are free, and which free ones still hold something worth finding.

A freed block keeps its contents and its name until somebody needs the space. So the free list is also the cache of
prefixes, and reuse costs no memory: the least recently freed block is the first to be overwritten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from minillm.kv.prefix_hash import BlockHash


class BlockPool:
    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))  # next to be handed out first
        self._references = [0] * num_blocks  # requests that hold the block
        self._hash_of: list[BlockHash | None] = [None] * num_blocks
        self._named: dict[BlockHash, int] = {}
        self.renamed: set[int] | None = None  # blocks whose name came or went, for who watches (minillm.events); None: nobody

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """`count` blocks to write to. The caller has seen that num_free suffices. What they held is forgotten."""
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._forget(block)
            self._references[block] = 1
        return blocks

    def find(self, names: Iterable[BlockHash]) -> list[int]:
        """The blocks with these names, up to the first that is not here. Holds nothing yet: see `hold`."""
        found = []
        for name in names:
            block = self._named.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: Iterable[int]) -> None:
        """One more reference to each: free blocks leave the free list, held ones are shared."""
        for block in blocks:
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1

    def num_unheld(self, blocks: Iterable[int]) -> int:
        """How many of these stand in the free list, so that holding them takes from it."""
        return sum(self._references[block] == 0 for block in blocks)

    def release(self, blocks: list[int]) -> None:
        """One reference less to each block of a request, given in the request's order.

        The last block goes first to the free list: a prefix is useful without its end, an end is useless without its
        prefix. Blocks without a name hold nothing that could be found, so they are the next to be handed out.
        Raises ValueError for a block that nobody holds: a second release would give it to two requests.
        """
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise ValueError(f"block {block} is released and nobody holds it: some request was freed twice")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._hash_of[block] is None:
                    self._free.move_to_end(block, last=False)

    def name(self, block: int, name: BlockHash) -> None:
        """Make a full block findable. If another block already has the name (two requests computed one prefix side by side),
        that one keeps it: both stay valid, and the table of neither changes."""
        if name not in self._named and self._hash_of[block] is None:
            self._named[name] = block
            self._hash_of[block] = name
            self._note_renamed(block)

    def is_named(self, block: int) -> bool:
        """Whether the block can be found by its contents."""
        return self._hash_of[block] is not None

    def forget_all(self) -> None:
        """Drop every name; held blocks stay held."""
        for block in list(self._named.values()):
            self._forget(block)

    def _forget(self, block: int) -> None:
        name = self._hash_of[block]
        if name is not None:
            del self._named[name]
            self._hash_of[block] = None
            self._note_renamed(block)

    def _note_renamed(self, block: int) -> None:
        renamed = self.renamed  # read once: a watcher may leave at any moment, on another thread
        if renamed is not None:
            renamed.add(block)

    def check_integrity(self, held: Iterable[list[int]]) -> None:
        """Raise AssertionError unless the references are exactly those of `held`, the block lists of all requests."""
        counted = [0] * self.num_blocks
        for blocks in held:
            assert len(set(blocks)) == len(blocks), f"a request holds a block twice: {blocks}"
            for block in blocks:
                counted[block] += 1
        assert counted == self._references, "reference counts differ from what requests hold"
        assert set(self._free) == {b for b in range(self.num_blocks) if counted[b] == 0}, "free list and references disagree"
        assert all(self._hash_of[b] == n for n, b in self._named.items()), "a name leads to a block that does not bear it"
        assert sum(h is not None for h in self._hash_of) == len(self._named), "a named block cannot be found"
