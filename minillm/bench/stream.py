"""From the bytes of one streamed answer, each read with its time, to tokens, text and times. No network here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from minillm.errors import MinillmError


class BadAnswer(MinillmError):
    """A response that is no complete answer; the message is the reason under which it is counted as failed."""


@dataclass
class Answer:
    text: str = ""
    chunk_times: list[float] = field(default_factory=list)  # seconds: when each piece of text came, and the end
    prompt_tokens: int = 0  # by the server's count
    output_tokens: int = 0
    finish_reason: str | None = None


def server_sent_events(reads: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """(time, data) of each `data:` line, timed by the read that completed it; reads may cut lines anywhere."""
    rest = b""
    for at, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield at, line[5:].strip().decode("utf-8", "replace")


def parse_answer(reads: Iterable[tuple[float, bytes]]) -> Answer:
    """An OpenAI chat or text completion, streamed. Raises BadAnswer for an error event, a stream cut short, or no usage."""
    answer, usage, finished_at = Answer(), None, None
    for at, data in server_sent_events(reads):
        if data == "[DONE]":
            continue
        chunk = _as_object(data)
        if chunk.get("error"):
            raise BadAnswer(f"the server ended the answer: {error_message(chunk)}")
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            if text := _text(choice):
                answer.text += text
                answer.chunk_times.append(at)
            if choice.get("finish_reason"):
                answer.finish_reason, finished_at = choice["finish_reason"], at
    if finished_at is None:
        raise BadAnswer("the stream ended before the answer was complete")
    if not usage or "completion_tokens" not in usage:
        raise BadAnswer("the server sent no usage (stream_options.include_usage), so its tokens cannot be counted")
    if usage["completion_tokens"] < 1:
        raise BadAnswer("the answer has no tokens")
    answer.prompt_tokens, answer.output_tokens = usage.get("prompt_tokens", 0), usage["completion_tokens"]
    _note_end(answer, finished_at)
    return answer


def _note_end(answer: Answer, finished_at: float) -> None:
    """A last token without text (end of sequence) shows itself only in the event that says how the answer ended."""
    if len(answer.chunk_times) < answer.output_tokens and finished_at > max(answer.chunk_times, default=0.0):
        answer.chunk_times.append(finished_at)


def _as_object(data: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
    except ValueError:
        chunk = None
    if not isinstance(chunk, dict):
        raise BadAnswer(f"the server sent an event that is no JSON object: {data[:80]!r}")
    return chunk


def _text(choice: dict[str, Any]) -> str:
    """Text of a completion's chunk or a chat's delta; a model's reasoning is generated text like any other."""
    delta = choice.get("delta") or {}
    return choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""


def error_message(body: Any) -> str:
    """What an error body says, in one line: OpenAI's {"error": {"message": …}}, or any other."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:200]
