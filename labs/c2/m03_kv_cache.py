"""2.3 KV cache: keep each token's keys and values, so that the next token costs one forward step and not a whole prompt.

Write the class below, then run `labs check 2.3` (or `pytest labs/c2/test_m03_kv_cache.py`). Stuck? `labs hint 2.3`.
When it passes, the engine can run it:

    minillm generate --kv contiguous --mine --prompt "What is the capital of France?"

A tensor a layer is made for you:

    allocate_layers(config, num_blocks, block_size, dtype, device) -> list of config.num_layers tensors,
        each [num_blocks + 1, 2, num_kv_heads, head_dim, block_size]

A block here is a *row*: room for the keys and values of block_size tokens. One row more than asked for comes with it, number
num_blocks: rows that only pad a batch write there, so it belongs to no request.

Of a request (minillm.request.Request) you need

    request.request_id           str, different for each request that is being served
    request.num_tokens           tokens known so far: the prompt, and what has been generated
    request.num_computed_tokens  how many of these have their keys and values in the cache; the engine counts, you do not
    request.block_ids            list of int: which rows are the request's. You write it, everybody else reads it

Token p of a request has its key and value in row `block_ids[p // block_size]` at offset `p % block_size`. The model writes
and reads them there; you only say which row.
"""

from __future__ import annotations

import torch

from labs.kit import exercise
from minillm.config import ModelConfig
from minillm.kv.storage import allocate_layers  # noqa: F401  yours to use
from minillm.request import Request


@exercise(reference="minillm.kv.contiguous:ContiguousKV", part="kv.contiguous")
class ContiguousKV:
    """The simplest cache that works: a request gets one whole row when it starts, and keeps it until it is done.

    A row is reserved from end to end, however short the answer will be. The engine calls, in this order:

        start(request)                      when a waiting request may begin; False: it waits, and the engine asks again later
        allocate(request, num_new_tokens)   each step, before the forward pass
        commit(request, num_new_tokens)     each step, right after
        free(request)                       when it is done, was aborted, or must give way to others and start again later

    Rows come and go thousands of times in any order. A row that is never given back is lost until the server restarts; a row
    that two requests hold mixes their texts.
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ):
        """Make the memory for num_blocks rows of block_size tokens each, on this device, all of them free. Both are at least 1.

        Sets self.num_blocks, self.block_size, and self.layers: what allocate_layers returns. No other attribute is read by
        anybody; keep what else you need under names of your own.
        """
        raise NotImplementedError

    def start(self, request: Request, keep_free: int = 0) -> bool:
        """Give a request that holds nothing a row, and return True: request.block_ids is then a list of that one row.

        A row is from 0 to num_blocks - 1 and nobody else's. Which free one is your choice. Return False, with nothing
        changed, neither here nor in the request, if

        - fewer than keep_free rows would stay free afterwards (keep_free is what the engine wants left for others), or
        - no row is free, or
        - the request knows more tokens than a row holds (num_tokens, not only the prompt: one that had to give way comes
          back with the tokens it has generated). Exactly block_size tokens do fit.

        num_computed_tokens stays as it is: nothing is known in advance here.
        """
        raise NotImplementedError

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        """Whether the next num_new_tokens tokens, those from num_computed_tokens on, still fit in the request's row.

        The row was reserved whole, so nothing is handed out and nothing changes. num_new_tokens is 1 for a decode and more
        for a prompt, or a part of one. A row may be filled to its last slot.
        """
        raise NotImplementedError

    def commit(self, request: Request, num_new_tokens: int) -> None:
        """These tokens are being computed now. A cache that shares prefixes would note it; rows are never shared: do nothing."""
        raise NotImplementedError

    def forget(self) -> None:
        """A step has failed. A cache that shares prefixes would drop what it promised to others; here: do nothing."""
        raise NotImplementedError

    def free(self, request: Request) -> None:
        """Take the request's row back and set request.block_ids to []; another request may get the row at once.

        A request that holds nothing (it was freed before, or never started) is left alone: no error, nothing changes.
        num_computed_tokens stays as it is: the engine sets it back where that is wanted.
        What the row contains need not be erased: its next owner writes before it reads.
        """
        raise NotImplementedError

    def fits_alone(self, num_tokens: int) -> bool:
        """Whether a request of num_tokens tokens, prompt and answer together, could ever run here with nobody beside it.

        How full the cache is now does not matter: the engine refuses for good what does not fit alone.
        """
        raise NotImplementedError

    @property
    def usage(self) -> float:
        """Share of the cache that is taken, 0.0 to 1.0. A row counts whole from the moment it is reserved."""
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        """Rows that no request holds, 0 to num_blocks."""
        raise NotImplementedError

    def check_integrity(self) -> None:
        """Raise AssertionError with a message if the books do not balance, else do nothing. The engine's tests call it.

        They balance when every row from 0 to num_blocks - 1 is either free or held by one request: none missing, none twice.
        """
        raise NotImplementedError
