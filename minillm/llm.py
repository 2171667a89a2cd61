"""Offline use: `LLM("smollm2-135m").generate(["Once upon a time"], SamplingParams(temperature=0))`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from minillm.config import EngineConfig
from minillm.engine import Engine
from minillm.mine.choose import Mine, choose
from minillm.request import Request, RequestOutput, SamplingParams

Prompt = str | list[int]


@dataclass
class Generation:
    """All samples of one prompt."""

    prompt: Prompt
    prompt_token_ids: list[int]
    outputs: list[RequestOutput]  # params.n of them, each with the whole text and all token ids

    @property
    def text(self) -> str:
        return self.outputs[0].text


class LLM:
    def __init__(self, model: str = "smollm2-135m", mine: Mine = None, **options):
        """options: the fields of EngineConfig. mine: True for all your answers to the labs that pass and can stand for a part,
        a list of part names for these alone, or {part name: object}; `own_parts` says which of them run.

        Raises MinillmError if the model cannot be loaded, or a part that is named does not pass its lab's checks."""
        choice = choose(mine, EngineConfig(model=model, **options))
        self.own_parts = choice.names
        self.engine = Engine.from_config(choice.config, choice.objects)
        self._inboxes: dict[str, deque[RequestOutput]] = {}  # outputs of open requests that nobody has taken yet

    @property
    def tokenizer(self):
        return self.engine.tokenizer

    def generate(
        self, prompts: Prompt | list[Prompt], params: SamplingParams | list[SamplingParams] | None = None
    ) -> list[Generation]:
        """Complete every prompt, batched continuously. Prompts are texts or lists of token ids; params is one for all or
        one each. Raises RequestError before anything runs if one of them can never be served."""
        prompts = [prompts] if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)) else list(prompts)
        if not isinstance(params, list):
            params = [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts but {len(params)} sampling params: give one for all, or one each")
        tokens = [self._encode(p) for p in prompts]
        groups = [self.engine.make_requests(t, p) for t, p in zip(tokens, params, strict=True)]
        finished = self._run([request for group in groups for request in group])
        return [
            Generation(prompt, ids, [finished[request.request_id] for request in group])
            for prompt, ids, group in zip(prompts, tokens, groups, strict=True)
        ]

    def chat(self, messages: list[dict], params: SamplingParams | None = None) -> Generation:
        """Answer a conversation ({"role", "content"} messages) through the model's own chat template."""
        return self.generate([self.tokenizer.encode_chat(messages)], params)[0]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Complete one prompt, yielding text as it becomes certain. Leaving the loop early frees the request.

        Several streams, and generate() between their outputs, may be open at once: they share the engine's steps."""
        return self._outputs(self.engine.make_requests(self._encode(prompt), params or SamplingParams()))

    def _encode(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _run(self, requests: list[Request]) -> dict[str, RequestOutput]:
        """Run to the end; deltas joined."""
        whole: dict[str, RequestOutput] = {}
        for delta in self._outputs(requests):
            join(whole, delta)
        return whole

    def _outputs(self, requests: list[Request]) -> Iterator[RequestOutput]:
        """Run these requests, yielding their outputs. A step computes for every open request, so what it brings for others is
        put by until they ask."""
        unfinished = {request.request_id: deque() for request in requests}
        try:
            for request in requests:
                self.engine.add(request)
                self._inboxes[request.request_id] = unfinished[request.request_id]
            while unfinished:
                if not any(unfinished.values()):
                    for output in self.engine.step_text():
                        self._inboxes[output.request_id].append(output)
                for request_id, inbox in list(unfinished.items()):
                    while inbox:
                        output = inbox.popleft()
                        if output.finished:
                            del unfinished[request_id]
                        yield output
        finally:
            with ExitStack() as every:  # a cache of the caller's own may raise for one of them; the others end nevertheless
                for request in requests:
                    every.callback(self._inboxes.pop, request.request_id, None)
                for request_id in unfinished:  # left early: a break, an error, Ctrl-C
                    every.callback(self.engine.abort, [request_id])


def join(whole: dict[str, RequestOutput], delta: RequestOutput) -> None:
    """Add a delta to what its request has produced so far."""
    before = whole.get(delta.request_id)
    if before is not None:
        delta.text, delta.token_ids = before.text + delta.text, before.token_ids + delta.token_ids
        if delta.logprobs is not None:
            delta.logprobs = before.logprobs + delta.logprobs
        delta.prompt_logprobs = before.prompt_logprobs
    whole[delta.request_id] = delta
