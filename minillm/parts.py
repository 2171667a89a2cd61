"""The replaceable pieces of the engine, each with a name `slot.implementation` and the code that stands for it.

Which implementations of a slot exist is said here and nowhere else. An engine resolves the parts it needs once, when it is
built, so that the hot path never looks anything up; `mine` puts an object of the caller's in a part's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from minillm.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """One replaceable piece. reference: "module:attribute" of the code that stands for it."""

    name: str
    summary: str
    reference: str

    @property
    def slot(self) -> str:
        return self.name.split(".")[0]

    @property
    def protocol(self) -> str:
        """ "module:attribute" of what any implementation of this slot must do."""
        return PROTOCOLS.get(self.slot, self.reference)

    def load(self) -> Any:
        module, attribute = self.reference.split(":")
        return getattr(import_module(module), attribute)


# Slots with one way of doing things have no protocol apart from it: the reference's methods and docstrings are the contract.
PROTOCOLS = {
    "attention": "minillm.attention.base:AttentionBackend",
    "kv": "minillm.kv.base:KVCache",
    "scheduler": "minillm.scheduler:Scheduler",
    "sampling": "minillm.sampling.pipeline:Sampler",
}


_ALL = (
    Part("attention.torch", "one sequence at a time, from the definition", "minillm.attention.torch_ref:TorchAttention"),
    Part("attention.sdpa", "torch's fused attention", "minillm.attention.sdpa:SdpaAttention"),
    Part("kv.contiguous", "one reserved row a request", "minillm.kv.contiguous:ContiguousKV"),
    Part("kv.paged", "small blocks, shared prefixes", "minillm.kv.paged:PagedKV"),
    Part("scheduler.token_budget", "one token budget for all", "minillm.scheduler:Scheduler"),
    Part("scheduler.static", "a batch runs until its last request is done", "minillm.schedulers:StaticScheduler"),
    Part("scheduler.prefill_first", "whole prompts before any decode", "minillm.schedulers:PrefillFirstScheduler"),
    Part("sampling.pipeline", "logits to tokens", "minillm.sampling.pipeline:Sampler"),
    Part("text.stream", "tokens to text that never shows half a character", "minillm.text.stream:StreamDecoder"),
    Part("text.stop", "stop strings across token borders", "minillm.text.stop:StopChecker"),
)
PARTS: dict[str, Part] = {part.name: part for part in _ALL}


def implementations(slot: str) -> list[str]:
    """What a flag for this slot may be set to."""
    return [part.name.split(".")[1] for part in PARTS.values() if part.slot == slot]


class Parts:
    """One engine's choice of parts. mine: {part name: object to use instead of the reference}."""

    def __init__(self, mine: Mapping[str, Any] | None = None):
        self._mine = dict(mine or {})
        unknown = sorted(set(self._mine) - set(PARTS))
        if unknown:
            raise ConfigError(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")

    def get(self, slot: str, implementation: str) -> Any:
        """The class or function that stands for `slot.implementation`. Raises ConfigError for one that does not exist."""
        name = f"{slot}.{implementation}"
        if name not in PARTS:
            raise ConfigError(f"--{slot} {implementation}: choose one of {', '.join(implementations(slot))}")
        return self._mine.get(name) or PARTS[name].load()
