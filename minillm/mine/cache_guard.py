"""A guard for an own KV cache: a block is given once and stays where it is, and there is room for what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

from minillm.config import ModelConfig
from minillm.kv.blocks import BlockPool
from minillm.mine.faults import Origin
from minillm.mine.guard import Guard
from minillm.request import Request

Before = tuple[list[int], int]  # a request's blocks and computed tokens before a call


class KVGuard(Guard):
    """See minillm.kv.base.KVCache for what is promised."""

    def __init__(self, origin: Origin, factory: Callable, config: ModelConfig, num_blocks: int, block_size: int, *args, **kwargs):
        super().__init__(origin, factory, config, num_blocks, block_size, *args, **kwargs)
        self._held: dict[str, list[int]] = {}  # admitted request -> the blocks it was last seen with
        self._holders: Counter[int] = Counter()  # block -> requests that hold it
        for name, given in (("num_blocks", num_blocks), ("block_size", block_size)):
            got = getattr(self._subject, name, None)
            if got != given:
                raise self._fault(f"was built with {name} {given} and has {got!r}")
        layers = getattr(self._subject, "layers", None)
        if not isinstance(layers, list) or [isinstance(layer, Tensor) for layer in layers] != [True] * config.num_layers:
            raise self._fault(f"must have a list of {config.num_layers} tensors, one a layer, as `layers`")

    def start(self, request: Request, keep_free: int = 0) -> bool:
        before = list(request.block_ids), request.num_computed_tokens
        if self._said_yes("start", self._call(self._subject.start, request, keep_free), request, before):
            computed, known = request.num_computed_tokens, request.num_tokens
            if not (isinstance(computed, int) and 0 <= computed < known):
                raise self._fault(
                    f"set num_computed_tokens to {computed!r} in start; one of {known} tokens must be left to compute"
                )
            self._held[request.request_id] = []
            self._take_in("start", request)
            return True
        if not keep_free and not self._held and self.fits_alone(request.num_tokens):
            raise self._fault(f"refused to start a request of {request.num_tokens} tokens in an empty cache that it fits")
        return False

    def allocate(self, request: Request, num_new_tokens: int) -> bool:
        before = list(request.block_ids), request.num_computed_tokens
        needed = request.num_computed_tokens + num_new_tokens
        if self._said_yes("allocate", self._call(self._subject.allocate, request, num_new_tokens), request, before):
            self._take_in("allocate", request)
            room = len(request.block_ids) * self._subject.block_size
            if room < needed:
                raise self._fault(f"promised room for {needed} tokens in allocate; the request's blocks hold {room}")
            return True
        if list(self._held) == [request.request_id] and self.fits_alone(needed):
            raise self._fault(f"refused room for {needed} tokens in allocate, in a cache that they fit and nobody else uses")
        return False

    def free(self, request: Request) -> None:
        self._call(self._subject.free, request)
        self._holders.subtract(self._held.pop(request.request_id, ()))

    @property
    def usage(self) -> float:
        usage = self._call(getattr, self._subject, "usage")
        if not isinstance(usage, int | float) or not 0 <= usage <= 1:
            raise self._fault(f"says that {usage!r} of it is used; a share from 0 to 1 is expected")
        return usage

    @property
    def num_free(self) -> int:
        count = self._call(getattr, self._subject, "num_free")
        if type(count) is not int or not 0 <= count <= self._subject.num_blocks:
            raise self._fault(f"says that {count!r} of its {self._subject.num_blocks} blocks are free")
        return count

    @property
    def pool(self) -> BlockPool | None:
        """What events look into where there is one. A learner is free to call anything of his `pool`."""
        pool = getattr(self._subject, "pool", None)
        return pool if isinstance(pool, BlockPool) else None

    def _said_yes(self, method: str, answer: Any, request: Request, before: Before) -> bool:
        if not isinstance(answer, bool):
            raise self._fault(f"returned {answer!r} from {method}; True or False is expected")
        if not answer and before != (request.block_ids, request.num_computed_tokens):
            raise self._fault(f"changed a request that {method} refused: False means that nothing has changed")
        return answer

    def _take_in(self, method: str, request: Request) -> None:
        """Look at the blocks that are new, and remember them."""
        ids, known = request.block_ids, self._held.get(request.request_id, [])
        if not isinstance(ids, list):
            raise self._fault(f"set block_ids to {ids!r} in {method}; a list of whole numbers is expected")
        if ids[: len(known)] != known:
            raise self._fault(f"turned blocks {known} into {ids} in {method}: what lies in the first ones is lost")
        new = ids[len(known) :]
        for block in new:
            if type(block) is not int or not 0 <= block < self._subject.num_blocks:
                raise self._fault(f"gave block {block!r} in {method}; there are 0 to {self._subject.num_blocks - 1}")
        # full blocks before num_computed_tokens are only read: they may have been found, and be others' too
        first_written = max(request.num_computed_tokens // self._subject.block_size, len(known))
        for block in ids[first_written:]:
            if self._holders[block] or ids.count(block) > 1:
                raise self._fault(f"gave block {block} to {request.request_id} in {method}, to write to, and it is held already")
        self._holders.update(new)
        self._held[request.request_id] = list(ids)
