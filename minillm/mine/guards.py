"""Which guard stands before which part, and the small ones: operators, attention, sampling, text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from minillm.attention.base import Attend, AttentionMetadata
from minillm.mine.cache_guard import KVGuard
from minillm.mine.faults import Origin, OwnPartError, call
from minillm.mine.guard import Guard
from minillm.mine.pool_guard import PoolGuard, guarded_prefix
from minillm.mine.scheduler_guard import SchedulerGuard
from minillm.request import Request, SampledToken


def guarded(origin: Origin, subject: Any) -> Callable:
    """Takes the place of subject, the caller's class or function, in minillm.parts.Parts."""
    if origin.part.split(".")[0] == "ops":
        return guarded_op(origin, subject)
    if origin.part == "kv.prefix":
        return guarded_prefix(origin, subject)
    guard = GUARDS.get(origin.part) or GUARDS.get(origin.part.split(".")[0])
    if guard is None and not inspect.isclass(subject):
        return functools.partial(call, origin, subject)
    return functools.partial(guard or Guard, origin, subject)


def guarded_op(origin: Origin, op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For the operators of a layer, all of which return a tensor like their first argument."""

    def checked(*args: Any, **kwargs: Any) -> Tensor:
        out = call(origin, op, *args, **kwargs)
        _check(origin, out, args[0], "its first argument", [x for x in args if isinstance(x, Tensor)], "arguments")
        return out

    return checked


class SamplerGuard(Guard):
    """One token a row, of this vocabulary."""

    def __call__(self, logits: Tensor, requests: list[Request]) -> list[SampledToken]:
        tokens = self._call(self._subject, logits, requests)
        rows, vocab = len(requests), logits.shape[1]
        if not isinstance(tokens, list) or [isinstance(t, SampledToken) for t in tokens] != [True] * rows:
            raise self._fault(f"must return a list of {rows} SampledToken, one a row; it returned {_shown(tokens)}")
        for request, token in zip(requests, tokens, strict=True):
            if type(token.token_id) is not int or not 0 <= token.token_id < vocab:
                raise self._fault(f"chose token {token.token_id!r}; the vocabulary is the whole numbers 0 to {vocab - 1}")
            if request.params.logprobs is not None and not token.logprobs:
                raise self._fault(f"gave no logprobs for {request.request_id}, which asks for them")
        return tokens


class AttentionGuard(Guard):
    """A result of the queries' shape and type, finite wherever what went in was."""

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        attend = self._call(self._subject.plan, meta, scale, sliding_window)
        if not callable(attend):
            raise self._fault(f"returned {_shown(attend)} from plan; something to call is expected")

        def checked(q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> Tensor:
            out = self._call(attend, q, k, v, cache)
            _check(self._origin, out, q, "the queries", (q, k, v), "queries, keys and values")
            return out

        return checked


class TextGuard(Guard):
    """Text out."""

    def push(self, piece: int | str) -> str:
        return self._text("push", self._call(self._subject.push, piece))

    def flush(self) -> str:
        return self._text("flush", self._call(self._subject.flush))

    def _text(self, method: str, text: Any) -> str:
        if not isinstance(text, str):
            raise self._fault(f"returned {text!r} from {method}; a string is expected")
        return text


class StopGuard(TextGuard):
    """What ended an answer is one of its stop strings."""

    def __init__(self, origin: Origin, factory: Callable, stop: tuple[str, ...] = (), *args: Any, **kwargs: Any):
        super().__init__(origin, factory, stop, *args, **kwargs)
        self._stop = stop

    @property
    def matched(self) -> str | None:
        matched = self._call(getattr, self._subject, "matched")
        if matched is not None and matched not in self._stop:
            raise self._fault(f"says that {matched!r} ended the answer; its stop strings are {list(self._stop)}")
        return matched


def _check(origin: Origin, out: Any, like: Tensor, as_what: str, inputs: Sequence[Tensor], named: str) -> None:
    """out must be of the shape and type of `like`, and finite wherever all inputs are."""
    if not isinstance(out, Tensor) or out.shape != like.shape or out.dtype != like.dtype:
        raise OwnPartError(origin, f"must return {_shown(like)}, as {as_what}; it returned {_shown(out)}")
    if not torch.isfinite(out).all() and all(torch.isfinite(x).all() for x in inputs):
        raise OwnPartError(origin, f"returned NaN or infinity for finite {named}")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, list):
        return f"a list of {len(value)}: {', '.join(sorted({type(item).__name__ for item in value}))}"
    return type(value).__name__


# By slot, or by part where a slot's parts do different things. One that is not here is guarded against raising only.
GUARDS: dict[str, type[Guard]] = {
    "attention": AttentionGuard,
    "kv": KVGuard,
    "kv.blocks": PoolGuard,
    "scheduler": SchedulerGuard,
    "sampling": SamplerGuard,
    "text.stream": TextGuard,
    "text.stop": StopGuard,
}
