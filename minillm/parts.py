"""The replaceable pieces of the engine, each with a name `slot.implementation` and the code that stands for it.

Which implementations of a slot exist is said here and nowhere else. An engine resolves the parts it needs once, when it is
built, so that the hot path never looks anything up; `mine` puts an object of the caller's in a part's place (which, and
with what care: minillm.mine).

To add a part: a line in _ALL; for a new slot with a choice, a field of that name in EngineConfig, which is its flag, and
whoever builds the engine asks `Parts.get(slot, config.<slot>)`. A protocol, a conformance suite (labs/kit/conformance) and a
guard (minillm.mine.guards) come with a slot that has more than one implementation. A kernel is a field of the dataclass that its
caller is built with (minillm.loading.named_kernels), and says which flags make that caller run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from minillm.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """One replaceable piece.

    reference: "module:attribute" of the code that stands for it. inside: the part that calls it, where only one does: it runs if
    that one is selected, and is no choice of its own. chosen_by: each "flag.value" that it takes to make it run, where that is
    not its own name. gives_way_to: with one of the caller's own in the place of one of these, that is called and not this one."""

    name: str
    summary: str
    reference: str
    inside: str | None = None
    chosen_by: tuple[str, ...] = ()
    gives_way_to: tuple[str, ...] = ()

    @property
    def slot(self) -> str:
        return self.name.split(".")[0]

    @property
    def protocol(self) -> str:
        """ "module:attribute" of what any implementation of this slot must do."""
        return self.reference if self.inside else PROTOCOLS.get(self.slot, self.reference)

    @property
    def selectors(self) -> tuple[str, ...]:
        """Each "flag.value" that decides whether this part runs; all of them must be so."""
        return self.chosen_by or (self.inside or self.name,)

    @property
    def flag(self) -> str:
        """What selects this part on a command line: "--kv contiguous". Empty where nothing else could be selected."""
        pairs = (selector.split(".", 1) for selector in self.selectors)
        return " ".join(f"--{slot} {value}" for slot, value in pairs if slot in CHOSEN_BY_FLAG)

    def load(self) -> Any:
        module, attribute = self.reference.split(":")
        return getattr(import_module(module), attribute)


CHOSEN_BY_FLAG = ("attention", "kernels", "kv", "linear", "quantization", "scheduler")  # what has a flag of that name
# Slots with one way of doing things have no protocol apart from it: the reference's methods and docstrings are the contract.
PROTOCOLS = {
    "attention": "minillm.attention.base:AttentionBackend",
    "kv": "minillm.kv.base:KVCache",
    "scheduler": "minillm.scheduler:Scheduler",
    "sampling": "minillm.sampling.pipeline:Sampler",
}


TRITON = ("kernels.triton",)  # the flag that runs our kernels
FUSED = ("ops.rms_norm", "ops.rope", "ops.swiglu")  # operators of the plain decoder, which runs if one of them is the caller's
BACKEND, SAMPLER = ("attention.triton",), ("sampling.pipeline",)


def _kernel(name: str, summary: str, reference: str, chosen_by: tuple[str, ...], gives_way_to: tuple[str, ...] = ()) -> Part:
    return Part(f"kernels.{name}", summary, f"minillm.kernels.{reference}", None, chosen_by, gives_way_to)


_ALL = (
    Part("attention.torch", "one sequence at a time, from the definition", "minillm.attention.torch_ref:TorchAttention"),
    Part("attention.sdpa", "torch's fused attention", "minillm.attention.sdpa:SdpaAttention"),
    Part("attention.triton", "our kernels for a GPU, over blocks where they lie", "minillm.attention.triton:TritonAttention"),
    Part("kv.contiguous", "one reserved row a request", "minillm.kv.contiguous:ContiguousKV"),
    Part("kv.paged", "small blocks, shared prefixes", "minillm.kv.paged:PagedKV"),
    Part("kv.blocks", "who holds which block", "minillm.kv.blocks:BlockPool", inside="kv.paged"),
    Part("kv.prefix", "blocks that hold a prompt's beginning", "minillm.kv.prefix:match_prefix", inside="kv.paged"),
    Part("ops.rms_norm", "normalisation", "minillm.model.ops:rms_norm"),
    Part("ops.rope", "rotary positions", "minillm.model.ops:rope"),
    Part("ops.swiglu", "the gate of the feed-forward layer", "minillm.model.ops:swiglu"),
    Part("ops.gqa_attention", "attention of one sequence", "minillm.model.ops:gqa_attention", inside="attention.torch"),
    _kernel("rms_norm", "normalisation in one launch", "rms_norm:rms_norm", TRITON, FUSED),
    _kernel("add_rms_norm", "addition and normalisation in one", "rms_norm:add_rms_norm", TRITON, FUSED),
    _kernel("rope", "rotary positions of q and k in one launch", "rope:rope", TRITON, FUSED),
    _kernel("silu_mul", "the feed-forward gate in one launch", "silu_mul:silu_mul", TRITON, FUSED),
    _kernel("gemm", "matrix products of many rows", "gemm:gemm", ("linear.triton",)),
    _kernel("gemv", "matrix products of up to 16 rows", "gemv:gemv", ("linear.triton",)),
    _kernel("w4a16", "matrix products of 4-bit weights", "w4a16:w4a16", ("quantization.int4", *TRITON)),
    _kernel("flash_attention", "attention of whole prompts", "flash_attention:flash_attention_varlen", BACKEND, BACKEND),
    _kernel("paged_attention", "attention of chunks, over blocks", "paged_attention:paged_attention", BACKEND, BACKEND),
    _kernel("paged_decode", "attention of decodes, over blocks", "paged_decode:paged_decode", BACKEND, BACKEND),
    _kernel("argmax", "the likeliest token of each row", "argmax:argmax", TRITON, SAMPLER),
    _kernel("sample", "a draw for each row, without a sort", "sample:sample", TRITON, SAMPLER),
    _kernel("softmax", "probabilities, for logprobs", "softmax:softmax", TRITON, SAMPLER),
    Part("scheduler.token_budget", "one token budget for all", "minillm.scheduler:Scheduler"),
    Part("scheduler.static", "a batch runs until its last request is done", "minillm.schedulers:StaticScheduler"),
    Part("scheduler.prefill_first", "whole prompts before any decode", "minillm.schedulers:PrefillFirstScheduler"),
    Part("scheduler.continuous", "free places are filled each step", "minillm.schedulers:ContinuousScheduler"),
    Part("sampling.pipeline", "logits to tokens", "minillm.sampling.pipeline:Sampler"),
    Part("text.stream", "tokens to text that never shows half a character", "minillm.text.stream:StreamDecoder"),
    Part("text.stop", "stop strings across token borders", "minillm.text.stop:StopChecker"),
)
PARTS: dict[str, Part] = {part.name: part for part in _ALL}


def implementations(slot: str) -> list[str]:
    """What a flag for this slot may be set to."""
    return [
        part.name.split(".")[1] for part in PARTS.values() if part.slot == slot and part.inside is None and not part.chosen_by
    ]


def check_names(names: Iterable[str]) -> None:
    """Raises ConfigError for the first that is no part."""
    for name in names:
        if name not in PARTS:
            raise ConfigError(f"there is no part {name!r}; there are {', '.join(PARTS)}")


class Parts:
    """One engine's choice of parts. mine: {part name: object to use instead of the reference}."""

    def __init__(self, mine: Mapping[str, Any] | None = None):
        self._mine = dict(mine or {})
        check_names(self._mine)

    def get(self, slot: str, implementation: str) -> Any:
        """The class or function that stands for `slot.implementation`. Raises ConfigError for one that does not exist."""
        name = f"{slot}.{implementation}"
        if name not in PARTS:
            raise ConfigError(f"--{slot} {implementation}: choose one of {', '.join(implementations(slot))}")
        return self._mine.get(name) or PARTS[name].load()

    def is_own(self, slot: str, implementation: str) -> bool:
        """Whether the caller put an object of their own there."""
        return f"{slot}.{implementation}" in self._mine
