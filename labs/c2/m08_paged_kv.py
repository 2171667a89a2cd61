"""2.8 Paged KV cache: small blocks instead of reserved rows, and equal beginnings held once.

Write the two below, then run `labs check 2.8` (or `pytest labs/c2/test_m08_paged_kv.py`). Stuck? `labs hint 2.8`. They do not
depend on each other: what you have not written, minillm's own code stands in for.
When they pass, the engine's paged cache can run them: `minillm generate --mine kv.blocks,kv.prefix --prompt "Hi"`.

A block is a number. The cache has memory for num_blocks blocks of block_size tokens (the engine takes 16 unless told otherwise),
and token p of a request lies in block `request.block_ids[p // block_size]`. You keep the books and never touch the memory.

A *full* block gets a name, so that another request with the same beginning can find it: a hash (bytes) of its tokens and of the
name of the block before it. Two functions make names:

    root_hash(salt: str | None) -> bytes                          where the chain of names begins; a request's own salt
    block_hash(parent: bytes, token_ids: list[int]) -> bytes      the name of a full block that follows the block named `parent`

Of a request (minillm.request.Request) `match_prefix` needs

    request.token_ids      list of int: all tokens known so far, the prompt and what has been generated
    request.num_tokens     their number
    request.cache_salt     str or None
    request.block_hashes   list of bytes: the names of its first full blocks, as far as anybody has needed them
"""

from __future__ import annotations

from collections.abc import Iterable

from labs.kit import exercise
from minillm.kv.prefix_hash import BlockHash, block_hash, root_hash  # noqa: F401  yours to use
from minillm.request import Request


@exercise(reference="minillm.kv.blocks:BlockPool", part="kv.blocks")
class BlockPool:
    """Who holds which block, which blocks are free, and which can be found by their contents.

    A block may be held by several requests at once, each of which counts as one *reference*; it is free when nobody holds it.
    Being free and having a name are two different things: a released block keeps its contents and its name until it is handed
    out again, and until then whoever asks for the same beginning finds it. The free blocks are the cache of prefixes.
    """

    def __init__(self, num_blocks: int):
        """Blocks 0 to num_blocks - 1, all free and without a name.

        Sets self.num_blocks, and self.renamed to None. Others may set `renamed` to a set, or back to None, at any time: while it
        is a set, add to it each block that gets a name or loses its name (the live page watches this way). No other attribute
        is read by anybody.
        """
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, with a name or without."""
        raise NotImplementedError

    def allocate(self, count: int) -> list[int]:
        """Hand out `count` different free blocks to be written to: each has one reference and no name from now on.

        The caller has made sure that num_free is at least count; count may be 0. Which blocks: first free ones without a name,
        in any order, for they hold nothing that could be found. Then, of those with a name, the ones that have been free for
        longest, in the order in which `release` gave them back.
        """
        raise NotImplementedError

    def find(self, names: Iterable[BlockHash]) -> list[int]:
        """The blocks that bear these names, in order, up to the first name that no block bears; a new list, maybe empty.

        Free blocks are found as well as held ones. Nothing changes: nobody holds what was only found.
        """
        raise NotImplementedError

    def hold(self, blocks: Iterable[int]) -> None:
        """One more reference to each of these. A free block is no longer free; a held one is shared. Names stay."""
        raise NotImplementedError

    def num_unheld(self, blocks: Iterable[int]) -> int:
        """How many of these blocks (all different) are free: so many fewer will be free after hold(blocks)."""
        raise NotImplementedError

    def release(self, blocks: list[int]) -> None:
        """A request gives its blocks back, listed in the order of its text: one reference less to each.

        What nobody holds any more is free, and keeps its name. It is given back *from the end*: the block that is last in the
        list becomes free before all others of it, so that it is also the first of them to be overwritten. (A text's beginning
        is useful without its end; an end cannot be found without its beginning.) `blocks` itself is not changed.

        Raises ValueError for a block that nobody holds: its request was freed twice, and if that passed in silence the block
        would be handed to two others. What has become of the rest of the list then does not matter.
        """
        raise NotImplementedError

    def name(self, block: int, name: BlockHash) -> None:
        """A held block is full: from now on it can be found by this name.

        Nothing changes if another block bears this name already (two requests computed the same text side by side; both blocks
        stay valid, the first one stays the one to be found), or if this block has a name.
        """
        raise NotImplementedError

    def is_named(self, block: int) -> bool:
        """Whether the block can be found by a name."""
        raise NotImplementedError

    def forget_all(self) -> None:
        """Take every block's name away: nothing can be found any more. Who holds what stays as it is."""
        raise NotImplementedError

    def check_integrity(self, held: Iterable[list[int]]) -> None:
        """Raise AssertionError with a message if the books do not balance, else do nothing. The engine's tests call it.

        held: the block lists of all requests. They balance when no list holds a block twice, each block has as many references
        as there are lists with it, and exactly the blocks in no list are free.
        """
        raise NotImplementedError


@exercise(reference="minillm.kv.prefix:match_prefix", part="kv.prefix")
def match_prefix(request: Request, block_size: int, pool: BlockPool) -> list[int]:
    """The blocks in which the request's beginning has been computed already, in the order of its text; a list, maybe empty.

    Asked before a request is admitted, the first time or after it gave way. Only full blocks have names. The engine will not
    compute the tokens in the blocks that are returned, so one token at least must be left over: the last known one. It is
    computed again even if it is cached, because its logits choose the next token, and the cache keeps keys and values only.
    A block is taken whole or not at all: of 32 known tokens in blocks of 16, all of them cached, one block is returned.

    pool: `pool.find(names)` gives the blocks with these names, up to the first that is not there. Call nothing else of it;
    found blocks are held by the caller.
    request.block_hashes: a name costs a hash, a waiting request is looked up again in each step, and others name its blocks
    later. So use the names that are there, as they are, and append those that you compute, in order, none of them twice.
    There may be more there than you need. You may compute all names that you can use, or stop early, as you like. Change
    nothing else.
    """
    raise NotImplementedError
