"""What every route needs to know about the engine it serves."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from fastapi import Request

from minillm.async_engine import AsyncEngine
from minillm.errors import ContextLengthError, RequestError
from minillm.server.errors import ApiError


@dataclass(frozen=True)
class Serving:
    """One engine under one public name."""

    engine: AsyncEngine
    model_name: str
    own_parts: tuple[str, ...] = ()  # names of the parts that are not minillm's, see minillm.mine
    started: int = field(default_factory=lambda: int(time.time()))  # Unix time, seconds

    @property
    def tokenizer(self):
        return self.engine.engine.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.engine.engine.max_model_len

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.model_name:
            raise ApiError(
                404, f"model {name!r} is not served here; this server has {self.model_name!r}", "model", "model_not_found"
            )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a prompt. Raises ContextLengthError at once for a text that has too many tokens whatever they are: to
        tokenize a megabyte takes a second."""
        if len(text) > self.max_model_len and (most := self.tokenizer.most_bytes_per_token) is not None:
            num_bytes = len(text.encode("utf-8", "surrogatepass"))
            if num_bytes > most * self.max_model_len:
                raise ContextLengthError(
                    f"the prompt has {num_bytes:,} bytes; this model's context holds {self.max_model_len} tokens of at most "
                    f"{most} bytes each. Shorten the prompt or raise --max-model-len",
                    param="prompt",
                )
        return self.tokenizer.encode(text, add_special_tokens)

    def check_priority(self, priority: int) -> None:
        if priority and self.engine.engine.config.scheduling_policy != "priority":
            raise RequestError(
                "priority has no effect here; leave it out, or start the server with --scheduling-policy priority", "priority"
            )


def get_serving(request: Request) -> Serving:
    return request.app.state.serving


def response_head(kind: str, object_name: str, serving: Serving, request_id: str | None) -> dict:
    """The fields every response and every chunk of it begins with."""
    return {
        "id": f"{kind}-{request_id or uuid.uuid4().hex}",
        "object": object_name,
        "created": int(time.time()),
        "model": serving.model_name,
    }
