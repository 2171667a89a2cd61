"""What travels through the engine: sampling parameters, one request's state, and what comes out of a step."""

from __future__ import annotations

import math
import reprlib
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
    repetition_penalty: above 1 makes tokens of prompt and answer less likely (Keskar et al., CTRL, 2019); presence_penalty and
    frequency_penalty: taken off the logits of tokens of the answer, once or for each occurrence (OpenAI's).
    logit_bias: {token id: added to its logit}. logprobs, prompt_logprobs: how many of the likeliest tokens to report beside
    the chosen (or the prompt's own) one; None: no report.
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
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self):
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        object.__setattr__(self, "top_k", max(self.top_k, 0) if self.top_k in (-1, 0) else self.top_k)
        bias = self.logit_bias.items() if isinstance(self.logit_bias, dict) else self.logit_bias or ()
        object.__setattr__(self, "logit_bias", tuple(sorted(bias)))
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
        self._check(
            "repetition_penalty", math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0, "must be above 0"
        )
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, -2 <= getattr(self, name) <= 2, "must be in [-2, 2]")
        self._check("logit_bias", all(-100 <= bias <= 100 for _, bias in self.logit_bias), "must hold biases in [-100, 100]")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            self._check(name, value is None or 0 <= value <= 20, "must be in [0, 20]")
        self._check("stop", all(self.stop), "must not contain an empty string")
        # matching tables are built for every sample on the engine's thread: their size must not be the client's to choose
        self._check("stop", sum(map(len, self.stop)) <= 4096, "must not hold more than 4,096 characters in all")

    def _check(self, name: str, ok: bool, rule: str) -> None:
        if not ok:
            raise RequestError(f"{name} {rule}; got {reprlib.repr(getattr(self, name))}", param=name)


class FinishReason(StrEnum):
    STOP = "stop"  # an end-of-sequence or stop token, or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full
    ABORT = "abort"  # the client went away
    ERROR = "error"  # the model gave NaN or infinity instead of logits


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
    serial: int = 0  # order of arrival
    priority: int = 0  # under the "priority" policy a lower number goes first
    cache_salt: str | None = None  # blocks are shared only with requests of the same salt

    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prompt tokens found in the prefix cache
    spec_token_ids: list[int] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)  # names of its first full blocks, as far as they were needed
    # of each prompt token but the first, as far as they were computed; if asked for
    prompt_logprobs: list[tuple[TokenLogprob, ...]] = field(default_factory=list)
    num_preemptions: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the stop token or string that ended it; None for end-of-sequence
    times: RequestTimes = field(default_factory=lambda: RequestTimes())

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

    @property
    def skip_prefix_cache(self) -> bool:
        """A request for its prompt's logprobs must compute the whole prompt: the cache holds no logits."""
        return self.params.prompt_logprobs is not None

    def note_scheduled(self) -> None:
        """Called when the request is admitted, the first time and after each preemption."""
        if self.times.scheduled is None:
            self.times.scheduled = time.monotonic()
            self.num_cached_tokens = self.num_computed_tokens


@dataclass
class RequestTimes:
    """When things happened to a request: time.monotonic(), seconds; None: not yet."""

    arrival: float = field(default_factory=time.monotonic)
    scheduled: float | None = None  # first left the queue
    first_token: float | None = None
    last_token: float | None = None
    finished: float | None = None

    def note_token(self, now: float) -> None:
        self.first_token = self.first_token or now
        self.last_token = now


@dataclass(frozen=True)
class TokenLogprob:
    """log-probability (natural) of one token at one place, and how many tokens of the vocabulary are likelier, plus one."""

    token_id: int
    logprob: float
    rank: int


@dataclass(frozen=True)
class SampledToken:
    """A chosen token; with its logprobs if the request asked for them: its own first, then the likeliest ones in order."""

    token_id: int
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass
class StepOutput:
    """What one engine step produced for one request."""

    request: Request
    tokens: list[SampledToken]
    finish_reason: FinishReason | None = None

    @property
    def new_token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


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
    logprobs: list[tuple[TokenLogprob, ...]] | None = None  # for each of token_ids, if asked for
    prompt_logprobs: list[tuple[TokenLogprob, ...] | None] | None = (
        None  # for each prompt token (None for the first), if asked for
    )

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None
