"""Chat templates: a model's own Jinja program that writes a conversation the way the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minillm.errors import CheckpointError, RequestError


class ChatTemplate:
    """Renders conversations to the very text that transformers' apply_chat_template gives.

    A template comes from whoever published the model, so it runs in Jinja's sandbox.
    """

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str]):
        """templates: source by name; a model with only one calls it "default", one for requests with tools is "tool_use".
        special_tokens: what the template sees as bos_token, eos_token and so on."""
        self._templates = dict(templates)
        self._special_tokens = dict(special_tokens)
        self._environment = _environment()
        self._compiled: dict[str, jinja2.Template] = {}

    def __bool__(self) -> bool:
        return bool(self._templates)

    def render(self, messages: Any, add_generation_prompt: bool = True, **variables: Any) -> str:
        """messages: a non-empty list of {"role": str, "content": str or list of text parts, ...}.
        add_generation_prompt: end with the opening of the assistant's turn. variables: anything else the template
        reads (tools, enable_thinking ...). Raises RequestError for messages that are malformed or that the template
        refuses."""
        name = self._choose(variables.get("tools"))
        variables = {"tools": None, "documents": None, **self._special_tokens, **variables}
        messages = check_messages(messages)
        template = self._compile(name)
        try:
            return template.render(variables, messages=messages, add_generation_prompt=add_generation_prompt)
        except jinja2.TemplateError as e:
            raise RequestError(f"the model's chat template refuses these messages: {e}", param="messages") from e
        except Exception as e:  # a template is a program, of whose author we know nothing: it may raise anything
            reason = f"{type(e).__name__}: {e}"
            raise RequestError(f"the model's chat template cannot write these messages ({reason})", param="messages") from e

    def _choose(self, tools: Any) -> str:
        if not self._templates:
            raise RequestError(
                "this model has no chat template: use /v1/completions with a plain prompt, or serve an instruction-tuned "
                "model, which brings one",
                param="messages",
            )
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        if name not in self._templates:
            known = ", ".join(sorted(self._templates))
            raise CheckpointError(f"this model has chat templates named {known}, but none named 'default'; add that to its files")
        return name

    def _compile(self, name: str) -> jinja2.Template:
        if name not in self._compiled:
            try:
                self._compiled[name] = self._environment.from_string(self._templates[name])
            except jinja2.TemplateSyntaxError as e:
                raise CheckpointError(f"the model's chat template is not valid Jinja, line {e.lineno}: {e.message}") from e
        return self._compiled[name]


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages as templates expect them: text parts joined by newlines (as vLLM does), fields that are null left out.

    Which roles there are, and in which order they may come, is the template's business. A message may lack content only
    if it calls tools. Raises RequestError.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise RequestError("messages must be a non-empty list of {role, content} objects", param="messages")
    return [_check_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _check_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content; got {type(message).__name__}", param="messages")
    fields = {key: value for key, value in message.items() if value is not None}
    if not isinstance(fields.get("role"), str):
        raise RequestError(f"{where}.role must be a string", param="messages")
    if "content" in fields:
        fields["content"] = _text(fields["content"], f"{where}.content")
    elif not fields.get("tool_calls"):
        raise RequestError(f"{where}.content is missing", param="messages")
    return fields


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where} must be a string or a list of text parts; got {type(content).__name__}", param="messages")
    for i, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RequestError(f"{where}[{i}] must be a text part (type and text): minillm reads only text", param="messages")
    return "\n".join(part["text"] for part in content)


def _environment() -> ImmutableSandboxedEnvironment:
    """The dialect that published templates are written in: transformers' settings, filter and two functions."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationTag(Extension):
    """{% generation %}...{% endgeneration %} marks the assistant's words for training; for serving it is only a scope."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Jinja's own filter escapes <, > and & for HTML, which a model should not read."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
