"""Fields of the two APIs that this server does not act on. Each is refused by name, unless its value asks for nothing."""

from __future__ import annotations

from typing import Any

from minillm.errors import RequestError

# The values that ask for nothing; null always does.
NEUTRAL_COMMON: dict[str, tuple] = {"structured_outputs": ()}
NEUTRAL_CHAT = NEUTRAL_COMMON | {
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
}
NEUTRAL_COMPLETION = NEUTRAL_COMMON | {"suffix": ("",), "best_of": (1,)}
NEUTRAL_STREAM_OPTIONS: dict[str, tuple] = {"continuous_usage_stats": (False,), "include_obfuscation": (False,)}
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
NOT_YET = ("tools", "tool_choice", "tool_calls", "functions", "function_call", "response_format", "structured_outputs")
# These only say who asks; nothing about the answer depends on them
IDENTIFICATION = ("user", "metadata", "safety_identifier", "prompt_cache_key")


def drop_neutral(data: Any, neutral: dict[str, tuple], ignored: tuple[str, ...] = ()) -> Any:
    """The body without the fields that ask for nothing. Raises RequestError naming one that asks for something."""
    if not isinstance(data, dict):
        return data
    for name in neutral.keys() & data.keys():
        value = data[name]
        if value is not None and not any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral[name]):
            when = "not supported yet" if name in NOT_YET else "not supported by this server"
            raise RequestError(f"{name} is {when}; leave it out", param=name)
    return {name: value for name, value in data.items() if name not in neutral and name not in ignored}
