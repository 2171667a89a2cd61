"""What travels through the engine: sampling parameters, one request's state, and what comes out of a step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from enum import StrEnum

from minillm.errors import RequestError


@dataclass(frozen=True)
class SamplingParams:
    """How to choose each next token and when to stop. Names and defaults are vLLM's.

    temperature: 0 is exact argmax. top_k: 0 or -1 keeps all tokens. top_p: nucleus mass in (0, 1].
    min_p: keep tokens at least this share of the most likely one's probability.
    seed: equal seeds give equal draws whatever else runs in the batch; None lets the engine choose.
    max_tokens: None means "until the model's context is full".
    stop: strings that end the answer, left out of it unless include_stop_str_in_output.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self):
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        object.__setattr__(self, "top_k", max(self.top_k, 0) if self.top_k in (-1, 0) else self.top_k)
        self._check("n", self.n >= 1, "must be at least 1")
        self._check(
            "temperature",
            math.isfinite(self.temperature) and self.temperature >= 0,
            "must be finite and not negative (0 is greedy)",
        )
        self._check("top_k", self.top_k >= 0, "must be positive, or 0 or -1 to keep all tokens")
        self._check("top_p", 0 < self.top_p <= 1, "must be in (0, 1]")
        self._check("min_p", 0 <= self.min_p <= 1, "must be in [0, 1]")
        self._check("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "must be at least 1")
        self._check("min_tokens", self.min_tokens >= 0, "must not be negative")
        if self.max_tokens is not None:
            self._check("min_tokens", self.min_tokens <= self.max_tokens, f"must not exceed max_tokens ({self.max_tokens})")
        if self.seed is not None:
            self._check("seed", -(2**63) <= self.seed < 2**64, "must fit in 64 bits")
        self._check("stop", all(self.stop), "must not contain an empty string")

    def _check(self, name: str, ok: bool, rule: str) -> None:
        if not ok:
            raise RequestError(f"{name} {rule}; got {getattr(self, name)!r}", param=name)


class FinishReason(StrEnum):
    STOP = "stop"  # an end-of-sequence or stop token, or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full
    ABORT = "abort"  # the client went away


@dataclass(eq=False)
class Request:
    """One sequence on its way through the engine.

    Everything the scheduler needs follows from two numbers: `num_computed_tokens`, whose keys and values are in the
    cache, and `len(token_ids)`, the tokens known so far. Prefill, chunked prefill, decode and recomputation after a
    preemption are all "compute more of the known tokens".
    """

    request_id: str
    token_ids: list[int]  # prompt followed by generated tokens
    num_prompt_tokens: int
    params: SamplingParams
    max_tokens: int  # resolved: never None, never past the model's context
    seed: int  # resolved: keys every random draw of this request
    eos_token_ids: frozenset[int] = frozenset()
    index: int = 0  # which of the n samples of one prompt
    arrival_time: float = field(default_factory=time.monotonic)  # seconds

    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prompt tokens found in the prefix cache
    spec_token_ids: list[int] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    num_preemptions: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the stop token or string that ended it; None for end-of-sequence

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class StepOutput:
    """What one engine step produced for one request."""

    request: Request
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None


@dataclass
class RequestOutput:
    """Text that is ready for the user: a delta while streaming, or everything at the end (`LLM.generate`).

    text never ends inside a UTF-8 character and never holds (part of) a stop string that was to be left out.
    """

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    num_prompt_tokens: int
    num_output_tokens: int  # generated so far, the end-of-sequence token included
    num_cached_tokens: int = 0

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None
