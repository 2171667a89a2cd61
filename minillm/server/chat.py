"""POST /v1/chat/completions"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from minillm.errors import RequestError
from minillm.server.body import json_body
from minillm.server.generation import Generation
from minillm.server.schema import ChatCompletionRequest
from minillm.server.serving import Serving, get_serving, response_head
from minillm.server.sse import EventStream

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(
    request: Request,
    body: Annotated[ChatCompletionRequest, Depends(json_body(ChatCompletionRequest))],
    serving: Annotated[Serving, Depends(get_serving)],
):
    serving.check_model(body.model)
    params = body.sampling_params()
    prompt = await run_in_threadpool(_encode, serving, body)
    head = response_head("chatcmpl", "chat.completion", serving, body.request_id)
    generation = Generation(serving.engine, [prompt], params)
    try:
        await generation.submit()
    except RequestError as e:  # the engine knows prompts, this endpoint's clients know messages
        raise RequestError(str(e), "messages" if e.param == "prompt" else e.param) from e
    if body.stream:
        return EventStream(_chunks(generation, head | {"object": "chat.completion.chunk"}, body.include_usage), generation.aclose)
    answers = await generation.collect(request)
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": last.finish_reason.value,
            "stop_reason": last.stop_reason,
        }
        for i, (text, last) in enumerate(answers)
    ]
    return head | {"choices": choices, "usage": generation.usage()}


def _encode(serving: Serving, body: ChatCompletionRequest) -> list[int]:
    return serving.tokenizer.encode_chat([message.model_dump() for message in body.messages])


async def _chunks(generation: Generation, head: dict, include_usage: bool) -> AsyncIterator[dict]:
    usage = {"usage": None} if include_usage else {}  # OpenAI: null on every chunk but the last

    def chunk(i: int, delta: dict, finish_reason: str | None = None, **more) -> dict:
        choice = {"index": i, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **more}
        return head | {"choices": [choice]} | usage

    introduced: set[int] = set()
    async for i, output in generation.outputs():
        if i not in introduced:
            # sent with the first token, not before: clients take their time to first token from it
            introduced.add(i)
            yield chunk(i, {"role": "assistant", "content": ""})
        if output.text:
            yield chunk(i, {"content": output.text})
        if output.finished:
            yield chunk(i, {}, output.finish_reason.value, stop_reason=output.stop_reason)
    if include_usage:
        yield head | {"choices": [], "usage": generation.usage()}
