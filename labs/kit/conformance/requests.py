"""Requests for checks that need no model, and the shape of one small enough to ignore."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from minillm.config import ModelConfig
from minillm.request import Request, SamplingParams

NO_MODEL = ModelConfig("llama", 100, 8, 8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, max_position_embeddings=64)
EOS = 2
_serial = itertools.count()


def make_request(
    prompt: Sequence[int],
    max_tokens: int = 4,
    priority: int = 0,
    cache_salt: str | None = None,
    name: str | None = None,
    **params,
) -> Request:
    """A request that arrives now: later than all made before it."""
    serial = next(_serial)
    return Request(
        name or f"request-{serial}", list(prompt), len(prompt), SamplingParams(max_tokens=None, **params), max_tokens,
        seed=serial, eos_token_ids=frozenset({EOS}), serial=serial, priority=priority, cache_salt=cache_salt,
    )  # fmt: skip


def computed(kv, request: Request, num_new_tokens: int) -> None:
    """One step for one request, as scheduler and runner do it: room, names, forward, books."""
    assert kv.allocate(request, num_new_tokens), f"no room for {num_new_tokens} tokens, {kv.num_free} blocks are free"
    kv.commit(request, num_new_tokens)
    request.num_computed_tokens += num_new_tokens


def run_prompt(kv, request: Request) -> Request:
    """Admit a request and compute all its known tokens."""
    assert kv.start(request), f"no room for {request.num_tokens} tokens, {kv.num_free} blocks are free"
    computed(kv, request, request.num_tokens - request.num_computed_tokens)
    return request


def give_back(kv, request: Request) -> None:
    """What a scheduler does when it preempts."""
    kv.free(request)
    request.num_computed_tokens = 0
