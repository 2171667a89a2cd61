"""One HTTP request's way through the engine: submitted together, read together, and freed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import Request

from minillm.errors import BadLogitsError, EngineDeadError, RequestError
from minillm.request import FinishReason, RequestOutput, SamplingParams, TokenLogprob
from minillm.server.errors import ClientGone
from minillm.server.schema import GenerationRequest
from minillm.server.serving import Serving

MAX_LOGPROBS = 2_000_000  # of one HTTP request; each is an object in memory until the answer is sent


@dataclass
class Answer:
    """One choice, whole."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[tuple[TokenLogprob, ...]] = field(default_factory=list)  # one entry a token, if asked for
    prompt_logprobs: list[tuple[TokenLogprob, ...] | None] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def add(self, delta: RequestOutput) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or []
        self.prompt_logprobs = self.prompt_logprobs or delta.prompt_logprobs
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class Generation:
    """The streams of one HTTP request: P prompts with n samples each; choice = prompt number * n + sample number.

    Always `aclose()` it: that is what frees the engine's side when nobody listens any more.
    """

    def __init__(self, serving: Serving, prompts: list[list[int]], params: SamplingParams, body: GenerationRequest):
        """Hands every prompt to the engine, or none if one is refused; raises what AsyncEngine.submit_all raises."""
        serving.check_priority(body.priority)
        _check_logprobs(prompts, params, serving.max_model_len)
        self._prompts, self._params = prompts, params
        # the engine names its requests itself: two clients that chose one request_id cannot meet there
        self._streams = serving.engine.submit_all(prompts, params, priority=body.priority or 0, cache_salt=body.cache_salt)
        self._pumps: list[asyncio.Task] = []
        self._cached_tokens = [0] * len(prompts)
        self._output_tokens = [0] * self.num_choices
        self._finished = [False] * self.num_choices

    @property
    def num_choices(self) -> int:
        return len(self._prompts) * self._params.n

    def prompt_of(self, choice: int) -> int:
        """Which of the prompts a choice continues."""
        return choice // self._params.n

    async def outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """(choice, delta) as the engine produces them, the choices interleaved. Raises BadLogitsError for a
        choice that failed, EngineDeadError when the engine stops early."""
        queue: asyncio.Queue = asyncio.Queue()
        self._pumps = [asyncio.create_task(self._pump(i, s, queue)) for i, s in enumerate(self._streams)]
        running = len(self._pumps)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
                continue
            if isinstance(item, Exception):
                raise item
            prompt, output = item
            if output.finish_reason is FinishReason.ERROR:
                raise BadLogitsError
            choice = prompt * self._params.n + output.index
            if output.finish_reason is FinishReason.ABORT:
                break
            self._cached_tokens[prompt] = max(self._cached_tokens[prompt], output.num_cached_tokens)
            self._output_tokens[choice] = output.num_output_tokens
            self._finished[choice] = output.finished
            yield choice, output
        if not all(self._finished):
            raise EngineDeadError("the server stopped before the answer was complete; start it again and repeat the request")

    @staticmethod
    async def _pump(prompt: int, stream, queue: asyncio.Queue) -> None:
        try:
            async for output in stream:
                queue.put_nowait((prompt, output))
        except Exception as e:  # noqa: BLE001 - handed on: outputs() raises it
            queue.put_nowait(e)
        queue.put_nowait(None)

    async def collect(self, request: Request) -> list[Answer]:
        """Every choice, whole. Raises ClientGone as soon as nobody waits for it."""
        work = asyncio.create_task(self._collect())
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientGone
            return work.result()
        finally:
            work.cancel()
            gone.cancel()
            await self.aclose()

    async def _collect(self) -> list[Answer]:
        answers = [Answer() for _ in range(self.num_choices)]
        async for choice, output in self.outputs():
            answers[choice].add(output)
        return answers

    async def aclose(self) -> None:
        """Stop reading, and abort whatever still runs. Safe to call twice."""
        for pump in self._pumps:
            pump.cancel()
        # a stream must not be closed while a task is still inside it
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for stream in self._streams:
            await stream.aclose()

    def usage(self) -> dict:
        """OpenAI's usage: a prompt counts once however many samples it has; every sampled token counts."""
        prompt, completion = sum(map(len, self._prompts)), sum(self._output_tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached_tokens)},
        }


def _check_logprobs(prompts: list[list[int]], params: SamplingParams, max_model_len: int) -> None:
    """Refuse what could fill the memory: log-probabilities are reported for up to 20 candidates a token."""

    def num(asked: int | None, tokens: int) -> int:
        return 0 if asked is None else (1 + asked) * tokens

    for name, tokens in (
        ("prompt_logprobs", sum(map(len, prompts))),
        ("logprobs", len(prompts) * min(params.max_tokens or max_model_len, max_model_len)),
    ):
        if (count := params.n * num(getattr(params, name), tokens)) > MAX_LOGPROBS:
            raise RequestError(
                f"{name}: this request could ask for {count:,} log-probabilities, more than the {MAX_LOGPROBS:,} allowed; "
                "ask for fewer candidates, tokens or samples",
                param=name,
            )


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
