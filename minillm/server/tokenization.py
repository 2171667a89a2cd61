"""POST /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool

from minillm.errors import RequestError
from minillm.server.body import json_body
from minillm.server.fields import TemplateVariables, TokenId
from minillm.server.schema import Message, Strict
from minillm.server.serving import Serving, get_serving

router = APIRouter()


class TokenizeRequest(Strict):
    """A prompt or messages. add_special_tokens: for a prompt true, for messages false, whose template writes its own."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: TemplateVariables = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_of_two(self):
        if (self.prompt is None) == (self.messages is None):
            raise RequestError("send either prompt or messages", param="prompt")
        if self.messages is None:
            for name in ("add_generation_prompt", "chat_template_kwargs"):
                if getattr(self, name) is not None:
                    raise RequestError(f"{name} is only allowed with messages", param=name)
        elif self.add_special_tokens:
            raise RequestError("add_special_tokens is not allowed with messages", param="add_special_tokens")
        return self

    def encode(self, tokenizer: Any) -> list[int]:
        if self.prompt is not None:
            return tokenizer.encode(self.prompt, add_special_tokens=self.add_special_tokens is not False)
        messages = [message.model_dump() for message in self.messages]
        return tokenizer.encode_chat(messages, self.add_generation_prompt is not False, **(self.chat_template_kwargs or {}))


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: list[TokenId]


@router.post("/tokenize")
async def tokenize(
    body: Annotated[TokenizeRequest, Depends(json_body(TokenizeRequest))],
    serving: Annotated[Serving, Depends(get_serving)],
):
    serving.check_model(body.model)
    tokens = await run_in_threadpool(body.encode, serving.tokenizer)
    names = {"token_strs": [serving.tokenizer.token(t) for t in tokens]} if body.return_token_strs else {}
    return {"count": len(tokens), "max_model_len": serving.max_model_len, "tokens": tokens, **names}


@router.post("/detokenize")
async def detokenize(
    body: Annotated[DetokenizeRequest, Depends(json_body(DetokenizeRequest))],
    serving: Annotated[Serving, Depends(get_serving)],
):
    """Special tokens are kept, so that tokenize and detokenize are each other's reverse."""
    serving.check_model(body.model)
    for i, token in enumerate(body.tokens):
        if serving.tokenizer.token(token) is None:
            raise RequestError(f"tokens[{i}]: this model has no token {token}", param=f"tokens[{i}]")
    return {"prompt": await run_in_threadpool(serving.tokenizer.decode, body.tokens, skip_special_tokens=False)}
