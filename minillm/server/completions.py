"""POST /v1/completions"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from minillm.request import RequestOutput
from minillm.server.body import json_body
from minillm.server.generation import Answer, Generation
from minillm.server.logprobs import CompletionLogprobs, joined, prompt_logprobs
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
    generation = Generation(serving, prompts, params, body)
    choices = [_Choice(i, body, prompts, generation.prompt_of(i), serving) for i in range(generation.num_choices)]
    if body.stream:
        return EventStream(_chunks(generation, head, body, choices), generation.aclose)
    answers = await generation.collect(request)
    whole = [choice.show(answer) for choice, answer in zip(choices, answers, strict=True)]
    return head | {"choices": whole, "usage": generation.usage()}


def _encode(serving: Serving, body: CompletionRequest) -> list[list[int]]:
    return [serving.encode(p) if isinstance(p, str) else p for p in body.prompt]


class _Choice:
    """Shows one choice, whole or delta by delta, its echoed prompt before the first."""

    def __init__(self, index: int, body: CompletionRequest, prompts: list[list[int]], prompt: int, serving: Serving):
        self._index, self._body, self._tokenizer = index, body, serving.tokenizer
        self._prompt, self._token_ids = body.prompt[prompt], prompts[prompt]
        self._skips_special = body.skip_special_tokens is not False
        self._logprobs = None
        if body.logprobs is not None:
            self._logprobs = CompletionLogprobs(serving.tokenizer, body.logprobs, self._skips_special)
        self._echo_is_due = bool(body.echo)

    def show(self, output: RequestOutput | Answer) -> dict:
        text, parts = output.text, []
        if self._echo_is_due:
            self._echo_is_due = False
            echo = self._prompt
            if not isinstance(echo, str):
                echo = self._tokenizer.decode(echo, skip_special_tokens=self._skips_special)
            text = echo + text
            if self._logprobs is not None:
                parts.append(self._logprobs.prompt(self._token_ids, output.prompt_logprobs, echo))
        if self._logprobs is not None:
            parts.append(self._logprobs.answer(output.token_ids, output.logprobs))
        choice = {
            "index": self._index,
            "text": text,
            "logprobs": joined(parts) if parts else None,
            "finish_reason": output.finish_reason and output.finish_reason.value,
            "stop_reason": output.stop_reason,
        }
        if self._body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(self._tokenizer, output.prompt_logprobs, self._body.prompt_logprobs)
        return choice


async def _chunks(generation: Generation, head: dict, body: CompletionRequest, choices: list[_Choice]) -> AsyncIterator[dict]:
    usage = {"usage": None} if body.include_usage else {}  # OpenAI: null on every chunk but the last
    async for i, output in generation.outputs():
        shown = choices[i].show(output)
        if shown["text"] or shown["logprobs"] or output.finished:
            yield head | {"choices": [shown]} | usage
    if body.include_usage:
        yield head | {"choices": [], "usage": generation.usage()}
