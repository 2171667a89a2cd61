"""Request bodies. What is not supported is refused by name; a value that asks for nothing is let through.

Types are strict ("5" is not a number), null means "the default", and field names are OpenAI's, then vLLM's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from minillm.errors import RequestError
from minillm.request import SamplingParams

MAX_CHOICES = 128  # prompts times n: one HTTP request must not flood the queue
MAX_STOP_STRINGS = 64  # each is searched for after every token, on the engine's one thread
MAX_INT32 = 2**31 - 1
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's

# Fields of the two APIs that this server does not act on, each with the values that ask for nothing (null always does).
NEUTRAL_COMMON: dict[str, tuple] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "prompt_logprobs": (),
    "structured_outputs": (),
    "priority": (0,),
    "cache_salt": (),
}
NEUTRAL_CHAT = NEUTRAL_COMMON | {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "chat_template_kwargs": ({},),
}
NEUTRAL_COMPLETION = NEUTRAL_COMMON | {"logprobs": (), "echo": (False,), "suffix": ("",), "best_of": (1,)}
# An answer of ours, sent back as a message by a client that keeps every field of it
NEUTRAL_MESSAGE: dict[str, tuple] = {
    "name": (),
    "refusal": (),
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "tool_calls": ([],),
    "reasoning_content": (),
}
# These only say who asks; nothing about the answer depends on them
IDENTIFICATION = ("user", "metadata", "safety_identifier", "prompt_cache_key")


def _drop_neutral(data: Any, neutral: dict[str, tuple], ignored: tuple[str, ...] = ()) -> Any:
    if not isinstance(data, dict):
        return data
    for name in neutral.keys() & data.keys():
        value = data[name]
        if value is not None and not any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral[name]):
            raise RequestError(f"{name} is not supported by this server; leave it out", param=name)
    return {name: value for name, value in data.items() if name not in neutral and name not in ignored}


def _parse_stop(value: Any) -> list[str] | None:
    if value is None or isinstance(value, str):
        return None if value is None else [value]
    if not isinstance(value, list) or not all(isinstance(s, str) for s in value):
        raise RequestError("must be a string or a list of strings")
    if len(value) > MAX_STOP_STRINGS:
        raise RequestError(f"has {len(value)} strings; at most {MAX_STOP_STRINGS} are allowed")
    return value


def _is_token_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT32


def _parse_prompts(value: Any) -> list[str | list[int]]:
    """One prompt or several, as text or as token ids, always returned as a list of prompts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(_is_token_id(v) for v in value):
            return [value]
        if all(isinstance(v, str) for v in value):
            return value
        if all(isinstance(v, list) and v and all(_is_token_id(t) for t in v) for v in value):
            return value
    raise RequestError("must be a string, a list of strings, a list of token ids or a list of such lists, and not empty")


def _parse_content(value: Any) -> Any:
    """A list of text parts becomes one string, parts on lines of their own (as vLLM does)."""
    if not isinstance(value, list):
        return value
    texts = []
    for part in value:
        if not (isinstance(part, dict) and part.get("type") == "text"):
            kind = part.get("type") if isinstance(part, dict) else part
            raise RequestError(f"parts must be of type 'text', for this model reads only text; got {kind!r}")
        if part.keys() != {"type", "text"} or not isinstance(part["text"], str):
            raise RequestError("a text part must have a string 'text' and nothing else")
        texts.append(part["text"])
    return "\n".join(texts)


def _system_for_developer(role: Any) -> Any:
    """OpenAI's newer name for "system" is "developer"; chat templates know only the older one."""
    return "system" if role == "developer" else role


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Message(_Strict):
    role: Annotated[Literal["system", "user", "assistant"], BeforeValidator(_system_for_developer)]
    content: Annotated[str, BeforeValidator(_parse_content)]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return _drop_neutral(data, NEUTRAL_MESSAGE)


class StreamOptions(_Strict):
    include_usage: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return _drop_neutral(data, {"continuous_usage_stats": (False,), "include_obfuscation": (False,)})


class _GenerationRequest(_Strict):
    """What both endpoints share. The sampling fields are SamplingParams' own."""

    model: str | None = None  # None: the one model served
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, Field(le=MAX_INT32)] | None = None
    min_p: float | None = None
    n: Annotated[int, Field(le=MAX_CHOICES)] | None = None
    stop: Annotated[list[str] | None, PlainValidator(_parse_stop)] = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[Annotated[int, Field(ge=0, le=MAX_INT32)]] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None

    @model_validator(mode="after")
    def _options_need_a_stream(self):
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options is only allowed with stream: true", param="stream_options")
        return self

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _sampling_params(self, max_tokens: int | None) -> SamplingParams:
        """Fields left out or null take SamplingParams' defaults. Raises RequestError naming a value that cannot be used."""
        shared = SamplingParams.__dataclass_fields__.keys() & type(self).model_fields.keys() - {"max_tokens"}
        given = {name: value for name in shared if (value := getattr(self, name)) is not None}
        return SamplingParams(max_tokens=max_tokens, **given)


class CompletionRequest(_GenerationRequest):
    prompt: Annotated[list[str | list[int]], PlainValidator(_parse_prompts)]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return _drop_neutral(data, NEUTRAL_COMPLETION, IDENTIFICATION)

    @model_validator(mode="after")
    def _bound_choices(self):
        choices = len(self.prompt) * (self.n or 1)
        if choices > MAX_CHOICES:
            raise RequestError(f"prompts times n is {choices}; at most {MAX_CHOICES} answers a request", param="prompt")
        return self

    def sampling_params(self) -> SamplingParams:
        return self._sampling_params(DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens)


class ChatCompletionRequest(_GenerationRequest):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return _drop_neutral(data, NEUTRAL_CHAT, IDENTIFICATION)

    def sampling_params(self) -> SamplingParams:
        """max_completion_tokens is max_tokens' newer name; without either the answer may fill the context."""
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        if self.max_tokens not in (None, limit):
            raise RequestError("max_tokens and max_completion_tokens differ; send one of them", param="max_tokens")
        return self._sampling_params(limit)
