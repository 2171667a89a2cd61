"""One HTTP request's way through the engine: submitted together, read together, and freed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request

from minillm.errors import EngineDeadError
from minillm.request import FinishReason, RequestOutput, SamplingParams
from minillm.server.errors import ClientGone


class Generation:
    """The streams of one HTTP request: P prompts with n samples each; choice = prompt number * n + sample number.

    Always `aclose()` it: that is what frees the engine's side when nobody listens any more.
    """

    def __init__(self, engine, prompts: list[list[int]], params: SamplingParams):
        self._engine, self._prompts, self._params = engine, prompts, params
        self._streams: list = []
        self._pumps: list[asyncio.Task] = []
        self._prompt_tokens = [len(p) for p in prompts]
        self._cached_tokens = [0] * len(prompts)
        self._output_tokens = [0] * self.num_choices
        self._finished = [False] * self.num_choices

    @property
    def num_choices(self) -> int:
        return len(self._prompts) * self._params.n

    async def submit(self) -> None:
        """Hand every prompt to the engine. If one is refused (RequestError, EngineDeadError), none stays behind."""
        try:
            for prompt in self._prompts:
                # the engine names its requests itself: two clients that chose one request_id cannot meet there
                self._streams.append(self._engine.submit(prompt, self._params))
        except BaseException:
            await self.aclose()
            raise

    async def outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """(choice, delta) as the engine produces them, the choices interleaved. Raises EngineDeadError when it stops early."""
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
            choice = prompt * self._params.n + output.index
            if output.finish_reason is FinishReason.ABORT:
                break
            self._cached_tokens[prompt] = output.num_cached_tokens
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

    async def collect(self, request: Request) -> list[tuple[str, RequestOutput]]:
        """Every choice's whole text and last output. Raises ClientGone as soon as nobody waits for it."""
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

    async def _collect(self) -> list[tuple[str, RequestOutput]]:
        texts = [""] * self.num_choices
        last: dict[int, RequestOutput] = {}
        async for choice, output in self.outputs():
            texts[choice] += output.text
            last[choice] = output
        return [(texts[choice], last[choice]) for choice in range(self.num_choices)]

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
        prompt, completion = sum(self._prompt_tokens), sum(self._output_tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached_tokens)},
        }


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
