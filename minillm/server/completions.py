"""POST /v1/completions"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from minillm.server.body import json_body
from minillm.server.generation import Generation
from minillm.server.schema import CompletionRequest
from minillm.server.serving import Serving, get_serving, response_head
from minillm.server.sse import EventStream

router = APIRouter()


@router.post("/v1/completions")
async def completions(
    request: Request,
    body: Annotated[CompletionRequest, Depends(json_body(CompletionRequest))],
    serving: Annotated[Serving, Depends(get_serving)],
):
    serving.check_model(body.model)
    params = body.sampling_params()
    prompts = await run_in_threadpool(_encode, serving, body)
    head = response_head("cmpl", "text_completion", serving, body.request_id)
    generation = Generation(serving.engine, prompts, params)
    await generation.submit()
    if body.stream:
        return EventStream(_chunks(generation, head, body.include_usage), generation.aclose)
    answers = await generation.collect(request)
    choices = [_choice(i, text, last.finish_reason.value, last.stop_reason) for i, (text, last) in enumerate(answers)]
    return head | {"choices": choices, "usage": generation.usage()}


def _encode(serving: Serving, body: CompletionRequest) -> list[list[int]]:
    return [serving.tokenizer.encode(p) if isinstance(p, str) else p for p in body.prompt]


def _choice(index: int, text: str, finish_reason: str | None = None, stop_reason: int | str | None = None) -> dict:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": stop_reason}


async def _chunks(generation: Generation, head: dict, include_usage: bool) -> AsyncIterator[dict]:
    usage = {"usage": None} if include_usage else {}  # OpenAI: null on every chunk but the last
    async for i, output in generation.outputs():
        if output.finished:
            yield head | {"choices": [_choice(i, output.text, output.finish_reason.value, output.stop_reason)]} | usage
        elif output.text:
            yield head | {"choices": [_choice(i, output.text)]} | usage
    if include_usage:
        yield head | {"choices": [], "usage": generation.usage()}
