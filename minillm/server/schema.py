"""Request bodies. What is not supported is refused by name; a value that asks for nothing is let through.

Types are strict ("5" is not a number), null means "the default", and field names are OpenAI's, then vLLM's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from minillm.errors import RequestError
from minillm.request import SamplingParams
from minillm.server.fields import (
    MAX_INT32,
    Content,
    Int32,
    LogitBias,
    Prompts,
    Stop,
    TemplateVariables,
    TokenId,
    system_for_developer,
)
from minillm.server.refused import (
    IDENTIFICATION,
    NEUTRAL_CHAT,
    NEUTRAL_COMPLETION,
    NEUTRAL_MESSAGE,
    NEUTRAL_STREAM_OPTIONS,
    drop_neutral,
)

MAX_CHOICES = 128  # prompts times n: one HTTP request must not flood the queue
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Message(Strict):
    role: Annotated[Literal["system", "user", "assistant"], system_for_developer]
    content: Content

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return drop_neutral(data, NEUTRAL_MESSAGE)


class StreamOptions(Strict):
    include_usage: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return drop_neutral(data, NEUTRAL_STREAM_OPTIONS)


class GenerationRequest(Strict):
    """What both endpoints share. The sampling fields are SamplingParams' own."""

    model: str | None = None  # None: the one model served
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, Field(le=MAX_INT32)] | None = None
    min_p: float | None = None
    n: Annotated[int, Field(le=MAX_CHOICES)] | None = None
    stop: Stop = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: LogitBias = None
    prompt_logprobs: int | None = None
    priority: Int32 | None = None
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None

    @model_validator(mode="after")
    def _check_stream(self):
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options is only allowed with stream: true", param="stream_options")
        if self.prompt_logprobs is not None and self.stream:
            raise RequestError("prompt_logprobs is not available with stream: true", param="prompt_logprobs")
        return self

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _sampling_params(self, max_tokens: int | None, **others: Any) -> SamplingParams:
        """Fields left out or null take SamplingParams' defaults. Raises RequestError naming a value that cannot be used."""
        shared = SamplingParams.__dataclass_fields__.keys() & type(self).model_fields.keys() - {"max_tokens", "logprobs"}
        given = {name: value for name in shared if (value := getattr(self, name)) is not None}
        return SamplingParams(max_tokens=max_tokens, **given | others)


class CompletionRequest(GenerationRequest):
    prompt: Prompts
    logprobs: int | None = None
    echo: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return drop_neutral(data, NEUTRAL_COMPLETION, IDENTIFICATION)

    @model_validator(mode="after")
    def _bound_choices(self):
        choices = len(self.prompt) * (self.n or 1)
        if choices > MAX_CHOICES:
            raise RequestError(f"prompts times n is {choices}; at most {MAX_CHOICES} answers a request", param="prompt")
        return self

    def sampling_params(self) -> SamplingParams:
        max_tokens = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        params = self._sampling_params(max_tokens, logprobs=self.logprobs)
        if self.echo and self.logprobs is not None:  # the echoed prompt has its logprobs too
            most = max(self.logprobs, self.prompt_logprobs or 0)
            return self._sampling_params(max_tokens, logprobs=self.logprobs, prompt_logprobs=most)
        return params


class ChatCompletionRequest(GenerationRequest):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: TemplateVariables = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return drop_neutral(data, NEUTRAL_CHAT, IDENTIFICATION)

    def sampling_params(self) -> SamplingParams:
        """max_completion_tokens is max_tokens' newer name; without either the answer may fill the context."""
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        if self.max_tokens not in (None, limit):
            raise RequestError("max_tokens and max_completion_tokens differ; send one of them", param="max_tokens")
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs is only allowed with logprobs: true", param="top_logprobs")
        if not 0 <= (self.top_logprobs or 0) <= 20:  # told here, for SamplingParams calls it logprobs
            raise RequestError(f"top_logprobs must be in [0, 20]; got {self.top_logprobs}", param="top_logprobs")
        return self._sampling_params(limit, logprobs=(self.top_logprobs or 0) if self.logprobs else None)
