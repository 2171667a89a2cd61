"""Values of request fields that come in several forms. Each function checks one and brings it into one form."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from minillm.errors import RequestError

MAX_INT32 = 2**31 - 1
MAX_STOP_STRINGS = 64  # each is searched for after every token, on the engine's one thread
MAX_LOGIT_BIASES = 1024  # each is added before every token, likewise
# What the server itself passes to the template; "self" is no name that Python can pass
RESERVED_TEMPLATE_VARIABLES = ("messages", "add_generation_prompt", "tools", "documents", "self")


def _parse_stop(value: Any) -> list[str] | None:
    if value is None or isinstance(value, str):
        return None if value is None else [value]
    if not isinstance(value, list) or not all(isinstance(s, str) for s in value):
        raise RequestError("must be a string or a list of strings")
    if len(value) > MAX_STOP_STRINGS:
        raise RequestError(f"has {len(value)} strings; at most {MAX_STOP_STRINGS} are allowed")
    return value


def _parse_logit_bias(value: Any) -> dict[int, float] | None:
    """{"token id": bias}: JSON's keys are strings."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(type(bias) in (int, float) for bias in value.values()):
        raise RequestError("must be an object of token ids and numbers")
    if not all(isinstance(key, str) and re.fullmatch("[0-9]{1,9}", key) for key in value):
        raise RequestError('must have token ids as its keys, such as {"50": -100}')
    if len(value) > MAX_LOGIT_BIASES:
        raise RequestError(f"has {len(value)} tokens; at most {MAX_LOGIT_BIASES} are allowed")
    return {int(key): float(bias) for key, bias in value.items()}


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


def _parse_template_variables(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RequestError("must be an object of template variables")
    for name in RESERVED_TEMPLATE_VARIABLES:
        if name in value:
            raise RequestError(f"must not set {name!r}: the server sets it itself")
    return value


Stop = Annotated[list[str] | None, PlainValidator(_parse_stop)]
LogitBias = Annotated[dict[int, float] | None, PlainValidator(_parse_logit_bias)]
Prompts = Annotated[list[str | list[int]], PlainValidator(_parse_prompts)]
Content = Annotated[str, BeforeValidator(_parse_content)]
TemplateVariables = Annotated[dict[str, Any] | None, PlainValidator(_parse_template_variables)]
TokenId = Annotated[int, Field(ge=0, le=MAX_INT32)]
Int32 = Annotated[int, Field(ge=-MAX_INT32 - 1, le=MAX_INT32)]
system_for_developer = BeforeValidator(_system_for_developer)
