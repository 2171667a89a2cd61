"""POST /v1/chat/completions"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from minillm.errors import RequestError
from minillm.server.body import json_body
from minillm.server.generation import Answer, Generation
from minillm.server.logprobs import chat_logprobs, prompt_logprobs
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
    head = response_head("chatcmpl", "chat.completion", serving, body.request_id)
    try:
        prompt = await run_in_threadpool(_encode, serving, body)
        generation = Generation(serving, [prompt], params, body)
    except RequestError as e:  # the engine knows prompts, this endpoint's clients know messages
        e.param = "messages" if e.param == "prompt" else e.param
        raise
    if body.stream:
        chunks = _chunks(generation, head | {"object": "chat.completion.chunk"}, body, serving)
        return EventStream(chunks, generation.aclose)
    answers = await generation.collect(request)
    response = head | {"choices": [_choice(i, answer, body, serving) for i, answer in enumerate(answers)]}
    if body.prompt_logprobs is not None:
        response["prompt_logprobs"] = prompt_logprobs(serving.tokenizer, answers[0].prompt_logprobs, body.prompt_logprobs)
    return response | {"usage": generation.usage()}


def _encode(serving: Serving, body: ChatCompletionRequest) -> list[int]:
    messages = [message.model_dump() for message in body.messages]
    text = serving.tokenizer.apply_chat_template(messages, **(body.chat_template_kwargs or {}))
    return serving.encode(text, add_special_tokens=False)  # a template writes its own BOS


def _choice(index: int, answer: Answer, body: ChatCompletionRequest, serving: Serving) -> dict:
    return {
        "index": index,
        "message": {"role": "assistant", "content": answer.text},
        "logprobs": chat_logprobs(serving.tokenizer, answer.logprobs, body.top_logprobs or 0) if body.logprobs else None,
        "finish_reason": answer.finish_reason.value,
        "stop_reason": answer.stop_reason,
    }


async def _chunks(generation: Generation, head: dict, body: ChatCompletionRequest, serving: Serving) -> AsyncIterator[dict]:
    usage = {"usage": None} if body.include_usage else {}  # OpenAI: null on every chunk but the last

    def chunk(i: int, delta: dict, logprobs: dict | None = None, finish_reason: str | None = None, **more) -> dict:
        choice = {"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason, **more}
        return head | {"choices": [choice]} | usage

    introduced: set[int] = set()
    async for i, output in generation.outputs():
        if i not in introduced:
            # sent with the first token, not before: clients take their time to first token from it
            introduced.add(i)
            yield chunk(i, {"role": "assistant", "content": ""})
        logprobs = chat_logprobs(serving.tokenizer, output.logprobs, body.top_logprobs or 0) if body.logprobs else None
        if output.text or logprobs:  # a token may have no text of its own and still have a probability
            yield chunk(i, {"content": output.text}, logprobs)
        if output.finished:
            yield chunk(i, {}, None, output.finish_reason.value, stop_reason=output.stop_reason)
    if body.include_usage:
        yield head | {"choices": [], "usage": generation.usage()}
